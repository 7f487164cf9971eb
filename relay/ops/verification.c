#include "verification.h"

#include <inttypes.h>
#include <stdlib.h>

struct verification {
	const struct publisher_settings *publisher;
	struct verify_engine *engine;
	struct verify_table *table;
	struct verify_topics *topics;
};

struct verification *verification_open(
    struct pg *pg, const struct verification_settings *settings, struct err *err)
{
	const struct publisher_settings *publisher = settings->publisher;
	struct verification *verification = xcalloc(1, sizeof *verification);

	verification->publisher = publisher;
	verification->table = verify_table_open(
	    pg, publisher->postgres, publisher, &settings->range, &settings->watch, err);
	if (!verification->table) {
		free(verification);
		return NULL;
	}
	verification->engine = verify_engine_create(settings->memory);
	verification->topics =
	    verify_topics_create(publisher, verify_table_identity(verification->table),
		settings->sequence, &settings->range, &settings->watch);
	return verification;
}

void verification_close(struct verification *verification)
{
	if (!verification)
		return;
	verify_topics_destroy(verification->topics);
	verify_engine_destroy(verification->engine);
	verify_table_close(verification->table);
	free(verification);
}

const struct publisher_settings *verification_publisher(const struct verification *verification)
{
	return verification->publisher;
}

const struct verify_verdict *verification_verdict(const struct verification *verification)
{
	return verify_engine_verdict(verification->engine);
}

const struct verify_topics *verification_topics(const struct verification *verification)
{
	return verification->topics;
}

/* --- records without a row ----------------------------------------------------------------- */

/* Records that are looked up again: their rows may have been written while the table was read. */
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
		/* the row exists and was not to be verified: its record belongs to another range */
		if (!look.outside[i])
			judge_unknown(verification, &records[i], look.there[i]);
	return true;
}

/* --- rows without a record ----------------------------------------------------------------- */

/* A row that is no longer found was dropped with its partition, and is not judged. */
static void see_missing(void *context, const struct verify_found_row *row)
{
	struct verification *verification = context;

	/* rows that share an id are found together: some of them may have their records */
	if (!verify_engine_take_missing(verification->engine, row->id, row->event))
		return;

	/* the reasons that explain a missing record come first; only a row without one is lost */
	if (row->skipped)
		verify_engine_verdict(verification->engine)->skipped++;
	else if (verify_topics_unmarked(
		     verification->topics, row->topic, (size_t)row->topic_length))
		verify_engine_verdict(verification->engine)->unmarked++;
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
bool verification_run(struct verification *verification, struct err *err)
{
	int64_t after = INT64_MIN;
	bool last = false;

	/* topics of the log are read too: a phantom may be in a topic that no row names now */
	if (!verify_table_topics(verification->table, verify_topics_add, verification->topics, err))
		return false;
	while (!last)
		if (!verify_table_read(verification->table, verification->engine, after,
			verify_topics_add, verification->topics, &after, &last, err) ||
		    !judge_round(verification, err))
			return false;
	return true;
}
