#pragma once
/*
 * Watches the sequence of outbox.message.id. Publishing relies on ids that rise: a listed window
 * names its rows by them, and the rows of a key are ordered by them. A restore, TRUNCATE … RESTART
 * IDENTITY, setval or ALTER SEQUENCE may send the sequence back while the relay runs. No
 * message is lost by that, since kept rows are compared by their event ids; but the order of a key
 * is at risk. So the watch raises the sequence and reports it.
 *
 * Owned by one thread; a step blocks while it talks to the server.
 */
#include "pg.h"

struct id_watch {
	const char *database, *schema; /* must outlive it */
	int64_t highest;               /* the largest id that the sequence gave out */
	int64_t last;                  /* the sequence at the last step */
	bool unordered;                /* CACHE or INCREMENT is wrong, and this was logged */
	bool prepared;                 /* the session has the statement that reads the sequence */
};

/* Makes the metrics: a counter that is there from the start shows its first change. */
void id_watch_init(struct id_watch *watch, const char *database, const char *schema);
/* The next step has a new session. */
void id_watch_reconnects(struct id_watch *watch);
/*
 * rests: the doorbell sleeps, and no message was written since the last step, so only a changed
 * sequence is of interest.
 */
bool id_watch_step(struct id_watch *watch, struct pg *pg, bool rests, struct err *err) MUST_CHECK;
