/*
 * `dedup stat`: an inspection of the folder whose parts become rows of a table, or members of a
 * JSON object. Both sum up the parts (sum_up), for the totals behind them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include "commands.h"
#include "dedup_findings.h"
#include "field.h"
#include "moment.h"
#include "session.h"
#include "text.h"
#include "units.h"

struct listing {
	json_t *files, *findings; /* NULL: as text */
	json_t *object;
	uint64_t ids, bytes;
	struct dedup_counters counters;
	int64_t offset;
	int count;
	double none_false; /* the chance that no filter takes a new id for its own; 1: no filters */
	/* ids of the slice in hand with its sub-slices, and of the fullest one */
	int64_t slice;
	uint64_t slice_ids, most_ids;
	int slices, sub_slices;
};

static const char *map_word(const struct dedup_part *part)
{
	static const char *const words[] = {[DEDUP_MAP_REBUILT] = "rebuilt",
	    [DEDUP_MAP_USED] = "as it is",
	    [DEDUP_MAP_LOADED] = "snapshot",
	    [DEDUP_MAP_REFUSED] = "refused"};
	return part->has_map ? words[part->use] : NULL;
}

/* Files of other stores may have a second number, too. */
static bool is_sub_slice(const struct dedup_part *part)
{
	return part->file->sub > 0 && part->ids > 0 && (part->has_map || part->counter_bits > 0);
}

static void sum_up(struct listing *listing, const struct dedup_part *part)
{
	listing->ids += part->ids;
	listing->bytes += part->bytes + part->map_bytes;
	listing->count += 1 + (part->map_bytes > 0);
	dedup_counters_add(&listing->counters, part);
	if (part->offset > listing->offset)
		listing->offset = part->offset;
	if (part->false_rate >= 0)
		listing->none_false *= 1 - part->false_rate;

	/* the files of a slice come one after the other */
	if (part->file->number != listing->slice)
		listing->slice_ids = 0;
	listing->slice = part->file->number;
	listing->slice_ids += part->ids;
	listing->sub_slices += is_sub_slice(part);
	if (listing->slice_ids > listing->most_ids)
		listing->most_ids = listing->slice_ids;
}

/* The setting `ids` with which each slice would have one filter. */
static uint64_t fitting_ids(const struct listing *listing)
{
	return listing->most_ids * (uint64_t)listing->slices;
}

/* --- for people ----------------------------------------------------------------------------- */

static const char *number_or_dash(int64_t number, bool known, char text[MOMENT_SIZE])
{
	snprintf(text, MOMENT_SIZE, known ? "%" PRId64 : "-", number);
	return text;
}

static const char *moment_or_dash(int64_t ms, bool known, char text[MOMENT_SIZE])
{
	snprintf(text, MOMENT_SIZE, "-");
	if (known)
		moment_format(ms * 1000, text);
	return text;
}

/* rate < 0: not known. */
static const char *rate_or_dash(double rate, char text[MOMENT_SIZE])
{
	snprintf(text, MOMENT_SIZE, rate < 0 ? "-" : "%.2g%%", rate * 100);
	return text;
}

static void print_folder(void *context, const struct state_folder_view *folder)
{
	const struct state_folder_head *head = &folder->head;
	int64_t window = head->slice_ms * head->slices;

	struct listing *listing = context;
	listing->slices = (int)head->slices;
	printf("store     %s\nversion   %u\nseed      %016" PRIx64 "\n",
	    folder->fault ? "-" : folder->store, head->version, head->seed);

	/* a store without a window has no slices; with a fault the head means nothing */
	if (!folder->fault && head->slices) {
		const struct unit *all = units_best(window, units_duration);
		const struct unit *one = units_best(head->slice_ms, units_duration);
		printf("window    %" PRId64 "%s in %u slices of %" PRId64 "%s\n",
		    window / all->factor, all->word, head->slices, head->slice_ms / one->factor,
		    one->word);
	}
	dedup_holder_print(folder);
	printf("\n%-16s  %-20s  %-20s  %3s  %12s  %14s  %12s  %-20s  %-20s  %8s  %s\n", "file",
	    "from", "to", "sub", "ids", "bytes", "offset", "first", "last", "false", "map");
}

static void print_part(void *context, const struct dedup_part *part)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE], first[MOMENT_SIZE], last[MOMENT_SIZE],
	    offset[MOMENT_SIZE], rate[MOMENT_SIZE];
	int64_t begin = part->file->number * part->slice_ms;
	/* an empty file has no first record, so its two times are in the wrong order */
	bool timed = part->first_ms <= part->last_ms;
	const char *map = map_word(part);

	sum_up(context, part);
	printf("%-16s  %-20s  %-20s  %3d  %12" PRIu64 "  %14" PRIu64
	       "  %12s  %-20s  %-20s  %8s  %s%s\n",
	    part->file->name, moment_or_dash(begin, part->slice_ms, from),
	    moment_or_dash(begin + part->slice_ms, part->slice_ms, to), part->file->sub, part->ids,
	    part->bytes + part->map_bytes, number_or_dash(part->offset, part->offset >= 0, offset),
	    moment_or_dash(part->first_ms, timed, first),
	    moment_or_dash(part->last_ms, timed, last), rate_or_dash(part->false_rate, rate),
	    map ? map : "-", part->damaged ? ", damaged" : "");
}

static void print_found(void *context, const struct dedup_finding *finding)
{
	(void)context;
	dedup_finding_print(finding);
}

static bool print_stat_text(const char *path, struct err *err)
{
	char offset[MOMENT_SIZE];
	struct listing listing = {.offset = -1, .none_false = 1};
	const struct dedup_inspector inspector = {print_folder, print_part, print_found, &listing};
	if (!dedup_inspect(path, false, &inspector, err))
		return false;
	printf("\ntotal     %" PRIu64 " ids in %d files of %" PRIu64
	       " bytes; everything below offset %s is durable\n",
	    listing.ids, listing.count, listing.bytes,
	    number_or_dash(listing.offset, listing.offset >= 0, offset));
	dedup_counters_print(&listing.counters);

	if (listing.none_false < 1)
		printf("false     %.2g%% of new ids are hits of a filter, by its bits\n",
		    (1 - listing.none_false) * 100);
	if (listing.sub_slices)
		printf("overfull  %d sub-slices: more ids came than planned; ids=%" PRIu64
		       " fits the fullest slice\n",
		    listing.sub_slices, fitting_ids(&listing));
	return true;
}

/* --- for programs --------------------------------------------------------------------------- */

static json_t *number_or_null(int64_t number, bool known)
{
	return known ? json_integer(number) : json_null();
}

static void note_folder(void *context, const struct state_folder_view *folder)
{
	struct listing *listing = context;
	const struct state_folder_head *head = &folder->head;
	char seed[17];
	listing->slices = (int)head->slices;
	snprintf(seed, sizeof seed, "%016" PRIx64, head->seed);
	listing->object = json_pack("{s:s?, s:I, s:s, s:I, s:I, s:I, s:b, s:o}", "store",
	    folder->fault ? NULL : folder->store, "version", (json_int_t)head->version, "seed",
	    seed, "window_ms", (json_int_t)(head->slice_ms * head->slices), "slices",
	    (json_int_t)head->slices, "slice_ms", (json_int_t)head->slice_ms, "in_use",
	    folder->holder != 0, "process", number_or_null(folder->holder, folder->holder > 0));
}

static void note_part(void *context, const struct dedup_part *part)
{
	struct listing *listing = context;
	int64_t begin = part->file->number * part->slice_ms;
	bool timed = part->first_ms <= part->last_ms, sliced = part->slice_ms > 0,
	     counted = part->counter_bits > 0;

	sum_up(listing, part);
	json_array_append_new(listing->files,
	    json_pack(
		"{s:s, s:I, s:i, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s?, s:b, "
		"s:o, s:o, s:o}",
		"file", part->file->name, "number", (json_int_t)part->file->number, "sub",
		part->file->sub, "from_ms", number_or_null(begin, sliced), "to_ms",
		number_or_null(begin + part->slice_ms, sliced), "ids", (json_int_t)part->ids,
		"released", (json_int_t)part->released, "bytes", (json_int_t)part->bytes,
		"map_bytes", (json_int_t)part->map_bytes, "offset",
		number_or_null(part->offset, part->offset >= 0), "first_ms",
		number_or_null(part->first_ms, timed), "last_ms",
		number_or_null(part->last_ms, timed), "false_rate",
		part->false_rate < 0 ? json_null() : json_real(part->false_rate), "map",
		map_word(part), "damaged", part->damaged, "counter_bits",
		number_or_null(part->counter_bits, counted), "counters",
		number_or_null((int64_t)part->counters, counted), "saturated",
		number_or_null((int64_t)part->saturated, counted)));
}

static void note_found(void *context, const struct dedup_finding *finding)
{
	const struct listing *listing = context;
	json_array_append_new(listing->findings, dedup_finding_json(finding));
}

static bool print_stat_json(const char *path, struct err *err)
{
	struct listing listing = {
	    .files = json_array(), .findings = json_array(), .offset = -1, .none_false = 1};
	const struct dedup_inspector inspector = {note_folder, note_part, note_found, &listing};
	bool good = dedup_inspect(path, false, &inspector, err);
	bool counted = listing.counters.all > 0;
	json_t *totals = json_pack("{s:I, s:I, s:o, s:f, s:i, s:o, s:o, s:o, s:o}", "ids",
	    (json_int_t)listing.ids, "bytes", (json_int_t)listing.bytes, "offset",
	    number_or_null(listing.offset, listing.offset >= 0), "false_rate",
	    1 - listing.none_false, "sub_slices", listing.sub_slices, "fitting_ids",
	    number_or_null((int64_t)fitting_ids(&listing), listing.sub_slices > 0), "files",
	    listing.files, "findings", listing.findings, "saturated",
	    number_or_null((int64_t)listing.counters.full, counted));

	/* without a good end the totals cover a part of the folder: nothing is printed */
	if (good) {
		json_object_update(listing.object, totals);
		field_print_json("", json_incref(listing.object), JSON_INDENT(2), "\n");
	}
	json_decref(totals);
	json_decref(listing.object);
	return good;
}

static int run_dedup_stat(const struct call *call)
{
	struct err err;
	const char *path = call->arguments[0];
	bool good =
	    call_flag(call, "json") ? print_stat_json(path, &err) : print_stat_text(path, &err);
	return good ? 0 : session_failed(&err);
}

static const struct command_option dedup_stat_options[] = {
    {"json", NULL, "Prints JSON."},
    {0},
};

const struct command command_dedup_stat = {
    .name = "dedup stat",
    .arguments = "PATH",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Shows the contents of the folder of a local dedup store.",
    .description =
	"Shows for the folder: the store, its format version, the seed, the window, and whether "
	"a process has it open. Shows for each file: the time of its slice, the number of ids, "
	"the durable offset, the times of the first and the last record, the part of new ids that "
	"its filter takes for its own (false positives, which the log corrects), and how the store "
	"will "
	"open the map next to it with the same ids and rate: as it is (written since the machine "
	"started), snapshot (sealed earlier, with a right checksum), rebuilt (from the log), "
	"refused (its log has become shorter). For counters it shows how many are saturated: a "
	"counter that has reached its maximum stays there.\n"
	"The command locks and writes nothing, and may run while the folder is in use. It reads "
	"whole key logs. It does not see a process in another container or on another machine.\n",
    .options = dedup_stat_options,
    .example = "outbox-relay dedup stat /var/lib/outbox-relay/dedup",
    .no_server = "it reads the store of this machine; call it on the host of the store, or see GET "
		 "/v1/dedup",
    .run = run_dedup_stat,
};
