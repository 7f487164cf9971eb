#pragma once
/*
 * A connection that is made again, with back-off, whenever it was lost. Internal to outbox/publish;
 * owned by the publisher's thread; nothing blocks.
 */
#include "backoff.h"
#include "pg.h"

struct link {
	const char *dsn;
	char name[96]; /* application_name */
	struct pg *pg; /* NULL: not now */
	struct backoff backoff;
	int64_t connect_at;
	int64_t connect_by; /* give up connecting by then */
	int64_t lost_count;
	char error[512]; /* why there is no connection; "" while there is one */
};

void link_init(struct link *link, const char *dsn, const char *name);
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
 * with another history: the next one may find the right one of several hosts.
 */
void link_failed(struct link *link, int64_t now, const struct err *err);
int64_t link_wait(const struct link *link);
