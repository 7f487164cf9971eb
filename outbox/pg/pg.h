#pragma once
/*
 * One connection to Postgres on libpq; only this folder includes libpq. The same struct serves
 * blocking calls (commands, upkeep) and the non-blocking calls below for event loops. A connection
 * belongs to one thread at a time. The caller owns results.
 *
 * This folder sets search_path, row_security and the other settings that our statements depend on
 * before the first statement, so defaults of the database and the role do not apply
 * (sql/queries/session_settings.sql).
 *
 * Works through PgBouncer in transaction mode: there is no session state, and each transaction
 * brings its settings in the same round trip. Only pg_prepare and pg_send_prepare make named
 * statements; their caller must know that the session is its own (pg_backend).
 *
 * SQLSTATE is translated here once: class 08, 57P0x, 53xxx, 40001, 40P01, 55P03 (lock timeout),
 * 57014 (cancelled), 25006 (on a standby) and a lost connection are ERR_RETRY; 28xxx and 42501
 * ERR_DENIED; 3D000 (no such database) ERR_CONFIG; 3F000/42P01/42703/42883 (no schema, table,
 * column, function) ERR_CONFIG with "run `outbox-relay migrate up`"; 23505 ERR_FENCED; others
 * ERR_FATAL. Messages read "host:port/db: problem (SQLSTATE 42P01); advice"; they never contain a
 * password or the server's DETAIL, which may quote a row. Notices are logged at debug level.
 */
#include <stdint.h>
#include <stddef.h>
#include "cleanup.h"
#include "errors.h"

struct pg;
struct pg_result;

/* A parameter in text form, or `length` bytes in binary form (pg_column); NULL text is SQL NULL. */
struct pg_param {
	const char *text;
	size_t length; /* 0: text form */
};

/* --- connection -------------------------------------------------------------------------- */

/*
 * Starts connecting and returns at once; pg_step continues it. Only the resolver may block, for a
 * host given by name. dsn "" uses PG* variables. Fails only for a dsn that cannot be used
 * (ERR_CONFIG). application names the session ("outbox-relay main/0") unless the dsn does.
 *
 * Defaults that the dsn may override: keepalives and tcp_user_timeout notice a dead peer after
 * about 10 s, also while connecting to one of several hosts. client_encoding is UTF8.
 */
struct pg *pg_start(const char *dsn, const char *application, struct err *err);
/*
 * pg_start and pg_step until the connection is up or timeout_ms have passed (less, if the dsn's
 * connect_timeout for its hosts is less); NULL on failure.
 */
struct pg *pg_connect(const char *dsn, const char *application, int timeout_ms, struct err *err);
/*
 * The same for a session that runs statements of others, such as a function of the business or the
 * user's query: the login's own settings apply, including search_path. Our part of such a statement
 * must qualify every name.
 */
struct pg *pg_start_plain(const char *dsn, const char *application, struct err *err);
struct pg *pg_connect_plain(
    const char *dsn, const char *application, int timeout_ms, struct err *err);
void pg_destroy(struct pg *pg); /* NULL is fine */

/* Whether pg_start would accept the dsn (ERR_CONFIG). Connects to nothing. */
bool pg_dsn_check(const char *dsn, struct err *err) MUST_CHECK;

/*
 * Whether a connection by this dsn may go unencrypted to another machine: sslmode (or PGSSLMODE)
 * does not enforce TLS, and a host is neither loopback nor a Unix socket. False for a dsn that
 * cannot be used.
 */
bool pg_dsn_is_exposed(const char *dsn);

struct pg_conn; /* libpq's PGconn, by its tag */
/*
 * Borrows a connection of the application, for blocking calls in the transaction that is open on
 * it, by the thread that owns it; pg_destroy leaves the connection as it is. ERR_REJECT: no
 * transaction is open, or the open one has failed, or the connection is busy; ERR_RETRY: the
 * connection is lost.
 */
struct pg *pg_borrow(struct pg_conn *connection, struct err *err);
DEFINE_OWNED(struct pg, pg_destroy)

/*
 * For a server that is not trusted: limits the bytes that are read from the socket while
 * connecting, and for each statement, to about this number (plus the bytes that the kernel has
 * buffered). Beyond it the connection is lost (ERR_REJECT) and pg_is_flooded returns true. 0, the
 * default: no limit.
 */
void pg_limit_answer(struct pg *pg, int64_t bytes);
bool pg_is_flooded(const struct pg *pg);

enum pg_state {
	PG_CONNECTING, /* wait for pg_fd with pg_events, then pg_step */
	PG_IDLE,       /* a query may be sent */
	PG_BUSY,       /* a query is in flight: wait for pg_fd, then pg_step */
	PG_LOST,       /* pg_step said why; destroy the connection and start another */
};
enum pg_state pg_state(const struct pg *pg);
/* How far PG_CONNECTING is. */
enum pg_connecting {
	PG_REACHES,    /* no server has accepted the connection yet */
	PG_STARTS_UP,  /* the server may have a session for it, which it ends after
			  authentication_timeout */
	PG_IS_ADMITTED /* the server has a session for it, for as long as both live */
};
enum pg_connecting pg_connecting(const struct pg *pg);
/* The socket changes while connecting (next host). -1: nothing to wait for, call pg_step. */
int pg_fd(const struct pg *pg);
/*
 * The events to poll for: POLLIN | POLLOUT. 0 while libpq holds rows of a COPY: take them first
 * (pg_copy_next until PG_COPY_WAIT).
 */
short pg_events(const struct pg *pg);

/*
 * Makes progress without blocking; may be called at any time. False: the connection is lost
 * (PG_LOST), *err says why. If the state is PG_BUSY afterwards, call pg_receive or pg_copy_next.
 *
 * During a COPY, pg_step reads from the socket only after PG_COPY_WAIT. So memory holds one buffer
 * (about 16 kB, or the largest row), and TCP holds back the server while the caller takes no rows.
 */
bool pg_step(struct pg *pg, struct err *err) MUST_CHECK;

/*
 * The number of notifications (LISTEN) that pg_step and answers have received since the last call.
 */
int pg_notifications(struct pg *pg);

/* --- blocking ---------------------------------------------------------------------------- */

/* The state must be PG_IDLE (PG_LOST fails). The calls wait as long as the server lives. */

/*
 * While fd (an eventfd that is never read) is readable, the blocking calls of this thread end soon:
 * they give up connecting and cancel the running statement (ERR_RETRY). -1, the default: no fd.
 */
void pg_interrupt_by(int fd);
/* For a timerfd that pg_interrupt_by has: it is readable after so long. 0: at once. Any thread. */
void pg_interrupt_in(int timer, int64_t ms);

/*
 * Runs one statement, waits for it and returns its rows in text form; NULL on error.
 */
struct pg_result *pg_query(
    struct pg *pg, const char *sql, const struct pg_param *params, int count, struct err *err);
/*
 * pg_query that waits timeout_ms at most: after that it returns ERR_RETRY, the state is PG_LOST,
 * and the result of the statement is unknown.
 */
struct pg_result *pg_query_within(struct pg *pg, const char *sql, const struct pg_param *params,
    int count, int timeout_ms, struct err *err);
/*
 * pg_prepare prepares sql under a name for the rest of the session (it must be the caller's own, as
 * for pg_send_prepare). pg_query_prepared runs the prepared statement as pg_query does: SQLSTATE
 * 26000 if this session has none of that name.
 */
bool pg_prepare(struct pg *pg, const char *name, const char *sql, struct err *err) MUST_CHECK;
struct pg_result *pg_query_prepared(
    struct pg *pg, const char *name, const struct pg_param *params, int count, struct err *err);
/* pg_query without rows. */
bool pg_execute(struct pg *pg, const char *sql, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;
/*
 * Runs a script: several statements in one simple query, and in one implicit transaction unless the
 * script begins its own. Stops at the first error. A script with a COPY is refused (ERR_FATAL,
 * PG_LOST).
 */
bool pg_script(struct pg *pg, const char *sql, struct err *err) MUST_CHECK;
/*
 * Runs one statement that the server refuses inside a transaction, such as VACUUM. Behind a pooler
 * it runs with the settings of the pooler's session.
 */
bool pg_script_alone(struct pg *pg, const char *sql, struct err *err) MUST_CHECK;

/* --- non-blocking ------------------------------------------------------------------------ */

/*
 * The state must be PG_IDLE (PG_LOST fails). Rows come in binary form. pg_send copies the strings
 * before it returns.
 */
bool pg_send(struct pg *pg, const char *sql, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;
/*
 * pg_send with one more statement before it, in the same transaction and the same round trip:
 * settings, a SELECT of set_config(…, true). Its answer is dropped. For sessions behind a pooler.
 */
bool pg_send_behind(struct pg *pg, const char *settings, const char *sql,
    const struct pg_param *params, int count, struct err *err) MUST_CHECK;
/*
 * Sends several statements, as pg_script does; the answer (pg_receive) is that of the last one, its
 * rows in text form.
 */
bool pg_send_script(struct pg *pg, const char *script, struct err *err) MUST_CHECK;
/*
 * Prepares sql under a name for the rest of the session; the answer (pg_receive) has no rows. A
 * name that is already in use is an error.
 */
bool pg_send_prepare(struct pg *pg, const char *name, const char *sql, struct err *err) MUST_CHECK;
/* pg_send of a prepared statement; SQLSTATE 26000: this session has none of that name. */
bool pg_send_prepared(struct pg *pg, const char *name, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;
/*
 * Receives the answer of pg_send; call it after pg_step in state PG_BUSY. *ret_done false: there is
 * no whole answer yet (result NULL). Done: *ret_result has the rows, or the function returns false
 * with the server's error (the connection can still be used if its state is PG_IDLE).
 */
bool pg_receive(
    struct pg *pg, bool *ret_done, struct pg_result **ret_result, struct err *err) MUST_CHECK;

/*
 * Sends a script whose last statement is a COPY … TO STDOUT (FORMAT binary), as one simple query.
 * The statements before it must return no rows, e.g. SET LOCAL, LOCK TABLE.
 */
bool pg_send_copy(struct pg *pg, const char *script, struct err *err) MUST_CHECK;

enum pg_copy { PG_COPY_WAIT, PG_COPY_ROW, PG_COPY_END };
/*
 * Takes the next CopyData message (one row; the first carries the file header too). PG_COPY_WAIT:
 * poll, pg_step, and call again. PG_COPY_ROW: libpq allocated *ret_row and the caller owns it
 * (pg_free_row). PG_COPY_END: finished, the state is PG_IDLE again. False: the COPY failed (or was
 * cancelled: kind ERR_RETRY, SQLSTATE 57014), the state is PG_IDLE or PG_LOST; so rows that were
 * returned before may be of a COPY that fails in the end.
 */
bool pg_copy_next(struct pg *pg, enum pg_copy *ret_what, char **ret_row, int *ret_length,
    struct err *err) MUST_CHECK;
void pg_free_row(char *row);

/*
 * pg_copy_next that waits: *ret_row is the next message, or NULL at the end. If the thread is
 * interrupted (pg_interrupt_by), it fails with ERR_RETRY and PG_LOST.
 */
bool pg_copy_take(struct pg *pg, char **ret_row, int *ret_length, struct err *err) MUST_CHECK;

/*
 * COPY … FROM STDIN (FORMAT binary), blocking: pg_load_begin sends a script whose last statement it
 * is, pg_load_put sends bytes of the file (of any length, not only whole rows), and pg_load_end
 * ends it and waits for the answer. Between them the state is PG_BUSY. An error of the server comes
 * with pg_load_end. Errors and interruptions (ERR_RETRY) of the others leave PG_LOST, and the
 * server rolls back.
 */
bool pg_load_begin(struct pg *pg, const char *script, struct err *err) MUST_CHECK;
bool pg_load_put(struct pg *pg, const void *data, size_t length, struct err *err) MUST_CHECK;
bool pg_load_end(struct pg *pg, struct err *err) MUST_CHECK;

/*
 * Asks the server to cancel the running statement (blocking, short; on a connection of its own).
 * pg_receive or pg_copy_next still ends the statement, with 57014 unless it was finished by then.
 */
bool pg_cancel(struct pg *pg, struct err *err);

/*
 * pg_cancel_begin does what pg_cancel does, in a thread of its own, and returns at once.
 * pg_cancel_outcome returns the outcome until the caller releases the handle (pg_cancel_release;
 * NULL is fine). NULL: no thread could be started. *pg may be closed meanwhile.
 */
struct pg_cancel;
enum pg_cancel_outcome {
	PG_CANCEL_ASKING,
	PG_CANCEL_TAKEN, /* the server has the request: the statement ends soon if it can be ended
			  */
	PG_CANCEL_FAILED,
};
struct pg_cancel *pg_cancel_begin(struct pg *pg);
enum pg_cancel_outcome pg_cancel_outcome(const struct pg_cancel *cancel);
void pg_cancel_release(struct pg_cancel *cancel);

/* --- results ----------------------------------------------------------------------------- */

int pg_rows(const struct pg_result *result);
int pg_columns(const struct pg_result *result);
bool pg_is_null(const struct pg_result *result, int row, int column);
/* Text form (pg_query): NUL-terminated. Binary form (pg_receive): raw bytes, see pg_length. */
const char *pg_value(const struct pg_result *result, int row, int column); /* NULL: "" */
int pg_length(const struct pg_result *result, int row, int column);
/*
 * The getters never read outside the answer: a row or a column that the server did not send reads
 * as NULL, and a value that is not the expected number reads as 0. Such a value is logged
 * (postgres_value_unreadable).
 */
int64_t pg_int(const struct pg_result *result, int row, int column);  /* text form */
int32_t pg_int4(const struct pg_result *result, int row, int column); /* binary form */
int64_t pg_int8(const struct pg_result *result, int row, int column); /* binary form */
/*
 * Whether every value of a binary answer is NULL or has the expected type; a server may send
 * anything. The shape has one character for each column: l bigint, i int, b boolean, t text without
 * NUL, x anything. ERR_FATAL names the column.
 */
bool pg_has_shape(const struct pg_result *result, const char *shape, struct err *err) MUST_CHECK;
void pg_result_destroy(struct pg_result *result); /* NULL is fine */
DEFINE_OWNED(struct pg_result, pg_result_destroy)

/* The server's SQLSTATE of the last error ("" if there was none), to recognise special cases. */
const char *pg_sqlstate(const struct pg *pg);
/*
 * The DETAIL of the last error, by which functions of the schema name rows; "": none. A longer one
 * is cut.
 */
enum { PG_DETAIL_SIZE = 512 };
const char *pg_detail(const struct pg *pg);
int pg_server_version(const struct pg *pg); /* 150008; 0 while not connected */
/*
 * The process that accepted the connection. If pg_backend_pid() returns another one, a pooler is
 * between, and the next transaction may run in another session.
 */
int pg_backend(const struct pg *pg);
/* Whether connecting found a pooler between; false for a plain or a borrowed connection. */
bool pg_is_pooled(const struct pg *pg);
/*
 * Whether a connection may land on a standby: the dsn or PGHOST names several hosts, and
 * target_session_attrs is neither read-write nor primary.
 */
bool pg_may_land_on_standby(const struct pg *pg);
const char *pg_place(const struct pg *pg); /* "host:port/dbname" for messages, no password */
