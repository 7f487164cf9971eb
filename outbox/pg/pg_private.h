#pragma once
/* Within outbox/pg: the connection, shared by pg.c (its life) and pg_statement.c (its use). */
#include <libpq-fe.h>
#include "failure.h"
#include "pg.h"
#include "pg_password.h"

struct pg {
	PGconn *connection; /* NULL: password still runs; libpq takes NULL for a lost one */
	struct pg_password *password; /* its command runs; NULL: no command, or it has ended */
	char *application;            /* while the command runs */
	bool borrowed;                /* the application owns the connection */
	bool plain;                   /* pg_start_plain: no settings */
	bool settling; /* PG_CONNECTING: the statement with the settings is in flight */
	bool pooled; /* another session may serve the next transaction: each brings its settings */
	enum pg_state state;
	char *dsn; /* while connecting: an error must not show its password */
	PostgresPollingStatusType polling; /* PG_CONNECTING: what libpq waits for */

	/* PG_BUSY */
	bool flushing;    /* libpq holds bytes of the query that the socket did not take */
	bool pipelined;   /* several statements in one flight (pg_pipeline) */
	int syncs;        /* pipelined: synchronisations still to come */
	int statement;    /* pipelined: number of the statement whose results come now, from 0 */
	int wanted;       /* pipelined: number of the statement that the caller sent */
	bool wants_copy;  /* pg_send_copy: a COPY is expected */
	bool wants_load;  /* pg_load_begin: a COPY FROM STDIN is expected */
	bool copying;     /* between the start of the COPY and its last row */
	bool drained;     /* copying: libpq holds no whole row, so pg_step may read */
	PGresult *answer; /* the first error, or else the last result so far */

	int64_t answer_limit, received; /* pg_limit_answer; bytes since the statement was sent */
	bool flooded;                   /* the limit was exceeded */

	char sqlstate[SQLSTATE_SIZE];
	char detail[PG_DETAIL_SIZE];
	struct err
	    farewell; /* why the connection must be given up, e.g. the server's FATAL; or "" */
	char place[320];
};

/*
 * The connection is lost: sets PG_LOST, and *err to the reason, the server's last words if there
 * were any. Returns false.
 */
bool pg_lose(struct pg *pg, struct err *err);

/*
 * PQconsumeInput within the limit of the answer. False: the connection is lost, or the server sends
 * too much.
 */
bool pg_consume(struct pg *pg);

/* Counts the bytes that wait in the socket. False: the server sends too much. */
bool pg_is_within_limit(struct pg *pg);

/* Sets place to the server that is connected, or tried now. */
void pg_note_place(struct pg *pg);

/* False, with *err: the connection was lost before. */
bool pg_is_there(const struct pg *pg, struct err *err);

bool pg_is_error(const PGresult *result);

/* Makes result the answer, unless the answer is an error already; takes result over. */
void pg_keep_answer(struct pg *pg, PGresult *result);

/* Whether TLS has decrypted bytes which poll cannot see and libpq has not taken. */
bool pg_tls_holds_bytes(const struct pg *pg);

/*
 * Sleeps until pg_fd is ready for pg_events; timeout_ms as in poll(2). True: the thread is
 * interrupted (pg_interrupt_by), which ends the sleep as well.
 */
bool pg_wait(const struct pg *pg, int timeout_ms);

/*
 * The session (pg_session.c). A session of our own gets the settings once, while connecting; behind
 * a pooler they precede each transaction.
 */
bool pg_settle_begin(struct pg *pg, struct err *err);
bool pg_settle_step(struct pg *pg, struct err *err);
/* Must the settings precede the next statement? Inside a transaction they are set already. */
bool pg_needs_settings(const struct pg *pg);
/* The settings as a statement; the caller frees. */
char *pg_settings(const struct pg *pg);

/* False: libpq has no whole result yet. *ret_result NULL: the answer is over. */
bool pg_take_result(struct pg *pg, PGresult **ret_result);

/* Fills *err and the SQLSTATE from a result that is an error. Returns false. */
bool pg_report(struct pg *pg, const PGresult *error, struct err *err);
