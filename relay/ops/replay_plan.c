/* The plan of a replay: the SQL that selects its rows, and their count before it begins. */
#include <inttypes.h>
#include <string.h>
#include "replay_row.h"
#include "schema_text.h"
#include "script.h"
#include "database.h"
#include "sql_files.h"

#define NO_UUID "00000000-0000-0000-0000-000000000000"

void replay_plan_finish(struct replay_plan *plan)
{
	for (int i = 0; i < plan->count; i++)
		free(plan->topics[i].name);
	free(plan->topics);
	*plan = (struct replay_plan){0};
}

static struct pg_result *query_for_plan(const struct replay *replay, struct pg *pg, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	return database_query(pg, replay->publisher->postgres, sql, params, count, err);
}

/* --- texts of SQL with literals in them ------------------------------------------------------ */

static const char *or_any(const char *value, const char *any)
{
	return value ? value : any;
}

static char *fill_replay_script(
    const struct replay *replay, const char *sql, int64_t from_id, int64_t to_id, int64_t rows)
{
	const struct replay_filter *filter = &replay->filter;
	owned_text char *text = schema_text(sql, replay->publisher->postgres->schema);
	owned_text char *id = xformat("%" PRId64, replay->id);
	owned_text char *nonce = xformat("%" PRId64, replay->nonce);
	owned_text char *from = xformat("%" PRId64, from_id);
	owned_text char *to = xformat("%" PRId64, to_id);
	owned_text char *limit = xformat("%" PRId64, rows);
	const struct script_place places[] = {
	    {"replay", id},
	    {"nonce", nonce},
	    {"snapshot", or_any(replay->snapshot, "")},
	    {"rows", limit},
	    {"from_id", from},
	    {"to_id", to},
	    {"from_at", filter->from_at},
	    {"to_at", filter->to_at},
	    {"any_topic", filter->terms[REPLAY_TOPIC] ? "f" : "t"},
	    {"topic", or_any(filter->terms[REPLAY_TOPIC], "")},
	    {"any_key", filter->terms[REPLAY_KEY] ? "f" : "t"},
	    {"key", or_any(filter->terms[REPLAY_KEY], "")},
	    {"any_event", filter->terms[REPLAY_EVENT_ID] ? "f" : "t"},
	    {"event", or_any(filter->terms[REPLAY_EVENT_ID], NO_UUID)},
	    {"any_state", replay->acked ? "f" : "t"},
	    {"shards", or_any(replay->shards, "1")},
	    {"acked", or_any(replay->acked, "{}")},
	    {"windows", or_any(replay->windows, "{}")},
	    {"counted", or_any(replay->acked_ids, "{}")},
	    {0},
	};

	return script_fill(text, places);
}

char *replay_page_script(const struct replay *replay, int64_t after, int64_t rows)
{
	return fill_replay_script(replay, sql_replay_page, after + 1, replay->upto_id, rows);
}

/* --- before it begins ------------------------------------------------------------------------ */

/* Reads which rows the publisher has published so far. */
static bool read_published(struct replay *replay, struct pg *pg, struct err *err)
{
	const struct pg_param params[] = {{replay->publisher->name}};
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;

	/* without state=published no log is needed, and the publisher may have none yet */
	if (!replay->filter.terms[REPLAY_STATE])
		return true;
	row = query_for_plan(replay, pg, sql_verify_publisher, params, 1, err);
	if (!row)
		return false;
	if (pg_rows(row) == 0)
		return err_set(err, ERR_REJECT,
		    "state=published: there is no publisher %s in %s; see `outbox-relay publisher "
		    "list`",
		    replay->publisher->name, pg_place(pg));
	replay->shards = xstrdup(pg_value(row, 0, 0));
	replay->acked = xstrdup(pg_value(row, 0, 1));
	replay->windows = xstrdup(pg_value(row, 0, 2));
	replay->acked_ids = xstrdup(pg_value(row, 0, 3));
	return true;
}

static void add_planned_topic(
    struct replay *replay, struct replay_plan *plan, const struct pg_result *rows, int i)
{
	int64_t low = pg_int(rows, i, 2), high = pg_int(rows, i, 3);

	plan->topics[plan->count++] = (struct replay_topic){
	    .name = xstrdup(pg_value(rows, i, 0)),
	    .rows = pg_int(rows, i, 1),
	    .partition = (int32_t)pg_int(rows, i, 4),
	    .oldest_ms = pg_int(rows, i, 5),
	};
	plan->low_id = i == 0 || low < plan->low_id ? low : plan->low_id;
	plan->now_ms = pg_int(rows, i, 6);
	replay->upto_id = high > replay->upto_id ? high : replay->upto_id;
	replay->total += pg_int(rows, i, 1);
}

static bool count_planned_rows(
    struct replay *replay, struct pg *pg, struct replay_plan *plan, struct err *err)
{
	const struct replay_filter *filter = &replay->filter;
	owned_text char *sql =
	    fill_replay_script(replay, sql_replay_count, filter->from_id, filter->to_id, 0);
	OWNED(owned_pg_result_destroy) struct pg_result *rows = pg_query(pg, sql, NULL, 0, err);

	if (!rows)
		return false;
	plan->topics = xcalloc((size_t)pg_rows(rows), sizeof *plan->topics);
	for (int i = 0; i < pg_rows(rows); i++)
		add_planned_topic(replay, plan, rows, i);

	/* the pages use the same snapshot, so rows that commit later are not sent */
	if (pg_rows(rows) > 0)
		replay->snapshot = xstrdup(pg_value(rows, 0, 7));
	return true;
}

static bool count_gone(
    struct replay *replay, struct pg *pg, struct replay_plan *plan, struct err *err)
{
	const struct replay_filter *filter = &replay->filter;
	owned_text char *from = xformat("%" PRId64, filter->from_id);
	owned_text char *to = xformat("%" PRId64, filter->to_id);
	const struct pg_param params[] = {{from}, {to}};
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;

	plan->gone = -1;
	/* only a range of ids can have holes that mean something */
	if (!filter->terms[REPLAY_IDS])
		return true;
	row = query_for_plan(replay, pg, sql_replay_gone, params, 2, err);
	if (row)
		plan->gone = pg_rows(row) > 0 ? pg_int(row, 0, 0) : 0;
	return row != NULL;
}

/* The error names the topic that no row has: it is most likely misspelt. */
static bool nothing_found(struct replay *replay, struct pg *pg, int64_t gone, struct err *err)
{
	const char *topic = replay->filter.terms[REPLAY_TOPIC];
	const struct pg_param params[] = {{topic}};
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;

	if (topic && !(row = query_for_plan(replay, pg, sql_replay_topic, params, 1, err)))
		return false;
	if (row && pg_rows(row) == 0)
		return err_set(err, ERR_REJECT,
		    "topic=%s: no row in %s has this topic; is it spelt as the application does?",
		    topic, pg_place(pg));
	if (gone > 0)
		return err_set(err, ERR_REJECT,
		    "no row in %s matches; %" PRId64 " id%s of ids=%s without a row: a partition "
		    "was dropped, or a transaction rolled back",
		    pg_place(pg), gone, text_plural(gone), replay->filter.terms[REPLAY_IDS]);
	return err_set(err, ERR_REJECT,
	    "no row in %s matches, or its partition was dropped: take a term away, or widen its "
	    "range",
	    pg_place(pg));
}

static bool plan_rows(
    struct replay *replay, struct pg *pg, struct replay_plan *plan, struct err *err)
{
	owned_text char *begin = schema_text(sql_replay_begin, replay->publisher->postgres->schema);
	struct err ignored;
	bool good = pg_script(pg, begin, err) && read_published(replay, pg, err) &&
		    count_planned_rows(replay, pg, plan, err) &&
		    count_gone(replay, pg, plan, err) &&
		    (plan->count > 0 || nothing_found(replay, pg, plan->gone, err));

	/* a lost connection ends the transaction as well */
	return pg_script(pg, sql_replay_end, good ? err : &ignored) && good;
}

bool replay_plan_make(
    struct replay *replay, struct pg *pg, struct replay_plan *ret_plan, struct err *err)
{
	*ret_plan = (struct replay_plan){.gone = -1};
	return plan_rows(replay, pg, ret_plan, err);
}
