#pragma once
/*
 * The core of the doorbell of one database: when may the shards of this process sleep, and when
 * must they look? Events go in, actions come out, and time is an argument, so that a simulator can
 * drive it as outbox/publish/io/doorbell.c does. bell.c opens with the protocol.
 *
 * One bell serves all shard workers of a process that publish from one database. The caller
 * serializes the calls. Nothing blocks. Times are milliseconds of one monotonic clock.
 */
#include <stdbool.h>
#include <stdint.h>
#include "states.h"

struct bell;

enum {
	BELL_POLL_MS = 900, /* a shard that sleeps looks this often: within a second */
	BELL_QUIET_MS = 50, /* without rows and rings for this long, the bell tries to sleep */
	BELL_QUIET_MOST_MS = 5000, /* if the rings are for rows of other processes */
	BELL_LOOK_MS = 1000,       /* a shard that did not look by then: nobody sleeps */
	BELL_RETRY_MS = 50,        /* after a refused lock, doubled up to the next one */
	BELL_RETRY_MOST_MS = 1000,
	BELL_LATE_MOST_MS = 10000, /* the same after a shard that did not look */
	BELL_GRACE_MS = 500,       /* rows may be seen this long before their ring arrives */
	BELL_DISTRUST_MS =
	    60000, /* after rows for which nobody rang, shards poll as without a bell */
};

enum bell_state {
	BELL_OFF,      /* no session that can be used; shards poll */
	BELL_AWAKE,    /* the session listens and does not hold the lock; shards poll */
	BELL_TRYING,   /* the lock was requested */
	BELL_LOOKING,  /* the lock is held; some owned shard has not looked since */
	BELL_ASLEEP,   /* the lock is held, and every owned shard has looked since */
	BELL_LEAVING,  /* the lock is being released */
	BELL_DISTRUST, /* rows came for which nobody rang; shards poll */
	BELL_STATES
};
extern const struct state_table bell_states; /* their names and meanings */

/* pause_ms: rings wake the shards at most this often (poll_busy). */
struct bell *bell_create(int64_t pause_ms);
void bell_destroy(struct bell *bell); /* NULL is fine */

/* --- the shards ------------------------------------------------------------------------------ */

/* The seat of a shard worker; it owns no shard yet. Seats are numbers from 0 on. */
int bell_join(struct bell *bell);
void bell_leave(struct bell *bell, int64_t now, int seat);
/* The worker took its shard, or lost it. Only owned shards count. */
void bell_own(struct bell *bell, int64_t now, int seat, bool owns);
/*
 * A look for new rows is about to be sent; and its answer came. A look that failed, or that looked
 * at other rows (stream_looks), never ends: the next one begins. found: it opened a window, which
 * proves to have rows when bell_rows_came is called.
 */
void bell_look_begins(struct bell *bell, int seat);
void bell_look_ends(struct bell *bell, int64_t now, int seat, bool found);
void bell_rows_came(struct bell *bell, int seat);
/* The shard may poll every BELL_POLL_MS instead of its own interval. */
bool bell_may_doze(const struct bell *bell, int seat);
/* Grows whenever all owned shards must look at once. */
uint64_t bell_wakes(const struct bell *bell);

/* --- the session ----------------------------------------------------------------------------- */

/* Whether a session is wanted. If not, the caller closes it and calls bell_session_lost. */
bool bell_wants_session(const struct bell *bell);
/* The session listens on the channel, on the right server. */
void bell_session_ready(struct bell *bell, int64_t now);
/* The session ended, and with it the lock. Also while none is there. */
void bell_session_lost(struct bell *bell, int64_t now);
/* A notification came. */
void bell_rung(struct bell *bell, int64_t now);

enum bell_call {
	BELL_NOTHING,
	BELL_TRY,    /* probe ring and marks, then try the lock: see bell_tried */
	BELL_UNLOCK, /* release it; then bell_unlocked. It is given out once. */
};
/* The call to send on the idle session now. */
enum bell_call bell_next_call(struct bell *bell, int64_t now);
/*
 * granted: nobody had the ring or a mark, and the lock was granted after that, in a statement of
 * its own. Otherwise a writer of before is in its transaction, or another session has the lock.
 */
void bell_tried(struct bell *bell, int64_t now, bool granted);
void bell_unlocked(struct bell *bell, int64_t now);

/* --- the whole ------------------------------------------------------------------------------- */

/* The doorbell may be used; false, the default: shards poll, and no session is wanted. */
void bell_enable(struct bell *bell, int64_t now, bool enabled);
void bell_retune(struct bell *bell, int64_t pause_ms);
/* Time passes: call it when bell_wait says, and after events. */
void bell_step(struct bell *bell, int64_t now);
/*
 * When to call bell_step and bell_next_call if nothing happens before. A time that is past: at
 * once; INT64_MAX: never.
 */
int64_t bell_wait(const struct bell *bell);

struct bell_status {
	enum bell_state state;
	int64_t rung;    /* notifications that woke the shards, since the bell was created */
	int64_t missed;  /* how often rows came for which nobody rang */
	int owned;       /* shards */
	uint64_t grants; /* how often the lock was granted */
};
struct bell_status bell_status(const struct bell *bell);
