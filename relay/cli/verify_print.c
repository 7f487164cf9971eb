#include "verify_print.h"

#include <inttypes.h>
#include <stdio.h>
#include "field.h"
#include "verify_engine.h"

static void print_verify_count(const char *title, int64_t count, const char *remark)
{
	printf("  %-20s %12" PRId64 "%s%s\n", title, count, remark[0] ? "  " : "", remark);
}

struct unjudged_row {
	const char *member, *title, *remark;
};

static void print_unjudged(const json_t *object, const struct unjudged_row *rows)
{
	for (; rows->member; rows++) {
		int64_t count = field_number(object, rows->member);

		if (count)
			print_verify_count(rows->title, count, rows->remark);
	}
}

static const struct unjudged_row without_finding[] = {
    {"pending", "pending", "committed, not published yet"},
    {"parked", "parked", "refused by Kafka, or behind one that is; see `outbox-relay parked list`"},
    {"scheduled", "scheduled", "for a time that has not come"},
    {"skipped", "skipped", "by an operator: `parked skip`"},
    {"before_start", "before the start", "of the publisher, or of its identity"},
    {0},
};

/* Not judged: the other side is gone, came later, or does not name its row. */
static const struct unjudged_row not_judged[] = {
    {"expired_rows", "not judged",
	"rows: Kafka has deleted their records by retention or compaction"},
    {"rows_without_headers", "not judged",
	"rows: their topics have headers = none, and records do not name their rows"},
    {"older_records", "not judged", "records: their partition of the table is gone"},
    {"newer_records", "not judged", "records: their rows came while the table was read"},
    {"sequences", "not judged", "sequences: more than 2 million keys"},
    {0},
};

static void print_samples(const json_t *result, const char *kind)
{
	const json_t *samples = json_object_get(json_object_get(result, "samples"), kind), *sample;
	size_t i;

	json_array_foreach(samples, i, sample)
	{
		printf("      %s\n", json_string_value(sample));
	}
	if (field_number(result, kind) > (int64_t)json_array_size(samples))
		puts("      …");
}

static void print_verify_range(const json_t *result)
{
	const char *from = json_string_value(json_object_get(result, "from"));
	const char *to = json_string_value(json_object_get(result, "to"));

	if (from || to)
		printf("  rows created%s%s%s%s\n", from ? " from " : "", from ? from : "",
		    to ? " up to " : "", to ? to : "");
}

static void print_verify_text(const json_t *result)
{
	const json_t *missing = json_object_get(result, "missing_topics"), *name;
	size_t topics =
	    json_array_size(json_object_get(result, "topics")) + json_array_size(missing);
	size_t i;

	printf("publisher %s: %s against %zu topic%s, %" PRId64 " records, in %.1f s\n",
	    field_member(result, "publisher"), field_member(result, "database"), topics,
	    topics == 1 ? "" : "s", field_number(result, "records"),
	    json_number_value(json_object_get(result, "seconds")));
	print_verify_range(result);
	print_verify_count("committed", field_number(result, "committed"), "");
	print_verify_count("published", field_number(result, "published"), "");
	for (int kind = 0; kind < VERIFY_KINDS; kind++) {
		print_verify_count(
		    verify_kinds[kind].title, field_number(result, verify_kinds[kind].name), "");
		print_samples(result, verify_kinds[kind].name);
	}

	print_unjudged(result, without_finding);
	print_unjudged(json_object_get(result, "not_judged"), not_judged);
	json_array_foreach(missing, i, name)
	{
		printf("  topic %s does not exist\n", json_string_value(name));
	}
	puts(json_is_true(json_object_get(result, "clean")) ? "clean" : "NOT CLEAN");
}

int verify_print_result(const struct call *call, json_t *result)
{
	int status = json_is_true(json_object_get(result, "clean")) ? 0 : EXIT_FOUND;

	if (call_flag(call, "json")) {
		field_print_json("", result, JSON_COMPACT | JSON_REAL_PRECISION(6), "\n");
		return status;
	}
	print_verify_text(result);
	json_decref(result);
	return status;
}
