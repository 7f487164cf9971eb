#pragma once
/*
 * A connection that is made again, with back-off, whenever it is lost. For the loops of publishers
 * and of the look-back's checkers; owned by one thread; nothing blocks except pg_start (a look-up
 * of a host's name).
 *
 * A link with a limit (link_limit) bounds the cost of its statements for the server:
 *   - statement_timeout ends each statement after limit_ms. In a session of its own the link sets
 *     that once; behind a pooler it goes with each statement, in the same transaction. No other
 *     timeout of the role or the database applies.
 *   - link_cancel cancels a statement that does not end in this way, such as a COMMIT that waits
 *     for a standby, which statement_timeout does not cover. The link closes the socket only after
 *     the statement has ended: otherwise the server would go on with it, and would have one more
 *     session with each new connection.
 *
 * An attempt to connect that hangs in the server's start-up is a session too. So a link has one
 * connection or attempt at a time, and makes another attempt only after the server has ended the
 * former one.
 */
#include "backoff.h"
#include "pg.h"

/*
 * A statement that is sent again and again. In a session of its own the link prepares it once.
 * Behind a pooler it does not: the next transaction may run in another session.
 */
struct link_statement {
	const char *name, *sql;
};

struct link {
	const char *dsn;
	const struct link_statement *statements; /* the last one has no name; NULL: none */
	char name[96];                           /* application_name */
	int64_t limit_ms;                        /* of a statement; 0: no limit */
	char lasting[400], passing[400];         /* the limit for a session and a transaction */
	struct pg *pg;                           /* NULL: there is no connection now */
	bool quiet; /* poll says that nothing came since the last step */
	enum link_stage {
		LINK_ASKS,     /* finds out whether a pooler is between */
		LINK_SETS,     /* sets the limit, in a session of its own */
		LINK_SETTLES,  /* sets the other settings of the session */
		LINK_PREPARES, /* prepares the statements */
		LINK_KNOWN,
	} stage;
	bool own;      /* the session is the link's own: no pooler between */
	bool prepared; /* the statements are prepared in this session */
	bool pooled;   /* a prepared statement was missing once: there is a pooler */
	int answers;   /* received, to PREPARE statements */
	bool heard;    /* the server has taken a cancel request for the statement */
	bool ending; /* cancelled: the rest of the answer is dropped, then the connection closed */
	struct pg_cancel *cancel;
	int64_t cancel_of; /* the connection that it is for, a value of `made` */
	int64_t cancel_at; /* when to send the next cancel request */
	int64_t asked_by;  /* by then the server must have taken a cancel request */
	int64_t end_by;    /* by then the connection is closed in any case */
	int64_t made;      /* number of connections made so far */
	struct backoff backoff;
	int64_t connect_at;
	int64_t begun_at;
	int64_t connect_by; /* give up connecting by then, if that leaves no session behind */
	bool hangs;         /* the attempt hangs and is not given up; lost_count has it already */
	int64_t lost_count; /* lost connections and failed attempts */
	char error[512];    /* why there is no connection; "" while there is one */
};

/* The strings and statements must outlive the link. */
void link_init(
    struct link *link, const char *dsn, const char *name, const struct link_statement *statements);
void link_limit(struct link *link, int64_t limit_ms);
/* Closes the connection, even with a statement in flight; link_step makes another at once. */
void link_finish(struct link *link);
/*
 * As link_finish, but first cancels the statement on the server, and connects again only when the
 * statement has ended or failed, when the server took no cancel request within two more limits, or
 * when the statement goes on for ten limits.
 */
void link_cancel(struct link *link, int64_t now);
/* A statement with parameters in text form, under the limit; the answer in binary form. */
bool link_send(const struct link *link, const char *sql, const struct pg_param *params, int count,
    struct err *err) MUST_CHECK;

enum link_event {
	LINK_NONE,
	LINK_READY,  /* idle: a statement may be sent */
	LINK_ANSWER, /* a statement is in flight and something came: receive its answer */
	LINK_LOST,   /* the connection was lost just now, with any statement in flight */
};
enum link_event link_step(struct link *link, int64_t now);
/* Gives up the connection (an answer that cannot be used); err may be NULL. */
void link_drop(struct link *link, int64_t now, const struct err *err);
/*
 * A statement failed. Gives up the connection if it leads to the wrong server (a standby, or one
 * with another history), as the next attempt may find the right one of several hosts; or if a
 * prepared statement no longer fits the schema.
 */
void link_failed(struct link *link, int64_t now, const struct err *err);
int64_t link_wait(const struct link *link);
