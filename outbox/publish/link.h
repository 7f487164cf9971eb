#pragma once
/*
 * A connection that is made again, with back-off, whenever it was lost. For the loops of publishers
 * and of the look-back's checkers; owned by one thread; nothing blocks but pg_start (a look-up of a
 * host's name).
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
	struct pg *pg;                           /* NULL: not now */
	bool quiet;      /* poll says that nothing came since the last step */
	bool introduced; /* what follows is known */
	bool prepared;   /* the statements are */
	bool pooled;     /* they were, and were not there when called */
	int answers;     /* heard while it is introduced */
	struct backoff backoff;
	int64_t connect_at;
	int64_t connect_by; /* give up connecting by then */
	int64_t lost_count;
	char error[512]; /* why there is no connection; "" while there is one */
};

/* The strings and statements must outlive it. */
void link_init(
    struct link *link, const char *dsn, const char *name, const struct link_statement *statements);
/* Ends the connection, whatever is under way on it; link_step makes another at once. */
void link_finish(struct link *link);

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
