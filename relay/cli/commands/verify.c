#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "clock.h"
#include "commands.h"
#include "moment.h"
#include "progress.h"
#include "session.h"
#include "verify_table.h"
#include "verify_topics.h"

#define MIB (INT64_C(1) << 20)

DEFINE_OWNED(struct verify_engine, verify_engine_destroy)
DEFINE_OWNED(struct verify_table, verify_table_close)
DEFINE_OWNED(struct verify_topics, verify_topics_destroy)

/* One call of the command: the table, the topics, and the engine that compares them. */
struct verification {
	const struct publisher_settings *publisher;
	struct verify_engine *engine;
	struct verify_table *table;
	struct verify_topics *topics;
	struct verify_range range;
	char from[MOMENT_SIZE], to[MOMENT_SIZE]; /* of the range; "": open */
	char place[128];                         /* of the database */
	double seconds;
};

/* --- records without a row ----------------------------------------------------------------- */

/* Records that are looked up again: their rows may have come while the table was read. */
struct second_look {
	const struct verify_unknown *records;
	int count;
	bool there[VERIFY_UNKNOWNS];   /* there is such a row */
	bool outside[VERIFY_UNKNOWNS]; /* and it is not in the range */
};

static void see_unknown(void *context, const struct verify_found_row *row)
{
	struct second_look *look = context;

	for (int i = 0; i < look->count; i++)
		if (look->records[i].id == row->id && look->records[i].event == row->event) {
			look->there[i] = true;
			look->outside[i] = !row->in_range;
		}
}

static void judge_unknown(
    struct verification *verification, const struct verify_unknown *record, bool there)
{
	struct verify_verdict *verdict = verify_engine_verdict(verification->engine);

	if (there)
		verdict->newer++;
	else if (!verify_table_keeps(verification->table, record->id, record->timestamp_ms))
		verdict->older++;
	else
		verify_engine_found(verification->engine, VERIFY_PHANTOM,
		    "id %" PRId64 " in %s [%d] at %" PRId64, record->id, record->topic,
		    record->partition, record->offset);
}

static bool settle_unknown(
    void *context, const struct verify_unknown *records, int count, struct err *err)
{
	struct verification *verification = context;
	struct second_look look = {.records = records, .count = count};
	int64_t ids[VERIFY_UNKNOWNS];

	for (int i = 0; i < count; i++)
		ids[i] = records[i].id;
	if (count > 0 &&
	    !verify_table_find(verification->table, ids, count, see_unknown, &look, err))
		return false;
	for (int i = 0; i < count; i++)
		if (!look.outside[i])
			judge_unknown(verification, &records[i], look.there[i]);
	return true;
}

/* --- rows without a record ----------------------------------------------------------------- */

/* A row that is no longer found was dropped with its partition: it is not judged. */
static void see_missing(void *context, const struct verify_found_row *row)
{
	struct verification *verification = context;

	if (row->skipped)
		verify_engine_verdict(verification->engine)->skipped++;
	else if (verify_topics_expired(verification->topics, row->topic, (size_t)row->topic_length,
		     row->key, (size_t)row->key_length, row->partition, row->id))
		verify_engine_verdict(verification->engine)->expired++;
	else
		verify_engine_found(verification->engine, VERIFY_LOST, "id %" PRId64 " for %.*s",
		    row->id, row->topic_length, row->topic);
}

static bool settle_missing(struct verification *verification, struct err *err)
{
	enum { AT_ONCE = 1000 };
	int64_t ids[AT_ONCE], cursor = 0;
	int count;

	do {
		count = 0;
		while (count < AT_ONCE &&
		       verify_engine_missing(verification->engine, &cursor, &ids[count]))
			count++;
		if (count > 0 && !verify_table_find(verification->table, ids, count, see_missing,
				     verification, err))
			return false;
	} while (count == AT_ONCE);
	return true;
}

/* Records of missing rows may be behind the part of the topics that was read. */
static bool judge_round(struct verification *verification, struct err *err)
{
	struct verify_engine *engine = verification->engine;

	return verify_topics_read(
		   verification->topics, engine, settle_unknown, verification, err) &&
	       (!verify_engine_is_missing(engine) ||
		   verify_topics_read_on(
		       verification->topics, engine, settle_unknown, verification, err)) &&
	       settle_missing(verification, err);
}

/*
 * The ends of the topics are taken after the rows were read, so they include each row that the log
 * calls published.
 */
static bool verify_in_rounds(struct verification *verification, struct err *err)
{
	int64_t began = clock_us(), after = INT64_MIN;
	bool last = false;

	if (!verify_table_topics(verification->table, verify_topics_add, verification->topics, err))
		return false;
	while (!last)
		if (!verify_table_read(verification->table, verification->engine, after,
			verify_topics_add, verification->topics, &after, &last, err) ||
		    !judge_round(verification, err))
			return false;
	verification->seconds = (double)(clock_us() - began) / 1e6;
	return true;
}

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
	if (verdict->expired)
		print_verify_count("not judged", verdict->expired,
		    "rows: Kafka has deleted what stood there by retention or compaction");
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

static void print_verify_text(const struct verification *verification, bool clean)
{
	const struct verify_verdict *verdict = verify_engine_verdict(verification->engine);
	struct verify_topics_figures figures = verify_topics_figures(verification->topics);
	bool missing;
	const char *name;

	printf("publisher %s: %s against %d topic%s, %" PRId64 " records, in %.1f s\n",
	    verification->publisher->name, verification->place, figures.topics,
	    figures.topics == 1 ? "" : "s", figures.records, verification->seconds);
	if (verification->from[0] || verification->to[0])
		printf("  rows created%s%s%s%s\n", verification->from[0] ? " from " : "",
		    verification->from, verification->to[0] ? " up to " : "", verification->to);
	print_verify_count("committed", verdict->committed, "");
	print_verify_count("published", verdict->published, "");
	for (int kind = 0; kind < VERIFY_KINDS; kind++) {
		print_verify_count(verify_kinds[kind].title, verdict->found[kind], "");
		print_samples(verdict, kind);
	}
	print_unjudged(verdict);
	for (int i = 0; (name = verify_topics_name(verification->topics, i, &missing)); i++)
		if (missing)
			printf("  topic %s does not exist\n", name);
	puts(clean ? "clean" : "NOT CLEAN");
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

static void print_verify_json(const struct verification *verification, bool clean)
{
	const struct verify_verdict *verdict = verify_engine_verdict(verification->engine);
	struct verify_topics_figures figures = verify_topics_figures(verification->topics);
	json_t *object = json_pack("{ss, ss?, ss?, sb, sI, sI, sI, sI, sI, sI, sI, sI}",
	    "publisher", verification->publisher->name, "from",
	    verification->from[0] ? verification->from : NULL, "to",
	    verification->to[0] ? verification->to : NULL, "clean", clean, "committed",
	    (json_int_t)verdict->committed, "acknowledged", (json_int_t)verdict->acknowledged,
	    "published", (json_int_t)verdict->published, "pending", (json_int_t)verdict->pending,
	    "parked", (json_int_t)verdict->parked, "scheduled", (json_int_t)verdict->scheduled,
	    "skipped", (json_int_t)verdict->skipped, "before_start", (json_int_t)verdict->before);

	for (int kind = 0; kind < VERIFY_KINDS; kind++)
		json_object_set_new(
		    object, verify_kinds[kind].name, json_integer(verdict->found[kind]));
	json_object_set_new(object, "not_judged",
	    json_pack("{sI, sI, sI, sI}", "expired_rows", (json_int_t)verdict->expired,
		"older_records", (json_int_t)verdict->older, "newer_records",
		(json_int_t)verdict->newer, "sequences", (json_int_t)verdict->sequences_unjudged));
	json_object_set_new(object, "records", json_integer(figures.records));
	json_object_set_new(object, "records_of_others", json_integer(figures.others));
	json_object_set_new(object, "topics", topics_json(verification->topics, false));
	json_object_set_new(object, "missing_topics", topics_json(verification->topics, true));
	json_object_set_new(object, "samples", samples_json(verdict));
	json_object_set_new(object, "seconds", json_real(verification->seconds));
	json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(object);
}

/* --- the command --------------------------------------------------------------------------- */

static bool read_range(const struct call *call, struct verification *verification, struct err *err)
{
	return session_range(call, &verification->range.from_us, &verification->range.to_us,
	    verification->from, verification->to, err);
}

static int run_verify(const struct call *call)
{
	struct verification verification = {0};
	struct progress progress;
	struct progress_watch watch = progress_watch(&progress);
	struct err err;
	OWNED(owned_config_destroy)
	struct config *config =
	    read_range(call, &verification, &err) ? session_config(call, &err) : NULL;
	const struct publisher_settings *publisher =
	    config ? session_publisher(call, config, &err) : NULL;
	OWNED(owned_pg_destroy)
	struct pg *pg = publisher ? database_connect(publisher->postgres, &err) : NULL;
	OWNED(owned_verify_table_close)
	struct verify_table *table = pg ? verify_table_open(pg, publisher->postgres, publisher,
					      &verification.range, &watch, &err)
					: NULL;
	OWNED(owned_verify_engine_destroy)
	struct verify_engine *engine = verify_engine_create(call_number(call, "memory", 256) * MIB);
	OWNED(owned_verify_topics_destroy)
	struct verify_topics *topics =
	    table ? verify_topics_create(publisher, verify_table_identity(table),
			call_text(call, "sequence", NULL), &verification.range, &watch)
		  : NULL;
	bool clean;

	verification.publisher = publisher;
	verification.engine = engine;
	verification.table = table;
	verification.topics = topics;
	if (!table || !verify_in_rounds(&verification, &err))
		return session_failed(&err);
	text_copy(verification.place, sizeof verification.place, pg_place(pg));
	clean = verify_is_clean(verify_engine_verdict(engine), call_flag(call, "no-duplicates"));
	if (call_flag(call, "json"))
		print_verify_json(&verification, clean);
	else
		print_verify_text(&verification, clean);
	return clean ? 0 : EXIT_FOUND;
}

static const struct command_option verify_options[] = {
    {"publisher", "NAME",
	"The publisher to judge; the only one of the configuration, or \"main\"."},
    {"from", "TIME",
	"Only rows created then or later, as 2026-01-02T03:04:05Z (RFC 3339; without a zone: "
	"UTC)."},
    {"to", "TIME", "Only rows created before."},
    {"sequence", "FIELD",
	"A field of JSON payloads that counts up with each message of a key: order is judged by it "
	"as well."},
    {"no-duplicates", NULL, "A duplicate is a failure, too."},
    {"memory", "MIB",
	"What rows may take, 32 bytes each; 256 unless given (8 million rows). A larger table is "
	"judged in rounds, each of which reads the topics again.",
	1, 65536},
    {"json", NULL, "One JSON object."},
    {0},
};

const struct command command_verify = {
    .name = "verify",
    .arguments = "",
    .summary = "Compares the table with the topics: what is lost, too much, or out of order.",
    .description =
	"Reads every row of the message table and every record of its topics (read_committed), "
	"while "
	"the relay and the writers go on, and judges:\n"
	"committed, published: rows of the table, and those of them that stand in a topic;\n"
	"lost: the publisher's log calls them published, and no record is there;\n"
	"phantom: a record of this publisher, and no row, though its partition is still there;\n"
	"altered: topic, key, value or headers are not the row's;\n"
	"out of order: a first occurrence behind a later message of its key, by position;\n"
	"duplicates: records beyond the first of their row (allowed: at least once), and those of "
	"them "
	"that are not equal to the first.\n"
	"Records without this publisher's header `outbox-position`, which names the publisher and "
	"its "
	"identity in this database, are not looked at. Rows whose records were removed by Kafka's "
	"retention or compaction, and records whose rows were removed by the table's retention, "
	"are "
	"counted as not judged. Rows that the publisher has not come to, that are parked, "
	"scheduled or "
	"were skipped by "
	"an "
	"operator, or that lie before the publisher's start, are counted and are no finding; nor "
	"are "
	"rows that were published before the publisher got the identity that it has (`publisher "
	"rebase "
	"--new-identity`), nor "
	"what commits while it reads.\n"
	"With --from or --to, records are read from 10 minutes before the range (by their "
	"timestamps) to 10 minutes after it, and further only when a row is still missed. So a "
	"duplicate that came later may not be seen. A record without a row belongs to the range "
	"by its timestamp.\n"
	"Memory: 32 bytes for each row of a round (--memory), 32 for each key with --sequence up "
	"to 2 million keys, and 64 MiB at most for the program itself and what its clients of "
	"Postgres and Kafka keep of topics with up to 12 partitions; 4 MiB for each further one.\n"
	"The exit status is 0 when all is well and 1 when something was found; any other says that "
	"nothing could be said.\n",
    .options = verify_options,
    .run = run_verify,
};
