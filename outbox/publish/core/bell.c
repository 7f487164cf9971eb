/*
 * The doorbell: writers ring when, and only when, the relay sleeps.
 *
 * Asleep is an advisory lock of the database, held by one session of the process, the bell. A
 * writer's insert tests the lock, shared and to the end of its transaction. Granted: the relay is
 * awake and polls, and the writer does nothing more. Refused: the writer sends a NOTIFY with its
 * commit, unless another transaction has the ring, a second lock. Then it leaves its mark, a third
 * lock, shared and to the end of its transaction as well.
 *
 * The bell first probes ring and marks: a writer of an earlier sleep may still be in its
 * transaction, and nobody would ring for its rows. Then it tries its lock, which it gets only when
 * every writer that was granted it has ended. So under the lock all writers that tested before have
 * ended, and their rows are visible to a look that begins now. Each owned shard looks once more;
 * every later writer rings. After the last shard has looked all of them sleep: they look again
 * after a ring and, in case that nobody rings, every BELL_POLL_MS.
 *
 * A ring ends the sleep: the bell releases its lock and the shards poll. When nothing came for a
 * while, the bell begins again with the probe. If the rings were for rows of other processes, it
 * waits longer each time.
 *
 * Rows that a sleeping shard finds have no ring yet. The ring follows within milliseconds, as a
 * commit is visible before its notification is delivered. Otherwise nobody rang: the trigger does
 * not work, the ringer rolled back or stays open, or the session is on the wrong server. The sleep
 * ends at once, and after BELL_GRACE_MS without a ring the shards poll for BELL_DISTRUST_MS as if
 * there were no bell. The session is closed meanwhile, so that the next one looks for server, table
 * and trigger again.
 */
#include "bell.h"

#include <assert.h>
#include <stdlib.h>

#include "text.h"

struct bell_seat {
	bool taken, owns;
	uint64_t began;  /* the grant under which the look in flight began; 0: none */
	uint64_t looked; /* the grant under which the last finished look began; 0: none */
};

struct bell {
	enum bell_state state; /* move_bell sets it */
	int64_t pause_ms;
	bool enabled;
	struct bell_seat *seats;
	int seat_count, seat_capacity, owned;
	uint64_t grants; /* how often the lock was granted */
	uint64_t wakes;
	int64_t woken_at, wake_at; /* the last wake; when the next one is due, INT64_MAX: none is */
	int64_t busy_at;           /* the last ring, or look that found rows */
	int64_t try_at;            /* earliest time of the next try */
	int64_t retry_ms;          /* after the last try; 0: it succeeded */
	int64_t quiet_ms;          /* from busy_at to the next try */
	int64_t look_by;           /* LOOKING: then the lock is released */
	int64_t suspect_at;        /* a window opened without a ring, which may follow; 0: no */
	int suspect_seat;          /* of that window */
	bool confirmed;            /* that window has rows: they may come late, by pages */
	int64_t distrust_until;
	bool unlocks;     /* LEAVING: the call was given out */
	bool rung_in_try; /* a ring came since the try began */
	bool found;       /* an own look has found rows since the lock was got */
	int64_t rung, missed;
};

/* --- states ---------------------------------------------------------------------------------- */

#define MAY(state) (1U << BELL_##state)

static const struct state_row bell_rows[BELL_STATES] = {
    [BELL_OFF] = {"off", MAY(AWAKE) | MAY(DISTRUST),
	"there is no session that can be used as a doorbell; the shards poll"},
    [BELL_AWAKE] = {"awake", MAY(TRYING) | MAY(OFF) | MAY(DISTRUST),
	"messages come, or a writer has not ended yet; the shards poll"},
    [BELL_TRYING] = {"trying", MAY(LOOKING) | MAY(AWAKE) | MAY(LEAVING) | MAY(OFF),
	"nothing came for a while: the doorbell asks for its lock"},
    [BELL_LOOKING] = {"looking", MAY(ASLEEP) | MAY(LEAVING) | MAY(OFF),
	"writers ring from now on; each shard looks once more"},
    [BELL_ASLEEP] = {"asleep", MAY(LOOKING) | MAY(LEAVING) | MAY(OFF),
	"the shards look when a writer rings, and once a second"},
    [BELL_LEAVING] = {"leaving", MAY(AWAKE) | MAY(OFF),
	"a message came: the doorbell releases its lock; the shards poll"},
    [BELL_DISTRUST] = {"distrust", MAY(OFF),
	"messages came for which nobody rang; the shards poll for a minute"},
};

const struct state_table bell_states = {"doorbell of a database", bell_rows, BELL_STATES, BELL_OFF};

static bool holds_lock(const struct bell *bell)
{
	return bell->state == BELL_LOOKING || bell->state == BELL_ASLEEP;
}

static bool has_everyone_looked(const struct bell *bell)
{
	for (int i = 0; i < bell->seat_count; i++)
		if (bell->seats[i].owns && bell->seats[i].looked != bell->grants)
			return false;
	return true;
}

static bool fits_bell_state(const struct bell *bell)
{
	switch (bell->state) {
	case BELL_LOOKING:
		return bell->owned > 0;
	case BELL_ASLEEP:
		return bell->owned > 0 && has_everyone_looked(bell) && !bell->suspect_at;
	case BELL_DISTRUST:
		return !bell->suspect_at;
	default:
		return true;
	}
}

static void move_bell(struct bell *bell, enum bell_state state)
{
	states_check(&bell_states, bell->state, state);
	bell->state = state;
	if (STATES_CHECKED)
		states_expect(fits_bell_state(bell));
}

struct bell *bell_create(int64_t pause_ms)
{
	struct bell *bell = xcalloc(1, sizeof *bell);

	bell->pause_ms = pause_ms;
	bell->found = true;
	bell->wake_at = INT64_MAX;
	return bell;
}

void bell_destroy(struct bell *bell)
{
	if (!bell)
		return;
	free(bell->seats);
	free(bell);
}

/* --- falling asleep and waking up ------------------------------------------------------------ */

static void wake_shards(struct bell *bell, int64_t now)
{
	bell->wakes++;
	bell->woken_at = now;
	bell->wake_at = INT64_MAX;
}

static void leave_sleep(struct bell *bell)
{
	bell->unlocks = false;
	move_bell(bell, BELL_LEAVING);
}

/* Releases the lock. The shards look at once, and poll from then on. */
static void end_sleep(struct bell *bell, int64_t now)
{
	leave_sleep(bell);
	wake_shards(bell, now);
	bell->busy_at = now;
}

/* The next try comes later each time, up to `most`. */
static void try_later(struct bell *bell, int64_t now, int64_t most)
{
	bell->retry_ms = bell->retry_ms ? bell->retry_ms * 2 : BELL_RETRY_MS;
	if (bell->retry_ms > most)
		bell->retry_ms = most;
	bell->try_at = now + bell->retry_ms;
}

static void fall_asleep(struct bell *bell)
{
	if (bell->state != BELL_LOOKING || !has_everyone_looked(bell))
		return;
	bell->retry_ms = 0;
	move_bell(bell, BELL_ASLEEP);
}

/* A sleep without an owned shard would only make writers ring. */
static void heed_owned(struct bell *bell, int64_t now)
{
	if (holds_lock(bell) && (bell->owned == 0 || !bell->enabled))
		end_sleep(bell, now);
	fall_asleep(bell);
}

static void begin_distrust(struct bell *bell, int64_t now)
{
	bell->suspect_at = 0;
	bell->missed++;
	bell->distrust_until = now + BELL_DISTRUST_MS;
	move_bell(bell, BELL_DISTRUST);
}

/* A sleeping shard opened a window, and no ring has come yet. */
static void suspect_a_miss(struct bell *bell, int64_t now, int seat)
{
	bell->suspect_at = now;
	bell->suspect_seat = seat;
	bell->confirmed = false;
	end_sleep(bell, now);
}

/* The window that the seat opened without a ring had no row, or is lost with the shard. */
static void forget_empty_window(struct bell *bell, int seat)
{
	if (bell->suspect_seat == seat && !bell->confirmed)
		bell->suspect_at = 0;
}

/* --- the shards ------------------------------------------------------------------------------ */

int bell_join(struct bell *bell)
{
	int seat = 0;

	while (seat < bell->seat_count && bell->seats[seat].taken)
		seat++;
	if (seat == bell->seat_capacity) {
		bell->seat_capacity = seat * 2 + 4;
		bell->seats =
		    xrealloc(bell->seats, (size_t)bell->seat_capacity * sizeof *bell->seats);
	}
	if (seat == bell->seat_count)
		bell->seat_count++;

	bell->seats[seat] = (struct bell_seat){.taken = true};
	return seat;
}

void bell_leave(struct bell *bell, int64_t now, int seat)
{
	bell_own(bell, now, seat, false);
	bell->seats[seat].taken = false;
}

void bell_own(struct bell *bell, int64_t now, int seat, bool owns)
{
	struct bell_seat *place = &bell->seats[seat];

	if (place->owns == owns)
		return;
	place->owns = owns;
	place->began = place->looked = 0;
	bell->owned += owns ? 1 : -1;
	forget_empty_window(bell, seat);

	/* Rows of the new shard may be there since before the lock was got. */
	if (owns && bell->state == BELL_ASLEEP) {
		move_bell(bell, BELL_LOOKING);
		bell->look_by = now + BELL_LOOK_MS;
	}
	heed_owned(bell, now);
}

void bell_look_begins(struct bell *bell, int seat)
{
	bell->seats[seat].began = holds_lock(bell) ? bell->grants : 0;
}

void bell_look_ends(struct bell *bell, int64_t now, int seat, bool found)
{
	struct bell_seat *place = &bell->seats[seat];

	if (!place->owns)
		return;
	place->looked = place->began;
	place->began = 0;

	/* A shard looks again only after the last row of a window. */
	forget_empty_window(bell, seat);
	if (found) {
		bell->busy_at = now;
		bell->found = true;
	}
	/* Every shard had looked before, and no ring has come since. */
	if (found && bell->state == BELL_ASLEEP)
		suspect_a_miss(bell, now, seat);
	else if (found && bell->state == BELL_LOOKING)
		end_sleep(bell, now);
	else
		fall_asleep(bell);
}

void bell_rows_came(struct bell *bell, int seat)
{
	bell->confirmed |= bell->suspect_at && bell->suspect_seat == seat;
}

bool bell_may_doze(const struct bell *bell, int seat)
{
	return bell->state == BELL_ASLEEP && bell->seats[seat].owns;
}

uint64_t bell_wakes(const struct bell *bell)
{
	return bell->wakes;
}

/* --- the session ----------------------------------------------------------------------------- */

bool bell_wants_session(const struct bell *bell)
{
	return bell->enabled && bell->owned > 0 && bell->state != BELL_DISTRUST;
}

void bell_session_ready(struct bell *bell, int64_t now)
{
	if (bell->state != BELL_OFF)
		return;
	move_bell(bell, BELL_AWAKE);
	bell->try_at = now;
}

void bell_session_lost(struct bell *bell, int64_t now)
{
	bool held = holds_lock(bell) || bell->state == BELL_LEAVING;

	if (bell->state == BELL_OFF || bell->state == BELL_DISTRUST)
		return;
	/* The server may have lost the session, and the lock, some time ago. */
	bell->suspect_at = 0;
	move_bell(bell, BELL_OFF);
	if (held)
		wake_shards(bell, now);
}

void bell_rung(struct bell *bell, int64_t now)
{
	bell->busy_at = now;
	bell->suspect_at = 0;
	if (bell->owned == 0)
		return;

	if (bell->wake_at == INT64_MAX) {
		bell->wake_at = bell->woken_at + bell->pause_ms;
		bell->rung++;
	}
	if (holds_lock(bell))
		leave_sleep(bell);
	bell->rung_in_try |= bell->state == BELL_TRYING;
	bell_step(bell, now);
}

/* After a sleep that the rows of other processes ended, the next one comes later. */
static int64_t next_try(const struct bell *bell)
{
	int64_t quiet_at = bell->busy_at + (bell->found ? BELL_QUIET_MS : bell->quiet_ms);
	return bell->try_at > quiet_at ? bell->try_at : quiet_at;
}

static void choose_quiet(struct bell *bell)
{
	bell->quiet_ms = 2 * (bell->found ? BELL_QUIET_MS : bell->quiet_ms);
	if (bell->quiet_ms > BELL_QUIET_MOST_MS)
		bell->quiet_ms = BELL_QUIET_MOST_MS;
	bell->found = false;
}

static bool wants_sleep(const struct bell *bell)
{
	return bell->state == BELL_AWAKE && bell->enabled && bell->owned > 0 && !bell->suspect_at;
}

static bool must_unlock(const struct bell *bell)
{
	return bell->state == BELL_LEAVING && !bell->unlocks;
}

enum bell_call bell_next_call(struct bell *bell, int64_t now)
{
	if (must_unlock(bell)) {
		bell->unlocks = true;
		return BELL_UNLOCK;
	}
	if (!wants_sleep(bell) || now < next_try(bell))
		return BELL_NOTHING;
	bell->rung_in_try = false;
	move_bell(bell, BELL_TRYING);
	return BELL_TRY;
}

void bell_tried(struct bell *bell, int64_t now, bool granted)
{
	if (bell->state != BELL_TRYING)
		return;
	if (!granted) {
		move_bell(bell, BELL_AWAKE);
		try_later(bell, now, BELL_RETRY_MOST_MS);
		return;
	}

	/* The server has granted it before the ring, and another writer may have left its mark
	 * since. */
	if (bell->rung_in_try) {
		end_sleep(bell, now);
		return;
	}

	bell->grants++;
	choose_quiet(bell);
	bell->look_by = now + BELL_LOOK_MS;
	move_bell(bell, BELL_LOOKING);
	wake_shards(bell, now);
	heed_owned(bell, now);
}

void bell_unlocked(struct bell *bell, int64_t now)
{
	(void)now;
	if (bell->state == BELL_LEAVING)
		move_bell(bell, BELL_AWAKE);
}

/* --- the whole ------------------------------------------------------------------------------- */

void bell_enable(struct bell *bell, int64_t now, bool enabled)
{
	bell->enabled = enabled;
	heed_owned(bell, now);
}

void bell_retune(struct bell *bell, int64_t pause_ms)
{
	bell->pause_ms = pause_ms;
}

/* When a window without a ring is judged: it has rows, and the lock is released. */
static int64_t judgement_due(const struct bell *bell)
{
	bool judges = bell->state == BELL_AWAKE && bell->suspect_at && bell->confirmed;
	return judges ? bell->suspect_at + BELL_GRACE_MS : INT64_MAX;
}

void bell_step(struct bell *bell, int64_t now)
{
	if (now >= bell->wake_at)
		wake_shards(bell, now);
	if (bell->state == BELL_LOOKING && now >= bell->look_by) {
		end_sleep(bell, now);
		try_later(bell, now, BELL_LATE_MOST_MS);
	}

	if (now >= judgement_due(bell))
		begin_distrust(bell, now);
	if (bell->state == BELL_DISTRUST && now >= bell->distrust_until)
		move_bell(bell, BELL_OFF);
}

int64_t bell_wait(const struct bell *bell)
{
	int64_t due = bell->wake_at;
	int64_t clock = INT64_MAX;

	if (must_unlock(bell))
		clock = 0;
	else if (bell->state == BELL_LOOKING)
		clock = bell->look_by;
	else if (bell->state == BELL_DISTRUST)
		clock = bell->distrust_until;
	else if (wants_sleep(bell))
		clock = next_try(bell);
	else
		clock = judgement_due(bell);
	return due < clock ? due : clock;
}

struct bell_status bell_status(const struct bell *bell)
{
	return (struct bell_status){
	    bell->state, bell->rung, bell->missed, bell->owned, bell->grants};
}
