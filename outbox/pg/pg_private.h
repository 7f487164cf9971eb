#pragma once
/* Within outbox/pg: the connection, shared by pg.c (its life) and pg_statement.c (its use). */
#include <libpq-fe.h>
#include "failure.h"
#include "pg.h"

struct pg {
	PGconn *connection;
	bool borrowed; /* the connection is somebody else's */
	enum pg_state state;
	char *dsn;                         /* until it is up: to know what an error must not show */
	PostgresPollingStatusType polling; /* PG_CONNECTING: what libpq waits for */

	/* PG_BUSY */
	bool flushing;    /* libpq holds bytes of the query that the socket did not take */
	bool pipelined;   /* pg_send_behind: the answer ends with a synchronisation */
	bool wants_copy;  /* pg_send_copy: a COPY is expected */
	bool copying;     /* between its start and its last row */
	bool drained;     /* copying: libpq holds no whole row, so that reading on is right */
	PGresult *answer; /* the first error, or else the last result so far */

	int64_t answer_limit, received; /* pg_limit_answer; bytes since the statement was sent */
	bool flooded;                   /* the limit was exceeded */

	char sqlstate[SQLSTATE_SIZE];
	struct err
	    farewell; /* why the connection is to be given up: the server's FATAL, …; or "" */
	char place[320];
};

/*
 * The connection is of no more use: PG_LOST, and what it was lost by in *err, the server's last
 * words if there were any. Returns false.
 */
bool pg_lose(struct pg *pg, struct err *err);

/*
 * PQconsumeInput within the limit of the answer. False: the connection is gone, or the server sends
 * too much.
 */
bool pg_consume(struct pg *pg);

/* Counts what waits in the socket. False: the server sends too much. */
bool pg_is_within_limit(struct pg *pg);

/* Fills place from what is connected, or tried. */
void pg_note_place(struct pg *pg);

/* False, with *err: the connection was lost before. */
bool pg_is_there(const struct pg *pg, struct err *err);

bool pg_is_error(const PGresult *result);

/* Makes result pg->answer, which is the first error, or else the last result; takes it over. */
void pg_keep_answer(struct pg *pg, PGresult *result);

/* Whether TLS has decrypted bytes which poll cannot see and libpq has not taken. */
bool pg_tls_holds_bytes(const struct pg *pg);

/*
 * Sleeps until pg_fd is ready for pg_events; timeout_ms as in poll(2). True: the thread is
 * interrupted (pg_interrupt_by), which ends the sleep as well.
 */
bool pg_wait(const struct pg *pg, int timeout_ms);

/* Fills *err and the SQLSTATE from a result that is an error. Returns false. */
bool pg_report(struct pg *pg, const PGresult *error, struct err *err);
