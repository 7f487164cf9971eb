#include "replay_row.h"

#include <inttypes.h>
#include "clock.h"
#include "database.h"
#include "job_owner.h"
#include "sql_files.h"

void replay_init(struct replay *replay, const struct publisher_settings *publisher)
{
	*replay = (struct replay){.publisher = publisher};
	replay_filter_init(&replay->filter);
}

void replay_finish(struct replay *replay)
{
	replay_filter_finish(&replay->filter);
	free(replay->target);
	free(replay->snapshot);
	free(replay->shards);
	free(replay->acked);
	free(replay->windows);
	free(replay->acked_ids);
	replay_init(replay, NULL);
}

static struct pg_result *query_replay(const struct replay *replay, struct pg *pg, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	return database_query(pg, replay->publisher->postgres, sql, params, count, err);
}

bool replay_create(struct replay *replay, struct pg *pg, int64_t low_id, const char *reason,
    const char *caller, struct err *err)
{
	owned_text char *filter = replay_filter_json(&replay->filter);
	owned_text char *rate = replay->rate ? xformat("%" PRId64, replay->rate) : NULL;
	owned_text char *low = xformat("%" PRId64, low_id);
	owned_text char *high = xformat("%" PRId64, replay->upto_id);
	owned_text char *total = xformat("%" PRId64, replay->total);
	owned_text char *nonce = xformat("%" PRId64, replay->nonce = clock_random());
	owned_text char *owner = replay->by_relay ? xstrdup("") : job_owner_name();
	owned_text char *lease =
	    xformat("%" PRId64, replay->by_relay ? 0 : replay->publisher->lease_ms);
	const struct pg_param params[] = {{reason}, {replay->publisher->name}, {filter},
	    {replay->target}, {rate}, {replay->snapshot}, {replay->shards}, {replay->acked},
	    {replay->windows}, {replay->acked_ids}, {low}, {high}, {total}, {nonce}, {owner},
	    {lease}, {caller}, {replay->by_relay ? "t" : "f"}};
	int64_t now = clock_ms();
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = query_replay(replay, pg, sql_replay_create, params, 18, err);

	if (!row)
		return false;
	replay->id = pg_int(row, 0, 0);
	/* nothing is acknowledged yet: the first page begins with the smallest row */
	replay->last_id = low_id - 1;
	replay->noted_ms = now;
	return true;
}

static char *copy_column(const struct pg_result *row, int column)
{
	return pg_is_null(row, 0, column) ? NULL : xstrdup(pg_value(row, 0, column));
}

static bool find_publisher(
    struct replay *replay, const struct config *config, const char *name, struct err *err)
{
	const struct config_publisher *publisher = config_find_publisher(config, name);

	/* without the publisher its headers, timestamps and limits are unknown */
	if (!publisher || publisher->settings.postgres != replay->publisher->postgres)
		return err_set(err, ERR_CONFIG,
		    "replay %" PRId64
		    " goes by the settings of publisher %s, and the configuration "
		    "has no [publisher \"%s\"] in this database: declare it",
		    replay->id, name, name);
	replay->publisher = &publisher->settings;
	return true;
}

static bool read_replay_row(
    struct replay *replay, struct pg *pg, const struct config *config, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, replay->id);
	const struct pg_param params[] = {{id}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = query_replay(replay, pg, sql_replay_find, params, 1, err);

	if (!row)
		return false;
	if (pg_rows(row) == 0)
		return err_set(err, ERR_REJECT,
		    "there is no replay %s in %s; `outbox-relay replay --list` shows them", id,
		    pg_place(pg));
	replay->target = copy_column(row, 2);
	/* a rate of this call comes before the one that was noted */
	replay->rate = replay->rate ? replay->rate : pg_int(row, 0, 3);
	replay->snapshot = copy_column(row, 4);
	replay->shards = copy_column(row, 5);
	replay->acked = copy_column(row, 6);
	replay->windows = copy_column(row, 7);
	replay->acked_ids = copy_column(row, 8);
	replay->upto_id = pg_int(row, 0, 9);
	replay->last_id = pg_int(row, 0, 10);
	replay->total = pg_int(row, 0, 11);
	replay->done = pg_int(row, 0, 12);
	return find_publisher(replay, config, pg_value(row, 0, 0), err) &&
	       replay_filter_from_json(&replay->filter, pg_value(row, 0, 1), err);
}

static bool judge_taken(const struct replay *replay, const struct pg_result *row, struct err *err)
{
	const char *outcome = pg_value(row, 0, 0);

	if (text_equal(outcome, "taken"))
		return true;
	if (text_equal(outcome, "held"))
		return err_set(err, ERR_FENCED,
		    "replay %" PRId64 " is run by %s; if that process has died, it is free in "
		    "%" PRId64 " ms",
		    replay->id, pg_value(row, 0, 1), pg_int(row, 0, 2));
	if (text_equal(outcome, "finished"))
		return err_set(err, ERR_REJECT,
		    "replay %" PRId64 " is finished: to send its rows once more, make another one",
		    replay->id);
	if (text_equal(outcome, "elsewhere"))
		return err_set(err, ERR_REJECT,
		    "replay %" PRId64 " was made in another database cluster, and its snapshot "
		    "means nothing in this copy: make another one",
		    replay->id);
	if (text_equal(outcome, "stopped"))
		return err_set(err, ERR_FENCED, "replay %" PRId64 " was stopped", replay->id);
	return err_set(err, ERR_REJECT,
	    "there is no replay %" PRId64 "; `outbox-relay replay --list` shows them", replay->id);
}

/*
 * Reads the row before it takes the replay, to know the lease, and again afterwards, since another
 * process may have changed it.
 */
bool replay_take(struct replay *replay, struct pg *pg, const struct config *config, struct err *err)
{
	int64_t id = replay->id, rate = replay->rate, now;
	bool by_relay = replay->by_relay;

	if (!read_replay_row(replay, pg, config, err))
		return false;

	owned_text char *id_text = xformat("%" PRId64, id);
	owned_text char *nonce = xformat("%" PRId64, replay->nonce = clock_random());
	owned_text char *owner = job_owner_name();
	owned_text char *lease = xformat("%" PRId64, replay->publisher->lease_ms);
	const struct pg_param params[] = {
	    {id_text}, {nonce}, {owner}, {lease}, {by_relay ? "t" : "f"}};

	/* before the statement: the lease begins in the database later, so it cannot end earlier
	 * there */
	now = clock_ms();
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = query_replay(replay, pg, sql_replay_take, params, 5, err);
	struct replay taken;

	if (!row || !judge_taken(replay, row, err))
		return false;

	/* only these values of the call remain; everything else is read again */
	replay_init(&taken, replay->publisher);
	taken.id = id;
	taken.rate = rate;
	taken.by_relay = by_relay;
	taken.nonce = replay->nonce;
	taken.noted_ms = now;
	replay_finish(replay);
	*replay = taken;
	return read_replay_row(replay, pg, config, err);
}

bool replay_note(struct replay *replay, struct pg *pg, int64_t last_id, int64_t done,
    const char *state, const char *error, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, replay->id);
	owned_text char *nonce = xformat("%" PRId64, replay->nonce);
	owned_text char *more = xformat("{\"last_id\":%" PRId64 "}", last_id);
	owned_text char *count = xformat("%" PRId64, done);
	owned_text char *lease = xformat("%" PRId64, replay->publisher->lease_ms);
	const struct pg_param params[] = {
	    {"replay"}, {id}, {nonce}, {count}, {state}, {lease}, {error}, {more}};
	int64_t now = clock_ms();
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = query_replay(replay, pg, sql_job_note, params, 8, err);

	if (!row)
		return false;

	/* the nonce did not match: notes of this process must not overwrite those of the new one */
	if (pg_int(row, 0, 0) == 0)
		return err_set(err, ERR_FENCED,
		    "replay %s was taken by another process, which goes on with it, or was "
		    "cancelled; "
		    "`outbox-relay replay --list` shows which",
		    id);
	replay->last_id = last_id;
	replay->done = done;
	replay->noted_ms = now;
	return true;
}
