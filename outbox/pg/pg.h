#pragma once
/*
 * One connection to Postgres on libpq: the only folder that includes libpq. Two ways of use on the
 * same struct: blocking calls (commands, upkeep) and the non-blocking calls below for event loops.
 * A connection belongs to one thread at a time. Results are owned by the caller.
 *
 * This folder sets search_path, row_security and the other settings that our statements depend on
 * before the first statement, so defaults of the database and the role do not apply
 * (sql/queries/session_settings.sql).
 *
 * Works through PgBouncer in transaction mode: no session state, so that each transaction brings
 * its settings, in the same flight; statements are named only where a caller asks for it
 * (pg_send_prepare), who must know that the session is its own (pg_backend).
 *
 * SQLSTATE is translated here once: class 08, 57P0x, 53xxx, 40001, 40P01, 55P03 (lock timeout),
 * 57014 (cancelled), 25006 (on a standby) and a lost connection are ERR_RETRY; 28xxx and 42501
 * ERR_DENIED; 3D000 (no such database) ERR_CONFIG; 3F000/42P01/42703/42883 (no schema, table,
 * column, function) ERR_CONFIG with "run `outbox-relay migrate up`"; 23505 ERR_FENCED; others
 * ERR_FATAL. Messages read "host:port/db: what (SQLSTATE 42P01); what to do"; they never hold a
 * password or the server's DETAIL, which may quote a row. Notices are logged at debug level.
 */
#include <stdint.h>
#include <stddef.h>
#include "cleanup.h"
#include "errors.h"

struct pg;
struct pg_result;

/* A parameter in text form, or so many bytes of binary form (pg_column); NULL text is SQL NULL. */
struct pg_param {
	const char *text;
	size_t length; /* 0: text form */
};

/* --- connection -------------------------------------------------------------------------- */

/*
 * Starts connecting and returns at once (pg_step drives it on; only the resolver, for a host given
 * by name, may block). dsn "" uses PG* variables. Fails only for a dsn that cannot be used
 * (ERR_CONFIG). application names the session ("outbox-relay main/0") unless the dsn does.
 *
 * What the dsn does not set: a dead peer is noticed after about 10 s (keepalives,
 * tcp_user_timeout), also as one of several hosts while connecting. client_encoding is UTF8.
 */
struct pg *pg_start(const char *dsn, const char *application, struct err *err);
/*
 * pg_start and pg_step until it is up or timeout_ms passed (less, when the dsn's connect_timeout
 * for its hosts is less); NULL on failure.
 */
struct pg *pg_connect(const char *dsn, const char *application, int timeout_ms, struct err *err);
/*
 * The same for a session that runs somebody else's statements, such as a function of the business
 * or the user's query: the login's own settings hold, search_path too. Our part of such a statement
 * must qualify every name.
 */
struct pg *pg_start_plain(const char *dsn, const char *application, struct err *err);
struct pg *pg_connect_plain(
    const char *dsn, const char *application, int timeout_ms, struct err *err);
void pg_destroy(struct pg *pg); /* NULL is fine */

/* Whether a connection could be started by this dsn (ERR_CONFIG). Nothing is connected to. */
bool pg_dsn_check(const char *dsn, struct err *err) MUST_CHECK;

/*
 * Whether a connection by this dsn may go unencrypted to another machine: sslmode (also that of
 * PGSSLMODE) asks for no TLS, and a host is neither loopback nor a Unix socket. False for a dsn
 * that cannot be used.
 */
bool pg_dsn_is_exposed(const char *dsn);

struct pg_conn; /* libpq's PGconn, by its tag */
/*
 * Somebody else's connection, for blocking calls in the transaction that is open on it, by the
 * thread that owns it; pg_destroy leaves it as it is. ERR_REJECT: no transaction is open, or one
 * that has failed, or the connection is busy; ERR_RETRY: it is lost.
 */
struct pg *pg_borrow(struct pg_conn *connection, struct err *err);
DEFINE_OWNED(struct pg, pg_destroy)

/*
 * For a server that is not trusted: while connecting, and for each statement, no more than about so
 * many bytes are read from the socket (plus what the kernel has buffered). Beyond that
 * the connection is lost (ERR_REJECT), and pg_is_flooded says so. 0, as at first: no limit.
 */
void pg_limit_answer(struct pg *pg, int64_t bytes);
bool pg_is_flooded(const struct pg *pg);

enum pg_state {
	PG_CONNECTING, /* wait for pg_fd with pg_events, then pg_step */
	PG_IDLE,       /* a query may be sent */
	PG_BUSY,       /* a query is under way: wait for pg_fd, then pg_step */
	PG_LOST,       /* pg_step said why; destroy it and start anew */
};
enum pg_state pg_state(const struct pg *pg);
/* How far PG_CONNECTING is. */
enum pg_connecting {
	PG_REACHES,    /* nobody took the connection yet */
	PG_STARTS_UP,  /* the server may have a session for it, which it ends after
			  authentication_timeout */
	PG_IS_ADMITTED /* the server has a session for it, for as long as both live */
};
enum pg_connecting pg_connecting(const struct pg *pg);
/* The socket changes while connecting (next host). -1: nothing to wait for, call pg_step. */
int pg_fd(const struct pg *pg);
/*
 * POLLIN | POLLOUT wanted now. 0 while libpq holds rows of a COPY: they are to be taken first
 * (pg_copy_next until PG_COPY_WAIT).
 */
short pg_events(const struct pg *pg);

/*
 * Moves things on without blocking; may be called at any time. False: the connection is lost
 * (PG_LOST), *err says why. After it returned in state PG_BUSY call pg_receive or pg_copy_next.
 *
 * While a COPY runs it reads from the socket only after PG_COPY_WAIT. So memory holds one buffer
 * (about 16 kB, or the largest row), and TCP holds back the server while the caller takes no rows.
 */
bool pg_step(struct pg *pg, struct err *err) MUST_CHECK;

/* --- blocking ---------------------------------------------------------------------------- */

/* The state must be PG_IDLE (PG_LOST fails). They wait as long as the server lives. */

/*
 * While fd (an eventfd that nobody reads) is readable, the blocking calls of this thread end soon:
 * connecting is given up, and what runs is cancelled (ERR_RETRY). -1, as at first: nothing does.
 */
void pg_interrupt_by(int fd);

/*
 * Runs one statement with text parameters, waits, returns its rows in text form; NULL on error.
 */
struct pg_result *pg_query(
    struct pg *pg, const char *sql, const struct pg_param *params, int count, struct err *err);
/*
 * pg_query that waits so long at most: then it is ERR_RETRY and PG_LOST, and what became of the
 * statement is not known.
 */
struct pg_result *pg_query_within(struct pg *pg, const char *sql, const struct pg_param *params,
    int count, int timeout_ms, struct err *err);
/*
 * Prepares sql under a name for the rest of the session (pg_send_prepare says what that asks for),
 * and pg_query of what was prepared: SQLSTATE 26000 when nothing was, in this session.
 */
bool pg_prepare(struct pg *pg, const char *name, const char *sql, struct err *err) MUST_CHECK;
struct pg_result *pg_query_prepared(
    struct pg *pg, const char *name, const struct pg_param *params, int count, struct err *err);
/* pg_query without rows. */
bool pg_execute(struct pg *pg, const char *sql, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;
/*
 * Several statements in one simple query (a script, one implicit transaction unless it has its
 * own). Stops at the first error. A COPY in it is refused (ERR_FATAL, PG_LOST).
 */
bool pg_script(struct pg *pg, const char *sql, struct err *err) MUST_CHECK;
/*
 * One statement that the server refuses inside of a transaction, such as VACUUM: behind a pooler it
 * runs with the settings of the pooler's session.
 */
bool pg_script_alone(struct pg *pg, const char *sql, struct err *err) MUST_CHECK;

/* --- non-blocking ------------------------------------------------------------------------ */

/*
 * State must be PG_IDLE (PG_LOST fails). Rows come in binary form. The strings are copied before it
 * returns.
 */
bool pg_send(struct pg *pg, const char *sql, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;
/*
 * pg_send with a statement before it, in the same transaction and the same round trip: settings,
 * a SELECT of set_config(…, true). Its own answer is dropped. For a session that is not one's own.
 */
bool pg_send_behind(struct pg *pg, const char *settings, const char *sql,
    const struct pg_param *params, int count, struct err *err) MUST_CHECK;
/*
 * Several statements as pg_script has them; the answer (pg_receive) is the last one's, its rows in
 * text form.
 */
bool pg_send_script(struct pg *pg, const char *script, struct err *err) MUST_CHECK;
/*
 * Prepares sql under a name for the rest of the session; the answer (pg_receive) has no rows. A
 * name that is taken is an error.
 */
bool pg_send_prepare(struct pg *pg, const char *name, const char *sql, struct err *err) MUST_CHECK;
/* pg_send of what was prepared under the name; SQLSTATE 26000: nothing was, in this session. */
bool pg_send_prepared(struct pg *pg, const char *name, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;
/*
 * The answer of pg_send: call when the state was BUSY and pg_step returned. *ret_done false: not
 * yet (result NULL). Done: *ret_result has the rows, or false with err from the server (the
 * connection may go on when its state is PG_IDLE).
 */
bool pg_receive(
    struct pg *pg, bool *ret_done, struct pg_result **ret_result, struct err *err) MUST_CHECK;

/*
 * A COPY … TO STDOUT (FORMAT binary), last of a script sent as one simple query (statements before
 * it must return no rows, e.g. SET LOCAL, LOCK TABLE).
 */
bool pg_send_copy(struct pg *pg, const char *script, struct err *err) MUST_CHECK;

enum pg_copy { PG_COPY_WAIT, PG_COPY_ROW, PG_COPY_END };
/*
 * The next CopyData message (one row; the first carries the file header too). PG_COPY_WAIT: poll,
 * pg_step, come back. PG_COPY_ROW: *ret_row is malloc'ed by libpq and the caller's (pg_free_row).
 * PG_COPY_END: finished, state is PG_IDLE again. False: failed (or cancelled: kind ERR_RETRY,
 * SQLSTATE 57014), state PG_IDLE or PG_LOST; rows already given out may be of a COPY that failed.
 */
bool pg_copy_next(struct pg *pg, enum pg_copy *ret_what, char **ret_row, int *ret_length,
    struct err *err) MUST_CHECK;
void pg_free_row(char *row);

/*
 * Asks the server to cancel what runs (blocking, short; own connection). What was asked still ends
 * by pg_receive or pg_copy_next, with 57014 unless it was finished by then.
 */
bool pg_cancel(struct pg *pg, struct err *err);

/*
 * As pg_cancel, in a thread of its own: returns at once. pg_cancel_outcome returns the outcome
 * until the caller releases the handle (pg_cancel_release; NULL is fine). Returns NULL if no thread
 * could be started. *pg may be closed meanwhile.
 */
struct pg_cancel;
enum pg_cancel_outcome {
	PG_CANCEL_ASKING,
	PG_CANCEL_TAKEN, /* the server has it: the statement ends soon, unless nothing can end it */
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
 * Reading never leaves the answer: a row or a column that the server did not send reads as NULL,
 * and a value that is not the number it should be reads as 0. Such a value is logged
 * (postgres_value_unreadable).
 */
int64_t pg_int(const struct pg_result *result, int row, int column);  /* text form */
int32_t pg_int4(const struct pg_result *result, int row, int column); /* binary form */
int64_t pg_int8(const struct pg_result *result, int row, int column); /* binary form */
/*
 * Whether every value of a binary answer has the form that the reader expects, NULL included; a
 * server may send anything. The shape has one character a column: l bigint, i int, b boolean, t
 * text without NUL, x anything. ERR_FATAL names the column.
 */
bool pg_has_shape(const struct pg_result *result, const char *shape, struct err *err) MUST_CHECK;
void pg_result_destroy(struct pg_result *result); /* NULL is fine */
DEFINE_OWNED(struct pg_result, pg_result_destroy)

/* The server's SQLSTATE of the last error ("" when none), e.g. for tests of a special case. */
const char *pg_sqlstate(const struct pg *pg);
int pg_server_version(const struct pg *pg); /* 150008; 0 while not connected */
/*
 * The process that let the connection in. When pg_backend_pid() says another one there is a pooler
 * between, and the next transaction may run in another session.
 */
int pg_backend(const struct pg *pg);
/* That is so, as far as was seen while connecting; false for a plain or a borrowed connection. */
bool pg_is_pooled(const struct pg *pg);
/*
 * Several hosts are named, in the dsn or PGHOST, and target_session_attrs asks neither for
 * read-write nor for primary: a connection may land on a standby.
 */
bool pg_may_land_on_standby(const struct pg *pg);
const char *pg_place(const struct pg *pg); /* "host:port/dbname" for messages, no password */
