#pragma once
/*
 * Finds the session that keeps upkeep from its locks (the rows of outbox.upkeep_lock). Another
 * relay's upkeep holds a lock for moments, so a session is named when two steps in a row found it.
 * Each change is logged.
 */
#include "config.h"
#include "pg.h"

/* {0} to begin with. Owned by the thread of the steps. */
struct upkeep_lock {
	char seen[512];   /* the holder that the last step found; "" */
	char holder[512]; /* the holder that two steps in a row found, as a sentence; "" */
};

/* Call it after each step. busy: the step could not get a lock of upkeep or of a table. */
bool upkeep_lock_look(struct upkeep_lock *lock, struct pg *pg,
    const struct postgres_settings *postgres, bool busy, struct err *err) MUST_CHECK;
