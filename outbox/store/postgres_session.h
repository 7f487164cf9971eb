#pragma once
/*
 * A store's connection to PostgreSQL. It is opened when it is needed, and closed after each
 * failure, so that a failed statement leaves nothing behind. A call blocks for the timeout at most,
 * which includes the connect; only the resolution of a host name may take longer.
 *
 * Errors are those of pg.h. ERR_RETRY: the server is away, starting, a standby, or too slow.
 * Owned by one thread.
 */
#include "errors.h"
#include "pg.h"

enum postgres_session_kind {
	POSTGRES_SESSION_ANY,   /* a pooler may be between */
	POSTGRES_SESSION_OWN,   /* holds locks of the session: a pooler in between is ERR_CONFIG */
	POSTGRES_SESSION_PLAIN, /* runs the query of the business: its login's settings hold */
};

struct postgres_session {
	char *dsn;
	int timeout_ms;
	enum postgres_session_kind kind;
	struct pg *pg;
	int sessions; /* number of sessions begun so far */
};

/* Connects nowhere. dsn NULL: PG* variables. */
void postgres_session_init(struct postgres_session *server, const char *dsn, int timeout_ms,
    enum postgres_session_kind kind);
void postgres_session_finish(struct postgres_session *server);

/* Is there a session, or can one be begun? */
bool postgres_session_connect(struct postgres_session *server, struct err *err) MUST_CHECK;
/* Ends the session. */
void postgres_session_leave(struct postgres_session *server);
/*
 * Runs one statement in autocommit, in the open session or in a new one. NULL: the session has
 * ended, and the statement may or may not have been executed. ret_sqlstate: NULL, or room for 6
 * bytes; it becomes the SQLSTATE of the server's refusal, or "" if the connection failed. The
 * caller destroys the result.
 */
struct pg_result *postgres_session_ask(struct postgres_session *server, const char *sql,
    const struct pg_param *params, int count, char *ret_sqlstate, struct err *err);
