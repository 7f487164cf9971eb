#pragma once
/*
 * A connection that is made again, with back-off, whenever it was lost. For the loops of publishers
 * and of the look-back's checkers; owned by one thread; nothing blocks but pg_start (a look-up of a
 * host's name).
 *
 * A link with a limit (link_limit) bounds what its statements cost the server:
 *   - each of them ends after limit_ms, by statement_timeout. Where the session is the link's own
 *     that is set once; behind a pooler it goes with each statement, in the same transaction. No
 *     other timeout of the role or the database counts.
 *   - what does not end so is cancelled (link_cancel), as a COMMIT that waits for a standby, of
 *     which statement_timeout knows nothing. The socket is not closed before the statement has
 *     ended: the server would go on with it, and with each new connection have one more session.
 *
 * Attempts that hang in the server's start-up are sessions too. So a link has one connection or
 * attempt at a time, and another attempt is made only when the server has ended the former one.
 */
#include "backoff.h"
#include "pg.h"

/*
 * A statement that is sent over and over: parsed and planned once, where the session is the link's
 * own. Behind a pooler the next transaction may run in another session.
 */
struct link_statement {
	const char *name, *sql;
};

struct link {
	const char *dsn;
	const struct link_statement *statements; /* the last one has no name; NULL: none */
	char name[96];                           /* application_name */
	int64_t limit_ms;                        /* of a statement; 0: none */
	char lasting[400], passing[400];         /* settings, of a session and of a transaction */
	struct pg *pg;                           /* NULL: not now */
	bool quiet; /* poll says that nothing came since the last step */
	enum link_stage {
		LINK_ASKS,     /* whose session it is */
		LINK_SETS,     /* the limit, where it is the link's own */
		LINK_SETTLES,  /* the other settings of the session */
		LINK_PREPARES, /* the statements */
		LINK_KNOWN,
	} stage;
	bool own;      /* the session is the link's: no pooler between */
	bool prepared; /* the statements are */
	bool pooled;   /* they were, and were not there when called */
	int answers;   /* received, to PREPARE statements */
	bool heard;    /* the server has taken a cancel of it */
	bool ending; /* cancelled: the rest of the answer is dropped, then the connection closed */
	struct pg_cancel *cancel;
	int64_t cancel_of; /* the connection (made) that it is about */
	int64_t cancel_at; /* to be asked again */
	int64_t asked_by;  /* the server must have heard of it */
	int64_t end_by;    /* the connection is closed whatever is under way */
	int64_t made;      /* connections */
	struct backoff backoff;
	int64_t connect_at;
	int64_t begun_at;
	int64_t connect_by; /* give up connecting by then, if that leaves no session behind */
	bool hangs;         /* an attempt that is not given up; lost_count has it already */
	int64_t lost_count; /* connections and attempts */
	char error[512];    /* why there is no connection; "" while there is one */
};

/* The strings and statements must outlive it. */
void link_init(
    struct link *link, const char *dsn, const char *name, const struct link_statement *statements);
void link_limit(struct link *link, int64_t limit_ms);
/* Ends the connection, whatever is under way on it; link_step makes another at once. */
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
	LINK_ANSWER, /* a statement is under way and something came: ask for its answer */
	LINK_LOST,   /* was lost just now, whatever was under way with it */
};
enum link_event link_step(struct link *link, int64_t now);
/* Gives up the connection (an answer that cannot be used); err may be NULL. */
void link_drop(struct link *link, int64_t now, const struct err *err);
/*
 * A statement failed. Gives up the connection when it leads to the wrong server, a standby or one
 * with another history: the next one may find the right one of several hosts; or when a prepared
 * statement no longer fits the schema.
 */
void link_failed(struct link *link, int64_t now, const struct err *err);
int64_t link_wait(const struct link *link);
