/*
 * `verify`: prints the progress and the verdict of relay/ops/verification.h, and turns the verdict
 * into the exit status. Begin at run_verify.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "clock.h"
#include "commands.h"
#include "field.h"
#include "moment.h"
#include "progress.h"
#include "session.h"
#include "verification.h"

#define MIB (INT64_C(1) << 20)

DEFINE_OWNED(struct verification, verification_close)

/* The printed result. */
struct outcome {
	const struct publisher_settings *publisher;
	const struct verify_verdict *verdict;
	const struct verify_topics *topics;
	const char *place;                       /* of the database */
	char from[MOMENT_SIZE], to[MOMENT_SIZE]; /* of the range; "": open */
	double seconds;
	bool clean;
};

/* --- output -------------------------------------------------------------------------------- */

static void print_verify_count(const char *title, int64_t count, const char *remark)
{
	printf("  %-20s %12" PRId64 "%s%s\n", title, count, remark[0] ? "  " : "", remark);
}

static void print_unjudged(const struct verify_verdict *verdict)
{
	if (verdict->pending)
		print_verify_count("pending", verdict->pending, "committed, not published yet");
	if (verdict->parked)
		print_verify_count("parked", verdict->parked,
		    "refused by Kafka, or behind one that is; see `outbox-relay parked list`");
	if (verdict->scheduled)
		print_verify_count("scheduled", verdict->scheduled, "for a time that has not come");
	if (verdict->skipped)
		print_verify_count("skipped", verdict->skipped, "by an operator: `parked skip`");
	if (verdict->before)
		print_verify_count(
		    "before the start", verdict->before, "of the publisher, or of its identity");

	/* not judged: the other side is gone, came later, or does not name its row */
	if (verdict->expired)
		print_verify_count("not judged", verdict->expired,
		    "rows: Kafka has deleted their records by retention or compaction");
	if (verdict->unmarked)
		print_verify_count("not judged", verdict->unmarked,
		    "rows: their topics have headers = none, and records do not name their rows");
	if (verdict->older)
		print_verify_count(
		    "not judged", verdict->older, "records: their partition of the table is gone");
	if (verdict->newer)
		print_verify_count("not judged", verdict->newer,
		    "records: their rows came while the table was read");
	if (verdict->sequences_unjudged)
		print_verify_count("not judged", verdict->sequences_unjudged,
		    "sequences: more than 2 million keys");
}

static void print_samples(const struct verify_verdict *verdict, enum verify_kind kind)
{
	for (int i = 0; i < VERIFY_SAMPLES && verdict->samples[kind][i]; i++)
		printf("      %s\n", verdict->samples[kind][i]);
	if (verdict->found[kind] > VERIFY_SAMPLES)
		puts("      …");
}

static void print_verify_text(const struct outcome *outcome)
{
	const struct verify_verdict *verdict = outcome->verdict;
	struct verify_topics_figures figures = verify_topics_figures(outcome->topics);
	bool missing;
	const char *name;

	printf("publisher %s: %s against %d topic%s, %" PRId64 " records, in %.1f s\n",
	    outcome->publisher->name, outcome->place, figures.topics,
	    figures.topics == 1 ? "" : "s", figures.records, outcome->seconds);
	if (outcome->from[0] || outcome->to[0])
		printf("  rows created%s%s%s%s\n", outcome->from[0] ? " from " : "", outcome->from,
		    outcome->to[0] ? " up to " : "", outcome->to);
	print_verify_count("committed", verdict->committed, "");
	print_verify_count("published", verdict->published, "");
	for (int kind = 0; kind < VERIFY_KINDS; kind++) {
		print_verify_count(verify_kinds[kind].title, verdict->found[kind], "");
		print_samples(verdict, kind);
	}
	print_unjudged(verdict);
	for (int i = 0; (name = verify_topics_name(outcome->topics, i, &missing)); i++)
		if (missing)
			printf("  topic %s does not exist\n", name);
	puts(outcome->clean ? "clean" : "NOT CLEAN");
}

static json_t *samples_json(const struct verify_verdict *verdict)
{
	json_t *object = json_object();

	for (int kind = 0; kind < VERIFY_KINDS; kind++) {
		json_t *list = json_array();

		for (int i = 0; i < VERIFY_SAMPLES && verdict->samples[kind][i]; i++)
			json_array_append_new(list, json_string(verdict->samples[kind][i]));
		json_object_set_new(object, verify_kinds[kind].name, list);
	}
	return object;
}

static json_t *topics_json(const struct verify_topics *topics, bool wants_missing)
{
	json_t *list = json_array();
	const char *name;
	bool missing;

	for (int i = 0; (name = verify_topics_name(topics, i, &missing)); i++)
		if (missing == wants_missing)
			json_array_append_new(list, json_string(name));
	return list;
}

static void print_verify_json(const struct outcome *outcome)
{
	const struct verify_verdict *verdict = outcome->verdict;
	struct verify_topics_figures figures = verify_topics_figures(outcome->topics);
	json_t *object = json_pack("{ss, ss?, ss?, sb, sI, sI, sI, sI, sI, sI, sI, sI}",
	    "publisher", outcome->publisher->name, "from", outcome->from[0] ? outcome->from : NULL,
	    "to", outcome->to[0] ? outcome->to : NULL, "clean", outcome->clean, "committed",
	    (json_int_t)verdict->committed, "acknowledged", (json_int_t)verdict->acknowledged,
	    "published", (json_int_t)verdict->published, "pending", (json_int_t)verdict->pending,
	    "parked", (json_int_t)verdict->parked, "scheduled", (json_int_t)verdict->scheduled,
	    "skipped", (json_int_t)verdict->skipped, "before_start", (json_int_t)verdict->before);

	for (int kind = 0; kind < VERIFY_KINDS; kind++)
		json_object_set_new(
		    object, verify_kinds[kind].name, json_integer(verdict->found[kind]));
	json_object_set_new(object, "not_judged",
	    json_pack("{sI, sI, sI, sI, sI}", "expired_rows", (json_int_t)verdict->expired,
		"rows_without_headers", (json_int_t)verdict->unmarked, "older_records",
		(json_int_t)verdict->older, "newer_records", (json_int_t)verdict->newer,
		"sequences", (json_int_t)verdict->sequences_unjudged));
	json_object_set_new(object, "records", json_integer(figures.records));
	json_object_set_new(object, "records_of_others", json_integer(figures.others));
	json_object_set_new(object, "topics", topics_json(outcome->topics, false));
	json_object_set_new(object, "missing_topics", topics_json(outcome->topics, true));
	json_object_set_new(object, "samples", samples_json(verdict));
	json_object_set_new(object, "seconds", json_real(outcome->seconds));
	field_print_json("", object, JSON_COMPACT | JSON_REAL_PRECISION(6), "\n");
}

/* --- the command --------------------------------------------------------------------------- */

static int run_verify(const struct call *call)
{
	struct outcome outcome = {0};
	struct progress progress;
	struct verification_settings settings = {.sequence = call_text(call, "sequence", NULL),
	    .memory = call_number(call, "memory", 256) * MIB,
	    .watch = progress_watch(&progress)};
	int64_t began;
	struct err err;
	OWNED(owned_config_destroy)
	struct config *config = session_range(call, &settings.range.from_us, &settings.range.to_us,
				    outcome.from, outcome.to, &err)
				    ? session_config(call, &err)
				    : NULL;

	settings.publisher = config ? session_publisher(call, config, &err) : NULL;
	OWNED(owned_pg_destroy)
	struct pg *pg =
	    settings.publisher ? database_connect(settings.publisher->postgres, &err) : NULL;
	OWNED(owned_verification_close)
	struct verification *verification = pg ? verification_open(pg, &settings, &err) : NULL;

	began = clock_us();
	if (!verification || !verification_run(verification, &err))
		return session_failed(&err);
	outcome.seconds = (double)(clock_us() - began) / 1e6;
	outcome.publisher = settings.publisher;
	outcome.verdict = verification_verdict(verification);
	outcome.topics = verification_topics(verification);
	outcome.place = pg_place(pg);
	outcome.clean = verify_is_clean(outcome.verdict, call_flag(call, "no-duplicates"));
	if (call_flag(call, "json"))
		print_verify_json(&outcome);
	else
		print_verify_text(&outcome);
	return outcome.clean ? 0 : EXIT_FOUND;
}

static const struct command_option verify_options[] = {
    {"publisher", "NAME",
	"The publisher to check (default: the only one of the configuration, else \"main\")."},
    {"from", "TIME",
	"Checks only rows created at this time or later, such as 2026-01-02T03:04:05Z (RFC 3339; "
	"UTC if it has no zone)."},
    {"to", "TIME", "Checks only rows created before this time."},
    {"sequence", "FIELD",
	"A field of JSON payloads that grows with each message of a key: order is checked by it "
	"as well."},
    {"no-duplicates", NULL, "Treats a duplicate as a failure."},
    {"memory", "MIB",
	"Memory for rows, 32 bytes each (default 256, enough for 8 million rows). A larger table "
	"is checked in rounds, each of which reads the topics again.",
	1, 65536},
    {"json", NULL, "Prints one JSON object."},
    {0},
};

const struct command command_verify = {
    .name = "verify",
    .arguments = "",
    .summary = "Finds messages that were lost, repeated or published out of order.",
    .description =
	"Reads every row of the message table and every record of its topics (read_committed), "
	"while the relay and the writers keep running, and reports:\n"
	"committed: rows of the table; published: committed rows that a topic contains;\n"
	"lost: rows that the publisher's log calls published, but that have no record;\n"
	"phantom: records of this publisher without a row, although the row's partition still "
	"exists;\n"
	"altered: records whose topic, key, value or headers differ from the row;\n"
	"out of order: a first occurrence behind a later message of the same key, by position;\n"
	"duplicates: further records of a row (allowed by at-least-once delivery), and how many "
	"of them differ from the first.\n"
	"The command ignores records without this publisher's header `outbox-position`, which "
	"names the publisher and its identity in this database. It counts as not judged: rows "
	"whose records Kafka's retention or compaction removed, rows of topics with `headers = "
	"none`, and records whose rows the table's retention removed. It counts without a "
	"finding: rows that the publisher has not reached yet, rows that are parked, scheduled, "
	"or were skipped by an operator, rows before the publisher's start, rows published "
	"before the publisher got its present identity (`publisher rebase --new-identity`), and "
	"rows that commit while the command reads.\n"
	"With --from or --to the command reads the records from 10 minutes before the range (by "
	"their timestamps) to 10 minutes after it, and reads on only if a row's record is still "
	"missing. So it may not see a duplicate that came later. The timestamp decides whether a "
	"record without a row belongs to the range.\n"
	"Memory: 32 bytes for each row of a round (--memory), and with --sequence 32 bytes for "
	"each of up to 2 million keys. The program and its Postgres and Kafka clients need at "
	"most 64 MiB more for topics of up to 12 partitions, and 4 MiB for each further "
	"partition.\n"
	"The exit status is 0 if nothing was found and 1 if something was found; any other "
	"status means that the check could not be made.\n",
    .options = verify_options,
    .example = "outbox-relay verify --from 2026-01-02 --to 2026-01-03",
    .no_server = "it reads the whole table and all its topics, which takes longer than a request "
		 "may; call it with the configuration of the relay",
    .run = run_verify,
};
