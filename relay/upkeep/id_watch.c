#include "id_watch.h"

#include <inttypes.h>
#include "logging.h"
#include "schema_query.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"
#include "upkeep_metrics.h"

void id_watch_init(struct id_watch *watch, const char *database, const char *schema)
{
	*watch = (struct id_watch){.database = database, .schema = schema, .last = -1};
	METRIC_LABELLED(upkeep_metrics()->id_raised, database);
	METRIC_LABELLED(upkeep_metrics()->id_unordered, database);
}

/* Columns of message_ids_raise.sql. */
enum { LAST_ID, KEPT_ID, INCREMENT, CACHE, RAISED_TO };

static void report_raise(const struct id_watch *watch, const struct pg_result *ids)
{
	metric_add(METRIC_LABELLED(upkeep_metrics()->id_raised, watch->database), 1);
	log_error("id_sequence_went_back", {"database", LOG_TEXT(watch->database)},
	    {"last_id", LOG_INT(pg_int(ids, 0, LAST_ID))},
	    {"highest_id", LOG_INT(pg_int(ids, 0, KEPT_ID))},
	    {"raised_to", LOG_INT(pg_int(ids, 0, RAISED_TO))},
	    {"consequence",
		LOG_TEXT("the sequence of message.id was reset (a restore, TRUNCATE … RESTART "
			 "IDENTITY, setval), and messages written since have ids that other "
			 "messages have or had; all of them are published, but those of a key may "
			 "be out of order; the sequence goes on behind raised_to")});
}

static void report_order(struct id_watch *watch, const struct pg_result *ids)
{
	int64_t increment = pg_int(ids, 0, INCREMENT), cache = pg_int(ids, 0, CACHE);
	/* With a cache each session draws ids ahead, so a later message may have a lower id. */
	bool unordered = cache > 1 || increment < 0;

	metric_set(METRIC_LABELLED(upkeep_metrics()->id_unordered, watch->database), unordered);
	if (unordered && !watch->unordered) {
		owned_text char *cure = xformat("alter sequence %s.message_id_seq increment by 1 "
						"cache 1; restart the writers",
		    watch->schema);
		log_error("id_sequence_unordered", {"database", LOG_TEXT(watch->database)},
		    {"cache", LOG_INT(cache)}, {"increment", LOG_INT(increment)},
		    {"consequence",
			LOG_TEXT("ids do not rise in the order of writing: all messages are "
				 "published, but those of a key may be out of order")},
		    {"cure", LOG_TEXT(cure)});
	} else if (!unordered && watch->unordered) {
		log_info("id_sequence_ordered", {"database", LOG_TEXT(watch->database)});
	}
	watch->unordered = unordered;
}

/*
 * Reading the sequence costs the server a tenth of the whole step, and less once it is prepared.
 * The doorbell sleeps, so no pooler is between, which could give the statement to another session.
 */
static bool read_id_sequence(
    struct id_watch *watch, struct pg *pg, int64_t *ret_last, struct err *err)
{
	static const char name[] = "outbox_ids";

	if (!watch->prepared) {
		owned_text char *sql = schema_text(sql_message_id_last, watch->schema);
		if (!pg_prepare(pg, name, sql, err))
			return false;
		watch->prepared = true;
	}
	OWNED(owned_pg_result_destroy)
	struct pg_result *last = pg_query_prepared(pg, name, NULL, 0, err);

	/* Unknown, for example without the privilege: never the same as before. */
	*ret_last = last && !pg_is_null(last, 0, 0) ? pg_int(last, 0, 0) : -1;
	return last != NULL;
}

void id_watch_reconnects(struct id_watch *watch)
{
	watch->prepared = false;
}

bool id_watch_step(struct id_watch *watch, struct pg *pg, bool rests, struct err *err)
{
	int64_t before = watch->last;
	if (rests && !read_id_sequence(watch, pg, &watch->last, err))
		return false;
	if (rests && watch->last >= 0 && watch->last == before)
		return true;

	/* The log's partitions are made in this thread: they must not wait for the message table.
	 */
	if (!pg_script(pg, "begin; set local lock_timeout = '500ms'", err))
		return false;
	owned_text char *highest = xformat("%" PRId64, watch->highest);
	const struct pg_param params[] = {{highest}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *ids =
	    schema_query(pg, watch->schema, sql_message_ids_raise, params, 1, err);

	if (!ids) /* lock_not_available: the next step sees what this one would have seen */
		return text_equal(pg_sqlstate(pg), "55P03") && pg_script(pg, "rollback", err);
	if (!pg_script(pg, "commit", err))
		return false;
	report_order(watch, ids);
	/* A sequence below this id at the next step has gone back. */
	watch->highest = pg_int(ids, 0, LAST_ID);
	if (!pg_is_null(ids, 0, RAISED_TO)) {
		report_raise(watch, ids);
		watch->highest = pg_int(ids, 0, RAISED_TO);
	}
	return true;
}
