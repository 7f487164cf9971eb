/*
 * A split drains all shards of a publisher to one snapshot and then gives it another number of
 * shards. The three calls are transactions of their own (sql/migrations/0005_publishers.sql);
 * whatever ends the waiting early cancels the split, so that the publisher goes on as before.
 */
#include "publisher_split.h"

#include <inttypes.h>
#include <poll.h>
#include "cleanup.h"
#include "clock.h"
#include "sql_files.h"
#include "text.h"

enum { LOOK_MS = 200, OWNERS_LOOK_MS = 100 };

static bool call_split(struct publisher_split *split, const char *sql, bool with_shards,
    int64_t *ret_value, struct err *err)
{
	owned_text char *shards = xformat("%d", split->shards);
	const struct pg_param values[] = {{split->publisher}, {shards}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result =
	    database_query(split->pg, split->postgres, sql, values, with_shards ? 2 : 1, err);

	if (result && ret_value)
		*ret_value = pg_int(result, 0, 0);
	return result != NULL;
}

/*
 * An owner that renews its lease while the first rows of the new shards are written takes the same
 * number (23505), and somebody else may hold a lock of the log (55P03). Either way nothing was
 * changed, and *behind is as before: the next look may find the way clear.
 */
static bool try_to_finish(struct publisher_split *split, int64_t *behind, struct err *err)
{
	if (call_split(split, sql_publisher_split_finish, false, behind, err))
		return true;
	return err->kind == ERR_FENCED || text_equal(pg_sqlstate(split->pg), "55P03");
}

static bool wait_for_look(struct publisher_split *split, int64_t behind, int64_t since)
{
	if (split->wait)
		return split->wait(split->context, behind, since, LOOK_MS);
	poll(NULL, 0, LOOK_MS);
	return false;
}

static bool wait_for_common_end(struct publisher_split *split, struct err *err)
{
	int64_t since = clock_ms(), behind = 1;

	while (try_to_finish(split, &behind, err)) {
		/* the call that found none behind has also begun the new shards */
		if (behind == 0)
			return true;
		if (wait_for_look(split, behind, since))
			return err_set(err, ERR_RETRY, "interrupted");
		if (clock_ms() - since >= split->timeout_ms)
			return err_set(err, ERR_RETRY,
			    "%" PRId64 " shard%s did not come to the common end within %" PRId64
			    " s; every shard needs a running relay",
			    behind, behind == 1 ? "" : "s", split->timeout_ms / 1000);
	}
	return false;
}

bool publisher_split_cancel(struct publisher_split *split, bool *ret_changed, struct err *err)
{
	const struct pg_param params[] = {{split->publisher}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(split->pg, split->postgres, sql_publisher_split_cancel, params, 1, err);

	if (row)
		*ret_changed = text_equal(pg_value(row, 0, 0), "t");
	return row != NULL;
}

/* Uses a new connection if the old one failed. Returns false, with the cause of the failure. */
static bool cancel_after_failure(struct publisher_split *split, struct err *err)
{
	struct err failed;
	bool changed;

	if (publisher_split_cancel(split, &changed, &failed))
		return err_prefix(
		    err, "split of publisher %s cancelled, it goes on as before", split->publisher);

	/* the connection may be the reason of the failure; an open split would stop the
	 * publisher */
	pg_destroy(split->pg);
	split->pg = database_connect(split->postgres, &failed);
	if (split->pg && publisher_split_cancel(split, &changed, &failed))
		return err_prefix(
		    err, "split of publisher %s cancelled, it goes on as before", split->publisher);
	return err_prefix(err,
	    "publisher %s opens no new window until `outbox-relay publisher split %s --cancel` is "
	    "run",
	    split->publisher, split->publisher);
}

/*
 * Columns of status.sql: publisher, shard, shards, split_to, n, epoch, owner, lease_left_ms.
 * *ret_unowned: a shard that nobody owns; -1: none.
 */
static bool find_unowned(struct publisher_split *split, int64_t *ret_unowned, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(split->pg, split->postgres, sql_status, NULL, 0, err);

	*ret_unowned = -1;
	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (text_equal(pg_value(rows, i, 0), split->publisher) && pg_int(rows, i, 7) == 0)
			*ret_unowned = pg_int(rows, i, 1);
	return rows != NULL;
}

/*
 * Relays that have just started, or split the publisher before, take their shards one after the
 * other.
 */
static bool check_owned(struct publisher_split *split, struct err *err)
{
	int64_t until = clock_ms() + split->owners_ms;
	int64_t unowned;

	do {
		if (!find_unowned(split, &unowned, err))
			return false;
		if (unowned < 0)
			return true;
		poll(NULL, 0, OWNERS_LOOK_MS);
	} while (clock_ms() < until);
	return err_set(err, ERR_RETRY,
	    "nobody owns shard %" PRId64
	    " of publisher %s: a split needs running relays, which bring all shards to one end",
	    unowned, split->publisher);
}

bool publisher_split_run(struct publisher_split *split, struct err *err)
{
	/* without owners no shard could reach the common end, and the split would only time out */
	if (!check_owned(split, err) ||
	    !call_split(split, sql_publisher_split_begin, true, NULL, err))
		return false;
	/* from the begin on every failure cancels, or the publisher would open no new window */
	return (call_split(split, sql_publisher_split_bound, false, NULL, err) &&
		   wait_for_common_end(split, err)) ||
	       cancel_after_failure(split, err);
}
