#include "pg_private.h"
#include <assert.h>
#include <poll.h>
#include "clock.h"
#include "sql_files.h"
#include "text.h"

/*
 * Statements on a connection: sending (submit_… hands them to libpq, send_… adds the settings that
 * a pooler needs), receiving (receive_answer collects results until the statement ends), COPY, and
 * the blocking calls, which are sending and wait_for_answer. Read pg_send and pg_receive first.
 */

struct pg_result {
	PGresult *rows;
};

enum { FORMAT_TEXT, FORMAT_BINARY };

enum { LOAD_PART = 65536 /* bytes in one message of COPY FROM */ };

/* --- sending ------------------------------------------------------------------------------- */

static bool may_send_statement(struct pg *pg, struct err *err)
{
	if (!pg_is_there(pg, err))
		return false;
	assert(pg->state == PG_IDLE);
	return true;
}

static bool finish_submit(struct pg *pg, bool accepted, bool wants_copy, struct err *err)
{
	int left = accepted ? PQflush(pg->connection) : -1;
	pg->sqlstate[0] = '\0';
	pg->state = PG_BUSY;
	pg->received = 0;
	pg->flushing = left > 0;
	pg->pipelined = PQpipelineStatus(pg->connection) != PQ_PIPELINE_OFF;
	pg->wants_copy = wants_copy;
	pg->wants_load = false;
	pg->copying = pg->drained = false;
	return left < 0 ? pg_lose(pg, err) : true;
}

/* Sends sql; if sql is NULL, the statement that was prepared under the name. */
static bool submit_statement(struct pg *pg, const char *name, const char *sql,
    const struct pg_param *params, int count, int format)
{
	owned_text const char **values = xcalloc((size_t)count, sizeof *values);
	owned_text int *lengths = xcalloc((size_t)count, sizeof *lengths);
	owned_text int *formats = xcalloc((size_t)count, sizeof *formats);

	for (int i = 0; i < count; i++) {
		values[i] = params[i].text;
		lengths[i] = (int)params[i].length;
		formats[i] = params[i].length ? FORMAT_BINARY : FORMAT_TEXT;
	}
	return sql ? PQsendQueryParams(
			 pg->connection, sql, count, NULL, values, lengths, formats, format)
		   : PQsendQueryPrepared(
			 pg->connection, name, count, values, lengths, formats, format);
}

/* Sends a statement without parameters before the caller's, in the same pipeline. */
static bool submit_before(struct pg *pg, const char *sql)
{
	pg->wanted++;
	return submit_statement(pg, NULL, sql, NULL, 0, FORMAT_BINARY);
}

static bool submit_sync(struct pg *pg)
{
	pg->syncs++;
	return PQpipelineSync(pg->connection);
}

/*
 * Behind a pooler we open a transaction around the statement: a transaction that the server opens
 * by itself has the isolation level of the role, and its settings would not reach the next
 * statement. A synchronisation precedes COMMIT, so that the server executes COMMIT after an error
 * too, and then rolls back: the session goes back to the pooler in any case.
 */
static bool submit_in_transaction(struct pg *pg, const char *passing, const char *name,
    const char *sql, const struct pg_param *params, int count, int format)
{
	owned_text char *settings = pg_settings(pg);

	return submit_before(pg, sql_session_transaction) && submit_before(pg, settings) &&
	       (!passing || submit_before(pg, passing)) &&
	       submit_statement(pg, name, sql, params, count, format) && submit_sync(pg) &&
	       submit_statement(pg, NULL, sql_session_commit, NULL, 0, FORMAT_BINARY) &&
	       submit_sync(pg);
}

/* passing: settings for this transaction only, or NULL. */
static bool send_pipeline(struct pg *pg, const char *passing, const char *name, const char *sql,
    const struct pg_param *params, int count, int format, struct err *err)
{
	pg->syncs = pg->statement = pg->wanted = 0;
	bool accepted = PQenterPipelineMode(pg->connection);
	if (accepted && pg_needs_settings(pg))
		accepted = submit_in_transaction(pg, passing, name, sql, params, count, format);
	else if (accepted)
		accepted = submit_before(pg, passing) &&
			   submit_statement(pg, name, sql, params, count, format) &&
			   submit_sync(pg);
	return finish_submit(pg, accepted, false, err);
}

static bool send_statement(struct pg *pg, const char *name, const char *sql,
    const struct pg_param *params, int count, int format, struct err *err)
{
	if (!may_send_statement(pg, err))
		return false;
	if (pg_needs_settings(pg))
		return send_pipeline(pg, NULL, name, sql, params, count, format, err);
	return finish_submit(
	    pg, submit_statement(pg, name, sql, params, count, format), false, err);
}

static bool send_alone(struct pg *pg, const char *script, bool wants_copy, struct err *err)
{
	return may_send_statement(pg, err) &&
	       finish_submit(pg, PQsendQuery(pg->connection, script), wants_copy, err);
}

static bool send_script(struct pg *pg, const char *script, bool wants_copy, struct err *err)
{
	if (!may_send_statement(pg, err))
		return false;
	if (!pg_needs_settings(pg))
		return send_alone(pg, script, wants_copy, err);

	owned_text char *settings = pg_settings(pg);
	owned_text char *all = xformat("%s;\n%s;\n%s", sql_session_implicit, settings, script);
	return send_alone(pg, all, wants_copy, err);
}

bool pg_send(
    struct pg *pg, const char *sql, const struct pg_param *params, int count, struct err *err)
{
	return send_statement(pg, NULL, sql, params, count, FORMAT_BINARY, err);
}

bool pg_send_behind(struct pg *pg, const char *settings, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	return may_send_statement(pg, err) &&
	       send_pipeline(pg, settings, NULL, sql, params, count, FORMAT_BINARY, err);
}

bool pg_send_prepare(struct pg *pg, const char *name, const char *sql, struct err *err)
{
	return may_send_statement(pg, err) &&
	       finish_submit(pg, PQsendPrepare(pg->connection, name, sql, 0, NULL), false, err);
}

bool pg_send_prepared(
    struct pg *pg, const char *name, const struct pg_param *params, int count, struct err *err)
{
	return send_statement(pg, name, NULL, params, count, FORMAT_BINARY, err);
}

bool pg_send_script(struct pg *pg, const char *script, struct err *err)
{
	return send_script(pg, script, false, err);
}

bool pg_send_copy(struct pg *pg, const char *script, struct err *err)
{
	return send_script(pg, script, true, err);
}

/* --- receiving ----------------------------------------------------------------------------- */

bool pg_take_result(struct pg *pg, PGresult **ret_result)
{
	while (PQisBusy(pg->connection)) {
		if (!pg_tls_holds_bytes(pg) || !pg_consume(pg))
			return false;
	}
	*ret_result = PQgetResult(pg->connection);
	return true;
}

/* No caller would feed or drain this COPY: gives up the connection, so the server rolls back. */
static bool refuse_copy(struct pg *pg, struct err *err)
{
	pg->state = PG_LOST;
	return err_set(err, ERR_FATAL, "%s: COPY has no place here", pg->place);
}

static bool settle_statement(struct pg *pg, PGresult **ret_answer, struct err *err)
{
	if (pg->flooded || PQstatus(pg->connection) == CONNECTION_BAD || pg->farewell.message[0])
		return pg_lose(pg, err);

	PGresult *answer = pg->answer;
	pg->answer = NULL;
	pg->state = PG_IDLE;
	if (answer && pg_is_error(answer)) {
		pg_report(pg, answer, err);
		PQclear(answer);
		return false;
	}
	*ret_answer = answer;
	return true;
}

enum progress { WAITS, COPY_BEGINS, ENDED };

/*
 * Receives the answers to the statements of a pipeline: keeps the rows of the caller's statement,
 * and the errors of every statement. A NULL ends each statement. The last synchronisation ends the
 * pipeline; two NULLs in a row mean that the connection is lost.
 */
static bool receive_pipelined(
    struct pg *pg, enum progress *ret_progress, PGresult **ret_answer, struct err *err)
{
	PGresult *result;
	bool between = false;
	*ret_progress = WAITS;
	while (pg_take_result(pg, &result)) {
		bool lost = !result && (between || PQstatus(pg->connection) == CONNECTION_BAD);
		bool over =
		    result && PQresultStatus(result) == PGRES_PIPELINE_SYNC && --pg->syncs == 0;
		bool counts = result && (pg_is_error(result) ||
					    (pg->statement == pg->wanted &&
						PQresultStatus(result) != PGRES_PIPELINE_SYNC &&
						PQresultStatus(result) != PGRES_PIPELINE_ABORTED));

		if (lost || over) {
			PQclear(result);
			*ret_progress = ENDED;
			pg->pipelined = false;
			return over && PQexitPipelineMode(pg->connection)
				   ? settle_statement(pg, ret_answer, err)
				   : pg_lose(pg, err);
		}

		if (counts)
			pg_keep_answer(pg, result);
		else
			PQclear(result);
		pg->statement += !result;
		between = !result;
	}
	return true;
}

/* Takes the results that have arrived. *ret_answer is set at ENDED. */
static bool receive_answer(
    struct pg *pg, enum progress *ret_progress, PGresult **ret_answer, struct err *err)
{
	PGresult *result;
	assert(pg->state == PG_BUSY);
	if (pg->pipelined)
		return receive_pipelined(pg, ret_progress, ret_answer, err);

	*ret_progress = WAITS;
	while (pg_take_result(pg, &result)) {
		if (!result) {
			*ret_progress = ENDED;
			return settle_statement(pg, ret_answer, err);
		}

		ExecStatusType status = PQresultStatus(result);
		bool out = status == PGRES_COPY_OUT, in = status == PGRES_COPY_IN;
		if (!out && !in && status != PGRES_COPY_BOTH) {
			pg_keep_answer(pg, result);
			continue;
		}
		PQclear(result);
		if (!(out && pg->wants_copy) && !(in && pg->wants_load))
			return refuse_copy(pg, err);
		*ret_progress = COPY_BEGINS;
		return true;
	}
	return true;
}

static struct pg_result *make_result(PGresult *rows)
{
	struct pg_result *result = xmalloc(sizeof *result);
	result->rows = rows;
	return result;
}

bool pg_receive(struct pg *pg, bool *ret_done, struct pg_result **ret_result, struct err *err)
{
	enum progress progress = ENDED;
	PGresult *answer = NULL;
	bool good = pg_is_there(pg, err) && receive_answer(pg, &progress, &answer, err);
	*ret_done = !good || progress == ENDED;
	*ret_result = good && progress == ENDED ? make_result(answer) : NULL;
	return good;
}

/* --- COPY ---------------------------------------------------------------------------------- */

static bool lose_row(struct pg *pg, struct err *err)
{
	pg->copying = false;
	return pg_lose(pg, err);
}

/* Takes a row. PG_COPY_END is only the end of the rows: the answer follows. */
static bool take_copy_row(
    struct pg *pg, enum pg_copy *ret_what, char **ret_row, int *ret_length, struct err *err)
{
	for (;;) {
		int length = PQgetCopyData(pg->connection, ret_row, 1);
		if (length > 0) {
			*ret_what = PG_COPY_ROW;
			*ret_length = length;
			return true;
		}
		/*
		 * The state of the COPY ends here, although the connection stays busy until the
		 * answer is taken.
		 */
		if (length == -1) {
			pg->copying = false;
			*ret_what = PG_COPY_END;
			return true;
		}
		if (length < 0)
			return lose_row(pg, err);

		if (!pg_tls_holds_bytes(pg)) {
			pg->drained = true;
			*ret_what = PG_COPY_WAIT;
			return true;
		}
		if (!pg_consume(pg))
			return lose_row(pg, err);
	}
}

static bool end_copy(struct pg *pg, PGresult *answer, enum pg_copy *ret_what, struct err *err)
{
	PQclear(answer);
	*ret_what = PG_COPY_END;
	if (pg->wants_copy)
		return err_set(err, ERR_FATAL, "%s: the script holds no COPY", pg->place);
	return true;
}

bool pg_copy_next(
    struct pg *pg, enum pg_copy *ret_what, char **ret_row, int *ret_length, struct err *err)
{
	*ret_row = NULL;
	*ret_length = 0;
	if (!pg_is_there(pg, err))
		return false;

	for (;;) {
		if (pg->copying) {
			bool good = take_copy_row(pg, ret_what, ret_row, ret_length, err);
			if (!good || *ret_what != PG_COPY_END)
				return good;
		}

		enum progress progress;
		PGresult *answer = NULL;
		if (!receive_answer(pg, &progress, &answer, err))
			return false;
		/* The statement has ended: the rows came before, or the script has no COPY. */
		if (progress == ENDED)
			return end_copy(pg, answer, ret_what, err);
		*ret_what = PG_COPY_WAIT;
		if (progress == WAITS)
			return true;
		pg->copying = true;
		pg->wants_copy = pg->drained = false; /* a script has one COPY only */
	}
}

void pg_free_row(char *row)
{
	PQfreemem(row);
}

/* The server rolls back what the connection was doing. */
static bool give_up_copy(struct pg *pg, struct err *err)
{
	pg->state = PG_LOST;
	return err_set(err, ERR_RETRY, "%s: interrupted", pg->place);
}

bool pg_copy_take(struct pg *pg, char **ret_row, int *ret_length, struct err *err)
{
	enum pg_copy what;

	for (;;) {
		if (!pg_copy_next(pg, &what, ret_row, ret_length, err))
			return false;
		if (what != PG_COPY_WAIT)
			return true;
		if (pg_wait(pg, -1))
			return give_up_copy(pg, err);
		if (!pg_step(pg, err))
			return false;
	}
}

/* --- blocking ------------------------------------------------------------------------------ */

enum { GRACE_MS = 300 };

/*
 * For a thread that is interrupted: most statements are short and end by themselves. A cancel that
 * comes before the statement has begun has no effect, so the caller's loop calls this again.
 */
static void cancel_after_grace(struct pg *pg)
{
	struct pollfd answer = {.fd = pg_fd(pg), .events = pg_events(pg)};
	struct err ignored;
	if (poll(&answer, 1, GRACE_MS) == 0)
		(void)pg_cancel(pg, &ignored);
}

enum { FOREVER = -1 };

/* The server may still run the statement, and we cannot know whether it will end. */
static bool give_up_statement(struct pg *pg, int timeout_ms, struct err *err)
{
	pg->state = PG_LOST;
	return err_set(err, ERR_RETRY, "%s: no answer within %d ms", pg->place, timeout_ms);
}

static bool wait_for_answer(struct pg *pg, int timeout_ms, PGresult **ret_answer, struct err *err)
{
	const int64_t end = clock_ms() + timeout_ms;
	enum progress progress;
	for (;;) {
		if (!receive_answer(pg, &progress, ret_answer, err))
			return false;
		if (progress == ENDED)
			return true;

		int64_t left = timeout_ms == FOREVER ? FOREVER : end - clock_ms();
		if (timeout_ms != FOREVER && left <= 0)
			return give_up_statement(pg, timeout_ms, err);
		/*
		 * The thread is interrupted, but the loop still waits: the server ends the
		 * cancelled statement.
		 */
		if (pg_wait(pg, (int)left))
			cancel_after_grace(pg);
		if (!pg_step(pg, err))
			return false;
	}
}

struct pg_result *pg_query_within(struct pg *pg, const char *sql, const struct pg_param *params,
    int count, int timeout_ms, struct err *err)
{
	PGresult *answer;
	if (!send_statement(pg, NULL, sql, params, count, FORMAT_TEXT, err) ||
	    !wait_for_answer(pg, timeout_ms, &answer, err))
		return NULL;
	return make_result(answer);
}

struct pg_result *pg_query(
    struct pg *pg, const char *sql, const struct pg_param *params, int count, struct err *err)
{
	return pg_query_within(pg, sql, params, count, FOREVER, err);
}

bool pg_prepare(struct pg *pg, const char *name, const char *sql, struct err *err)
{
	PGresult *answer;
	if (!pg_send_prepare(pg, name, sql, err) || !wait_for_answer(pg, FOREVER, &answer, err))
		return false;
	PQclear(answer);
	return true;
}

struct pg_result *pg_query_prepared(
    struct pg *pg, const char *name, const struct pg_param *params, int count, struct err *err)
{
	PGresult *answer;
	if (!send_statement(pg, name, NULL, params, count, FORMAT_TEXT, err) ||
	    !wait_for_answer(pg, FOREVER, &answer, err))
		return NULL;
	return make_result(answer);
}

bool pg_execute(
    struct pg *pg, const char *sql, const struct pg_param *params, int count, struct err *err)
{
	struct pg_result *result = pg_query(pg, sql, params, count, err);
	pg_result_destroy(result);
	return result != NULL;
}

bool pg_script(struct pg *pg, const char *sql, struct err *err)
{
	PGresult *answer;
	if (!send_script(pg, sql, false, err) || !wait_for_answer(pg, FOREVER, &answer, err))
		return false;
	PQclear(answer);
	return true;
}

bool pg_script_alone(struct pg *pg, const char *sql, struct err *err)
{
	PGresult *answer;
	if (!send_alone(pg, sql, false, err) || !wait_for_answer(pg, FOREVER, &answer, err))
		return false;
	PQclear(answer);
	return true;
}

/* --- COPY FROM ----------------------------------------------------------------------------- */

bool pg_load_begin(struct pg *pg, const char *script, struct err *err)
{
	enum progress progress = WAITS;
	PGresult *answer = NULL;

	if (!send_script(pg, script, false, err))
		return false;
	pg->wants_load = true;
	while (progress == WAITS) {
		if (!receive_answer(pg, &progress, &answer, err))
			return false;
		if (progress == WAITS && pg_wait(pg, -1))
			return give_up_copy(pg, err);
		if (progress == WAITS && !pg_step(pg, err))
			return false;
	}

	pg->wants_load = false; /* a script has one COPY only */
	if (progress == COPY_BEGINS)
		return true;
	PQclear(answer);
	return err_set(err, ERR_FATAL, "%s: the script holds no COPY", pg->place);
}

/* Without waiting for the flush, libpq would collect the whole file in memory. */
static bool flush_load(struct pg *pg, struct err *err)
{
	for (;;) {
		int left = PQflush(pg->connection);

		pg->flushing = left > 0;
		if (left < 0)
			return pg_lose(pg, err);
		if (left == 0)
			return true;
		if (pg_wait(pg, -1))
			return give_up_copy(pg, err);
		/* The server may report an error that it wants read before it reads on. */
		if (!pg_consume(pg))
			return pg_lose(pg, err);
	}
}

bool pg_load_put(struct pg *pg, const void *data, size_t length, struct err *err)
{
	const char *at = data;

	if (!pg_is_there(pg, err))
		return false;
	while (length > 0) {
		int part = length < LOAD_PART ? (int)length : LOAD_PART;

		if (PQputCopyData(pg->connection, at, part) != 1)
			return pg_lose(pg, err);
		if (!flush_load(pg, err))
			return false;
		at += part;
		length -= (size_t)part;
	}
	return true;
}

bool pg_load_end(struct pg *pg, struct err *err)
{
	PGresult *answer = NULL;

	if (!pg_is_there(pg, err))
		return false;
	if (PQputCopyEnd(pg->connection, NULL) != 1)
		return pg_lose(pg, err);
	if (!flush_load(pg, err) || !wait_for_answer(pg, FOREVER, &answer, err))
		return false;
	PQclear(answer);
	return true;
}

/* --- results ------------------------------------------------------------------------------- */

int pg_rows(const struct pg_result *result)
{
	return PQntuples(result->rows);
}

int pg_columns(const struct pg_result *result)
{
	return PQnfields(result->rows);
}

bool pg_is_null(const struct pg_result *result, int row, int column)
{
	return PQgetisnull(result->rows, row, column);
}

const char *pg_value(const struct pg_result *result, int row, int column)
{
	const char *value = PQgetvalue(result->rows, row, column);
	return value ? value : ""; /* NULL: there is no such row or column */
}

int pg_length(const struct pg_result *result, int row, int column)
{
	return PQgetlength(result->rows, row, column);
}

void pg_result_destroy(struct pg_result *result)
{
	if (!result)
		return;
	PQclear(result->rows);
	free(result);
}
