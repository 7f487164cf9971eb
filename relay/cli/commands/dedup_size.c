#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include "bloom_filter.h"
#include "bloom_size.h"
#include "commands.h"
#include "counting_filter.h"
#include "dedup_map.h"
#include "dedup_store.h"
#include "field.h"
#include "key_index.h"
#include "key_log_format.h"
#include "session.h"
#include "text.h"
#include "units.h"

/* "27.5 MiB" */
static void print_size(const char *name, uint64_t bytes, const char *what)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double size = (double)bytes;
	int unit = 0;
	for (; size >= 1024 && unit < 5; unit++)
		size /= 1024;
	printf("%-22s%.*f %s%s\n", name, unit ? 1 : 0, size, units[unit], what);
}

static void print_duration(const char *name, int64_t ms, const char *what)
{
	const struct unit *unit = units_best(ms, units_duration);
	printf("%-22s%" PRId64 "%s%s\n", name, ms / unit->factor, unit->word, what);
}

/* Sizes of all slices that are alive, full as planned. */
struct disk {
	uint64_t log, index, all; /* bytes; all: with the filters */
};

static struct disk disk_of(const struct bloom_plan *plan)
{
	uint64_t slices = (uint64_t)plan->slices + 1, buckets = key_index_buckets(plan->ids);
	uint64_t log = plan->ids * KEY_UNIT + KEY_LOG_HEAD;
	return (struct disk){.log = slices * log,
	    .index = slices * buckets * KEY_BUCKET,
	    .all = slices * (log + dedup_map_bytes(plan->lines, buckets))};
}

/*
 * The memory of counters by their width. A counter of one bit is the bit of a Bloom filter. The
 * counters alone are what the usual tables of counting filters show; a store needs several counters
 * for each id, as the rate demands.
 */
struct width {
	int bits;
	const char *store;
	uint64_t counters; /* bytes of as many counters as there are ids */
	uint64_t memory;   /* bytes of the store, all slices */
};
enum { WIDTHS = 3 };

static void plan_widths(
    const struct dedup_spec *spec, const struct bloom_plan *plan, struct width widths[WIDTHS])
{
	static const struct {
		int bits;
		const char *store;
	} rows[WIDTHS] = {{1, "bloom"}, {4, "counting counter=4"}, {8, "counting counter=8"}};
	uint64_t ids = (uint64_t)spec->ids;
	struct bloom_plan counting =
	    bloom_plan(ids, spec->rate, (int)spec->slices, COUNTING_PLACES);
	uint64_t lines = counting.lines * ((uint64_t)counting.slices + 1);

	for (int i = 0; i < WIDTHS; i++)
		widths[i] = (struct width){.bits = rows[i].bits,
		    .store = rows[i].store,
		    .counters = (ids * (uint64_t)rows[i].bits + 7) / 8,
		    .memory = rows[i].bits == 1 ? plan->filter_bytes
						: lines * counting_line_bytes(rows[i].bits)};
}

/* "500 KB": decimal, since memory tables of counters are */
static void format_decimal(uint64_t bytes, char *ret_text, size_t size)
{
	static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
	double number = (double)bytes;
	int unit = 0;
	for (; number >= 1000 && unit < 4; unit++)
		number /= 1000;
	snprintf(ret_text, size, "%.4g %s", number, units[unit]);
}

static void print_widths(const struct dedup_spec *spec, const struct bloom_plan *plan)
{
	struct width widths[WIDTHS];
	char name[30], bytes[30];

	plan_widths(spec, plan, widths);
	for (int i = 0; i < WIDTHS; i++) {
		snprintf(name, sizeof name, "counters of %d bit%s", widths[i].bits,
		    text_plural(widths[i].bits));
		format_decimal(widths[i].counters, bytes, sizeof bytes);
		printf("%-22s%s for %" PRId64 " counters; %s takes %.1f bytes an id\n", name, bytes,
		    spec->ids, widths[i].store, (double)widths[i].memory / (double)spec->ids);
	}
}

static void print_size_text(
    const struct dedup_spec *spec, const struct bloom_plan *plan, uint64_t partitions)
{
	uint64_t slice = plan->lines * BLOOM_LINE;
	struct disk disk = disk_of(plan);

	printf("%-22s%" PRId64 "\n", "ids in a window", spec->ids);
	print_duration("window", spec->window_ms, "");
	printf("%-22s%d, and one more that ends; %" PRIu64 " ids in each\n", "slices", plan->slices,
	    plan->ids);
	print_duration("slice", dedup_spec_slice_ms(spec), "");
	print_size("filter of a slice", slice, "");
	print_size("filter", plan->filter_bytes, " in memory, all slices");
	print_size("index", disk.index, " mapped, all slices; a look at what is there reads it");
	print_size("key log", disk.log, " on disk, all slices");
	print_size("disk", disk.all, " for log, filter and index");
	printf("%-22s%" PRIu64 "%s\n", "partitions", partitions,
	    partitions > 1 ? ", each with a filter and a folder of its own"
			   : "; each assigned partition takes as much: --partitions N adds up");
	print_size("total memory", plan->filter_bytes * partitions, " for the filters");
	print_size("total index", disk.index * partitions, " mapped");
	print_size("total disk", disk.all * partitions, "");
	printf("%-22s%.2f of the filter in memory; %.1f bytes on disk\n", "bits an id",
	    plan->bits_an_id, (double)disk.all / (double)spec->ids);
	printf("%-22s%.4g%% of a full slice, %.4g%% of the whole window, asked for %.4g%%\n",
	    "false positives", plan->rate * 100,
	    -100 * expm1((plan->slices + 1) * log1p(-plan->rate)), spec->rate * 100);
	printf(
	    "%-22s%.2f bits an id with %d bits set, anywhere in the filter; one cache line a bit\n",
	    "classic formula", bloom_classic_bits(spec->rate), bloom_classic_hashes(spec->rate));
	print_widths(spec, plan);
}

static json_t *widths_json(const struct dedup_spec *spec, const struct bloom_plan *plan)
{
	struct width widths[WIDTHS];
	json_t *rows = json_array();

	plan_widths(spec, plan, widths);
	for (int i = 0; i < WIDTHS; i++)
		json_array_append_new(
		    rows, json_pack("{s:i, s:I, s:s, s:I, s:f}", "bits", widths[i].bits, "bytes",
			      (json_int_t)widths[i].counters, "store", widths[i].store,
			      "memory_bytes", (json_int_t)widths[i].memory, "bytes_an_id",
			      (double)widths[i].memory / (double)spec->ids));
	return rows;
}

static json_t *size_json(
    const struct dedup_spec *spec, const struct bloom_plan *plan, uint64_t partitions)
{
	struct disk disk = disk_of(plan);

	return json_pack("{s:I, s:f, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:f, s:f, s:f, s:f, s:{s:f, s:i}, s:o}",
	    "ids", (json_int_t)spec->ids, "rate", spec->rate, "window_ms",
	    (json_int_t)spec->window_ms, "slices", plan->slices, "slice_ms",
	    (json_int_t)dedup_spec_slice_ms(spec), "ids_a_slice", (json_int_t)plan->ids,
	    "filter_bytes", (json_int_t)plan->filter_bytes, "index_bytes", (json_int_t)disk.index,
	    "log_bytes", (json_int_t)disk.log, "disk_bytes", (json_int_t)disk.all, "partitions",
	    (json_int_t)partitions, "total_filter_bytes",
	    (json_int_t)(plan->filter_bytes * partitions), "total_index_bytes",
	    (json_int_t)(disk.index * partitions), "total_disk_bytes",
	    (json_int_t)(disk.all * partitions), "bits_an_id", plan->bits_an_id, "disk_bytes_an_id",
	    (double)disk.all / (double)spec->ids, "slice_rate", plan->rate, "window_rate",
	    -expm1((plan->slices + 1) * log1p(-plan->rate)), "classic", "bits_an_id",
	    bloom_classic_bits(spec->rate), "hashes", bloom_classic_hashes(spec->rate), "counters",
	    widths_json(spec, plan));
}

static bool read_spec(const struct call *call, struct dedup_spec *spec, struct err *err)
{
	static const char *const names[] = {"ids", "rate", "window", "slices", NULL};
	for (int i = 0; names[i]; i++) {
		const char *value = call_text(call, names[i], NULL);
		if (value && !spec_set(&bloom_store.spec, spec, names[i], value, err))
			return false;
	}
	return dedup_spec_check(spec, err);
}

static int run_dedup_size(const struct call *call)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	struct err err;

	dedup_spec_init(&spec, &bloom_store);
	/* the values come from the command line, so a wrong one is an error of usage */
	if (!read_spec(call, &spec, &err)) {
		session_failed(&err);
		return EXIT_USAGE;
	}
	struct bloom_plan plan =
	    bloom_plan((uint64_t)spec.ids, spec.rate, (int)spec.slices, BLOOM_PLACES);
	uint64_t partitions = (uint64_t)call_number(call, "partitions", 1);

	if (!call_flag(call, "json")) {
		print_size_text(&spec, &plan, partitions);
		return 0;
	}
	field_print_json("", size_json(&spec, &plan, partitions), JSON_INDENT(2), "\n");
	return 0;
}

static const struct command_option dedup_size_options[] = {
    {"ids", "N", "Number of different ids in a window, such as 50M. Required."},
    {"rate", "SHARE",
	"Rate of false positives over the whole window, such as 0.1% or 0.001 "
	"(default 0.1%)."},
    {"window", "TIME", "Time for which an id is remembered (default 24h)."},
    {"slices", "N", "Number of slices of the window (default 5)."},
    {"partitions", "N", "Number of partitions that one process has at a time (default 1).", 1,
	1000000},
    {"json", NULL, "Prints JSON."},
    {0},
};

const struct command command_dedup_size = {
    .name = "dedup size",
    .arguments = "",
    .summary = "Computes the size of a filter from the number of ids and the error rate.",
    .description =
	"Uses the formula of a blocked filter, in which all bits of an id are in one cache line, "
	"and shows the classic filter for comparison. The disk holds filter, index and key log. "
	"Memory holds the filter, and the pages of the index that are read: up to 8 bytes per "
	"id.\n"
	"The rows of counters compare widths: the memory of as many counters as there are ids, "
	"and the memory that a store with such counters takes for an id at this rate.\n"
	"The inbox and the sidecar have one such filter for each assigned partition. --ids, like "
	"`ids=`, counts the ids of one partition; --partitions multiplies memory and disk.\n",
    .options = dedup_size_options,
    .example = "outbox-relay dedup size --ids 50M --window 24h --partitions 6",
    .run = run_dedup_size,
};
