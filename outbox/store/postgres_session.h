#pragma once
/*
 * A store's connection to a Postgres: made when it is needed, and given up after each failure, so
 * that what a failed statement left behind goes with its session. A call ends within the timeout,
 * connecting included (but for the resolver, when a host is given by name).
 *
 * Errors are those of pg.h: a server that is gone, starts, is a standby or does not answer in time
 * is ERR_RETRY. Owned by one thread.
 */
#include "errors.h"
#include "pg.h"

enum postgres_session_kind {
	POSTGRES_SESSION_ANY,   /* a pooler may stand between */
	POSTGRES_SESSION_OWN,   /* holds locks of the session: a pooler in between is ERR_CONFIG */
	POSTGRES_SESSION_PLAIN, /* runs the query of the business: its login's settings hold */
};

struct postgres_session {
	char *dsn;
	int timeout_ms;
	enum postgres_session_kind kind;
	struct pg *pg;
	int sessions; /* that were begun; 0: none yet */
};

/* Connects nowhere. dsn NULL: PG* variables. */
void postgres_session_init(struct postgres_session *server, const char *dsn, int timeout_ms,
    enum postgres_session_kind kind);
void postgres_session_finish(struct postgres_session *server);

/* Is there a session, or can one be begun? */
bool postgres_session_connect(struct postgres_session *server, struct err *err) MUST_CHECK;
/* The session's end. */
void postgres_session_leave(struct postgres_session *server);
/*
 * One statement, in autocommit, in the session that is there, or in a new one. NULL: the session
 * has ended, and what became of the statement is not known. ret_sqlstate, with room for 6 bytes:
 * by what the server refused the statement, or "" when it was the connection; it may be NULL. The
 * caller destroys the result.
 */
struct pg_result *postgres_session_ask(struct postgres_session *server, const char *sql,
    const struct pg_param *params, int count, char *ret_sqlstate, struct err *err);
