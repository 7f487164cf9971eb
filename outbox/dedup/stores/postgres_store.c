/*
 * The table `processed` of a PostgreSQL database (sql/migrations/0012_processed.sql), used in two
 * ways.
 *
 * In a session of the store's own: a new id is claimed by a lock of that session, until it is
 * recorded or given back. A process that dies loses its session, and the locks with it, at once.
 * When the connection is lost while ids are pending, their locks are gone too, and another session
 * may take them: `add` then claims them again. An id that is still new is recorded, since no other
 * process has done it. An id that another process has done is lost (ERR_FENCED). An id that another
 * session holds is undecided (ERR_RETRY): that may be the lost session, if the server has not
 * noticed its end. An `add` without an answer may have been committed: its ids are doubtful, and a
 * doubtful id that is found to be done counts as done by this process.
 *
 * In the transaction of the effect, on the caller's connection: the server does everything
 * (take_in_transaction).
 *
 * Read struct postgres_store first, then claim_in_postgres, then record_in_postgres.
 */
#include <inttypes.h>
#include <stdlib.h>
#include "cleanup.h"
#include "postgres_session.h"
#include "dedup_store.h"
#include "hash_set.h"
#include "pg_column.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

enum { MOST_LOCKS = 1000 };
enum { MOST_IDS = 1000 }; /* in a call and in a transaction: the limit of the schema's functions */

enum statement { CLAIM, ADD, GIVE_BACK, REMOVE, TAKE, STATEMENTS };
static const char *const statements[STATEMENTS] = {
    [CLAIM] = sql_processed_claim,
    [ADD] = sql_processed_add,
    [GIVE_BACK] = sql_processed_give_back,
    [REMOVE] = sql_processed_remove,
    [TAKE] = sql_processed_take,
};

struct postgres_store {
	struct dedup_store store;
	char *name, *window_ms;
	char *sql[STATEMENTS]; /* with the name of the schema inserted */
	struct postgres_session server;
	int session;              /* number of the session that has the locks of `held` */
	struct hash_set held;     /* pending ids that are locked */
	struct hash_set doubtful; /* pending ids of an `add` without an answer */
	struct dedup_item *row;   /* buffer: some items of a call, each once; MOST_IDS */
	struct pg_column ids, times;
	int64_t offset;
};

static struct postgres_store *postgres_of(struct dedup_store *store)
{
	return (struct postgres_store *)store;
}

/* --- asking --------------------------------------------------------------------------------- */

/* Fills all parameters, and returns how many of them the statement takes: two or four. */
static int fill_parameters(struct postgres_store *postgres, enum statement what,
    const struct dedup_item *items, size_t count, struct pg_param ret_params[4])
{
	pg_column_clear(&postgres->ids);
	pg_column_clear(&postgres->times);
	for (size_t i = 0; i < count; i++) {
		pg_column_add_bytes(&postgres->ids, items[i].id, items[i].length);
		pg_column_add_time(&postgres->times, items[i].time_ms * 1000);
	}
	ret_params[0] = (struct pg_param){postgres->name};
	ret_params[1] = pg_column_param(&postgres->ids);
	ret_params[2] = pg_column_param(&postgres->times);
	ret_params[3] = (struct pg_param){postgres->window_ms};
	return what == GIVE_BACK || what == REMOVE ? 2 : 4;
}

/* The locks of a session that has ended are gone. */
static void forget_lost_locks(struct postgres_store *postgres)
{
	if (postgres->server.pg && postgres->session == postgres->server.sessions)
		return;
	hash_set_finish(&postgres->held);
	postgres->session = postgres->server.sessions;
}

static struct pg_result *ask_postgres(struct postgres_store *postgres, enum statement what,
    const struct dedup_item *items, size_t count, struct err *err)
{
	struct pg_param params[4];
	int used = fill_parameters(postgres, what, items, count, params);
	struct pg_result *result =
	    postgres_session_ask(&postgres->server, postgres->sql[what], params, used, NULL, err);
	forget_lost_locks(postgres);
	return result;
}

/* Has the result one valid state for each id? A missing answer must not drop a message. */
static bool has_states(const struct pg_result *rows, size_t count, int most, struct err *err)
{
	if ((size_t)pg_rows(rows) != count)
		return err_set(
		    err, ERR_FATAL, "the server answers for %d of %zu ids", pg_rows(rows), count);
	for (int i = 0; i < pg_rows(rows); i++) {
		int64_t state = 0;
		if (!text_to_int64(pg_value(rows, i, 0), 0, most, &state))
			return err_set(err, ERR_FATAL, "the server answers '%.20s' for an id",
			    pg_value(rows, i, 0));
	}
	return true;
}

static bool execute_statement(struct postgres_store *postgres, enum statement what,
    const struct dedup_item *items, size_t count, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = count ? ask_postgres(postgres, what, items, count, err) : NULL;
	return result || count == 0;
}

/* --- look ----------------------------------------------------------------------------------- */

static bool claim_in_postgres(struct dedup_store *store, const struct dedup_item *items,
    size_t count, enum outbox_dedup_state *ret_states, struct err *err)
{
	struct postgres_store *postgres = postgres_of(store);
	if (count == 0)
		return true;

	OWNED(owned_pg_result_destroy)
	struct pg_result *states = ask_postgres(postgres, CLAIM, items, count, err);
	if (states && !has_states(states, count, OUTBOX_DEDUP_DONE, err))
		return false;

	for (size_t i = 0; states && i < count; i++) {
		ret_states[i] = (enum outbox_dedup_state)pg_int(states, (int)i, 0);
		if (ret_states[i] == OUTBOX_DEDUP_NEW)
			hash_set_add(&postgres->held, items[i].hash);
	}
	return states;
}

/* --- add ------------------------------------------------------------------------------------ */

static void forget_claims(
    struct postgres_store *postgres, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		hash_set_remove(&postgres->held, items[i].hash);
		hash_set_remove(&postgres->doubtful, items[i].hash);
	}
}

/*
 * Copies to `row` the items that are in the set (in: true), or those that are not, each once. They
 * have room, because all of them are pending.
 */
static size_t choose_items(struct postgres_store *postgres, const struct hash_set *set, bool in,
    const struct dedup_item *items, size_t count)
{
	OWNED(hash_set_finish) struct hash_set chosen = {0};
	size_t found = 0;
	for (size_t i = 0; i < count; i++)
		if (hash_set_has(set, items[i].hash) == in && hash_set_add(&chosen, items[i].hash))
			postgres->row[found++] = items[i];
	return found;
}

static bool wait_for_holder(size_t held, size_t count, struct err *err)
{
	return held == 0 ||
	       err_set(err, ERR_RETRY,
		   "the connection was lost meanwhile, and another session holds %zu of %zu ids: "
		   "somebody's who took them, or the lost one, which the server ends soon",
		   held, count);
}

/*
 * Claims the ids again whose locks are gone. ret_lost: the number of ids that another process has
 * done. The ids that are locked afterwards are to be recorded.
 */
static bool reclaim_lost(struct postgres_store *postgres, const struct dedup_item *items,
    size_t count, size_t *ret_lost, struct err *err)
{
	enum outbox_dedup_state states[MOST_IDS];
	const struct dedup_item *again = postgres->row;
	size_t open = choose_items(postgres, &postgres->held, false, items, count), elsewhere = 0;
	int session = postgres->session;

	*ret_lost = 0;
	if (!claim_in_postgres(&postgres->store, again, open, states, err))
		return false;
	if (postgres->session != session) /* the earlier locks are gone now */
		return err_set(err, ERR_RETRY, "the connection was lost once more meanwhile");

	for (size_t i = 0; i < open; i++) {
		elsewhere += states[i] == OUTBOX_DEDUP_PENDING;
		*ret_lost += states[i] == OUTBOX_DEDUP_DONE &&
			     !hash_set_has(&postgres->doubtful, again[i].hash);
	}
	return wait_for_holder(elsewhere, count, err);
}

static bool record_held(
    struct postgres_store *postgres, const struct dedup_item *items, size_t count, struct err *err)
{
	size_t held = choose_items(postgres, &postgres->held, true, items, count);
	if (execute_statement(postgres, ADD, postgres->row, held, err))
		return true;
	for (size_t i = 0; i < held; i++)
		hash_set_add(&postgres->doubtful, postgres->row[i].hash);
	return false;
}

/* Records the ids that are locked even if others are lost, because their messages were handled. */
static bool record_in_postgres(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct postgres_store *postgres = postgres_of(store);
	size_t lost;
	if (count == 0)
		return true;

	/* Connects first: only then is it known whether the earlier locks are still held. */
	if (!postgres_session_connect(&postgres->server, err))
		return false;
	forget_lost_locks(postgres);

	if (!reclaim_lost(postgres, items, count, &lost, err) ||
	    !record_held(postgres, items, count, err))
		return false;

	forget_claims(postgres, items, count);
	return lost == 0 ||
	       err_set(err, ERR_FENCED,
		   "the connection was lost meanwhile, and somebody else has done %zu of %zu ids: "
		   "they were handled twice",
		   lost, count);
}

/* --- give back, remove ---------------------------------------------------------------------- */

/* Doubtful ids may be in the table, and would be taken for done. */
static bool remove_doubtful(
    struct postgres_store *postgres, const struct dedup_item *items, size_t count, struct err *err)
{
	size_t doubtful = choose_items(postgres, &postgres->doubtful, true, items, count);
	return execute_statement(postgres, REMOVE, postgres->row, doubtful, err);
}

/* If the server does not release the locks, the end of the session does. */
static bool release_in_postgres(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct postgres_store *postgres = postgres_of(store);
	struct err ended;
	if (!remove_doubtful(postgres, items, count, err))
		return false;
	forget_lost_locks(postgres);
	size_t held = choose_items(postgres, &postgres->held, true, items, count);
	(void)!execute_statement(postgres, GIVE_BACK, postgres->row, held, &ended);
	forget_claims(postgres, items, count);
	return true;
}

static bool remove_from_postgres(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct postgres_store *postgres = postgres_of(store);
	for (size_t i = 0; i < count; i += MOST_IDS)
		if (!execute_statement(postgres, REMOVE, items + i,
			count - i < MOST_IDS ? count - i : MOST_IDS, err))
			return false;
	return true;
}

/* --- in the caller's transaction ------------------------------------------------------------ */

/* 25000 and 54000 are refusals by the schema's functions: the caller has to change the call. */
static bool classify_take_error(struct pg *pg, struct err *err)
{
	const char *sqlstate = pg_sqlstate(pg);
	if (text_equal(sqlstate, "25000") || text_equal(sqlstate, "54000"))
		err->kind = ERR_REJECT;
	return false;
}

static bool take_in_transaction(struct dedup_store *store, struct pg_conn *connection,
    const struct dedup_item *items, size_t count, enum outbox_dedup_state *ret_states,
    struct err *err)
{
	struct postgres_store *postgres = postgres_of(store);
	struct pg_param params[4];
	if (count > MOST_IDS)
		return err_set(err, ERR_REJECT,
		    "%zu ids in a call: at most are %d in a transaction, since each takes a lock "
		    "of the server; take fewer in more transactions",
		    count, MOST_IDS);

	OWNED(owned_pg_destroy) struct pg *pg = pg_borrow(connection, err);
	if (!pg)
		return false;

	int used = fill_parameters(postgres, TAKE, items, count, params);
	OWNED(owned_pg_result_destroy)
	struct pg_result *fresh = pg_query(pg, postgres->sql[TAKE], params, used, err);
	if (!fresh)
		return classify_take_error(pg, err);
	if (!has_states(fresh, count, 1, err))
		return false;

	for (size_t i = 0; i < count; i++)
		ret_states[i] = pg_int(fresh, (int)i, 0) ? OUTBOX_DEDUP_NEW : OUTBOX_DEDUP_DONE;
	return true;
}

/* --- life ----------------------------------------------------------------------------------- */

static void close_postgres_store(struct dedup_store *store)
{
	struct postgres_store *postgres = postgres_of(store);
	postgres_session_finish(&postgres->server);
	hash_set_finish(&postgres->held);
	hash_set_finish(&postgres->doubtful);
	pg_column_finish(&postgres->ids);
	pg_column_finish(&postgres->times);

	for (int i = 0; i < STATEMENTS; i++)
		free(postgres->sql[i]);
	free(postgres->name);
	free(postgres->window_ms);
	free(postgres->row);
	free(postgres);
}

/* Each pending id takes a lock of the server, which has a few thousand of them. */
static bool check_pending_locks(struct dedup_spec *spec, struct err *err)
{
	if (spec->pending == 0)
		spec->pending = MOST_LOCKS;
	return spec->pending <= MOST_LOCKS ||
	       err_set(err, ERR_CONFIG,
		   "pending=%" PRId64 " is refused: each takes a lock of the server, and at most "
		   "are %d of 'postgres'; lower it, or open more stores",
		   spec->pending, MOST_LOCKS);
}

/* Without a dsn the store may never need a session: the first check connects, with the PG*
 * variables. */
static struct dedup_store *open_postgres_store(const struct dedup_spec *spec, struct err *err)
{
	const char *schema = spec->schema ? spec->schema : "outbox";
	if (!schema_text_check(schema, err))
		return NULL;

	struct postgres_store *postgres = xcalloc(1, sizeof *postgres);
	postgres->store.type = spec->type;
	postgres->name = xstrdup(spec->name);
	postgres->window_ms = xformat("%" PRId64, spec->window_ms);
	for (int i = 0; i < STATEMENTS; i++)
		postgres->sql[i] = schema_text(statements[i], schema);
	postgres->row = xcalloc(MOST_IDS, sizeof *postgres->row);
	postgres->ids.type = PG_COLUMN_BYTEA;
	postgres->times.type = PG_COLUMN_TIMESTAMPTZ;
	postgres->offset = -1;

	postgres_session_init(
	    &postgres->server, spec->dsn, (int)spec->timeout_ms, POSTGRES_SESSION_OWN);
	if (!spec->dsn || postgres_session_connect(&postgres->server, err))
		return &postgres->store;
	close_postgres_store(&postgres->store);
	return NULL;
}

/* Done ids are committed already. */
static bool note_postgres_offset(struct dedup_store *store, int64_t offset, struct err *err)
{
	(void)err;
	if (offset > postgres_of(store)->offset)
		postgres_of(store)->offset = offset;
	return true;
}

static void read_postgres_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct postgres_store *postgres = (const struct postgres_store *)store;
	stats->offset = postgres->offset;
	stats->memory_bytes =
	    MOST_IDS * sizeof *postgres->row +
	    (postgres->held.capacity + postgres->doubtful.capacity) * sizeof *postgres->held.places;
}

const struct dedup_store_type postgres_store = {
    .spec = {"postgres", dedup_settings,
	DEDUP_TAKES_ALWAYS | DEDUP_TAKES(WINDOW) | DEDUP_TAKES(DSN) | DEDUP_TAKES(SCHEMA) |
	    DEDUP_TAKES(NAME) | DEDUP_TAKES(TIMEOUT),
	DEDUP_TAKES(NAME)},
    .check = check_pending_locks,
    .promise = {.store = "postgres",
	.releases = true,
	.shared = true,
	.false_positives = "none: ids are compared as a whole",
	.false_negatives = "none, for at least the window around the record's time and after it "
			   "was processed",
	.restart = "forgets no id: done ids are committed; pending ids are free at once",
	.scope = "all consumers of the database with this name; also in the transaction of the "
		 "effect, which is then exactly once",
	.memory = "less than 200 KiB; a lock of the server for each pending id",
	.disk = "of the server: about 150 bytes an id, with indexes"},
    .open = open_postgres_store,
    .close = close_postgres_store,
    .look = claim_in_postgres,
    .add = record_in_postgres,
    .give_back = release_in_postgres,
    .remove = remove_from_postgres,
    .take = take_in_transaction,
    .checkpoint = note_postgres_offset,
    .stats = read_postgres_stats,
};
