/*
 * The doorbell's core (bell.h), driven by hand: each test checks the calls and states
 * after some events.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "bell.h"

enum { PAUSE_MS = 3 };

static struct bell *bell;
static int64_t now;

static void expect_state(enum bell_state state)
{
	assert_string_equal(
	    bell_states.rows[bell_status(bell).state].name, bell_states.rows[state].name);
}

static void look_once(int seat, bool found)
{
	bell_look_begins(bell, seat);
	bell_look_ends(bell, now, seat, found);
	if (found)
		bell_rows_came(bell, seat);
}

/* Lets time pass as the thread of the doorbell does; returns the first call that is due. */
static enum bell_call pass_until(int64_t until)
{
	for (;;) {
		int64_t due = bell_wait(bell);

		if (due > until) {
			now = until;
			return BELL_NOTHING;
		}
		now = due > now ? due : now;
		bell_step(bell, now);
		enum bell_call call = bell_next_call(bell, now);
		if (call != BELL_NOTHING)
			return call;
	}
}

static void get_lock(void)
{
	assert_int_equal(pass_until(now + 60000), BELL_TRY);
	bell_tried(bell, now, true);
	expect_state(BELL_LOOKING);
}

/* A bell with this many shards that are all owned. */
static int begin(void **state)
{
	(void)state;
	now = 1000000;
	bell = bell_create(PAUSE_MS);
	bell_enable(bell, now, true);
	for (int i = 0; i < 2; i++)
		bell_own(bell, now, bell_join(bell), true);
	assert_true(bell_wants_session(bell));
	bell_session_ready(bell, now);
	expect_state(BELL_AWAKE);
	return 0;
}

static int begin_asleep(void **state)
{
	begin(state);
	get_lock();
	look_once(0, false);
	look_once(1, false);
	expect_state(BELL_ASLEEP);
	return 0;
}

static int end(void **state)
{
	(void)state;
	bell_destroy(bell);
	return 0;
}

static void nobody_sleeps_before_every_shard_has_looked_under_the_lock(void **state)
{
	(void)state;
	bell_look_begins(bell, 0);
	look_once(1, false);
	get_lock();
	/* this look may have begun before a writer of before had committed */
	bell_look_ends(bell, now, 0, false);
	expect_state(BELL_LOOKING);
	assert_false(bell_may_doze(bell, 0));

	look_once(0, false);
	assert_false(bell_may_doze(bell, 0));
	look_once(1, false);
	expect_state(BELL_ASLEEP);
	assert_true(bell_may_doze(bell, 0));
	assert_true(bell_may_doze(bell, 1));
}

static void rows_under_the_lock_release_it(void **state)
{
	(void)state;
	get_lock();
	look_once(0, false);
	look_once(1, true);
	assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
	assert_false(bell_may_doze(bell, 0));
	bell_unlocked(bell, now);
	expect_state(BELL_AWAKE);
	assert_int_equal(bell_status(bell).missed, 0);
	assert_int_equal(pass_until(now + BELL_QUIET_MS - 1), BELL_NOTHING);
	assert_int_equal(pass_until(now + 1), BELL_TRY);
}

static void a_ring_wakes_every_shard_and_ends_the_sleep(void **state)
{
	(void)state;
	uint64_t wakes = bell_wakes(bell);
	now += 5000;
	bell_rung(bell, now);
	assert_int_equal(bell_wakes(bell), wakes + 1);
	assert_false(bell_may_doze(bell, 0));
	assert_false(bell_may_doze(bell, 1));
	assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
	bell_unlocked(bell, now);

	look_once(0, true);
	look_once(1, false);
	assert_int_equal(bell_status(bell).missed, 0);
	assert_int_equal(bell_status(bell).rung, 1);
	assert_int_equal(pass_until(now + BELL_QUIET_MS), BELL_TRY);
}

static void a_look_of_the_sleep_before_does_not_count(void **state)
{
	(void)state;
	bell_look_begins(bell, 0);
	bell_rung(bell, now);
	bell_unlocked(bell, now);
	get_lock();
	bell_look_ends(bell, now, 0, false);
	look_once(1, false);
	expect_state(BELL_LOOKING);
	look_once(0, false);
	expect_state(BELL_ASLEEP);
}

static void a_ring_during_the_look_releases_the_lock(void **state)
{
	(void)state;
	uint64_t wakes;
	get_lock();
	wakes = bell_wakes(bell);
	bell_look_begins(bell, 0);
	bell_rung(bell, now);
	bell_look_ends(bell, now, 0, false);
	look_once(1, false);
	assert_int_equal(pass_until(now + PAUSE_MS), BELL_UNLOCK);
	assert_int_equal(pass_until(now + PAUSE_MS), BELL_NOTHING);
	assert_true(bell_wakes(bell) > wakes);
}

/* The notification was before the answer, in the same buffer. */
static void a_lock_that_was_granted_before_a_ring_is_given_back(void **state)
{
	(void)state;
	uint64_t wakes = bell_wakes(bell);
	assert_int_equal(pass_until(now + 60000), BELL_TRY);
	bell_rung(bell, now);
	bell_tried(bell, now, true);
	look_once(0, false);
	look_once(1, false);
	assert_int_equal(pass_until(now), BELL_UNLOCK);
	bell_unlocked(bell, now);
	assert_true(bell_wakes(bell) > wakes);
	get_lock();
}

static void rings_wake_at_most_once_in_a_pause(void **state)
{
	(void)state;
	uint64_t wakes = bell_wakes(bell);
	int64_t before = now += 5000;
	while (now < before + 30) {
		for (int i = 0; i < 10; i++)
			bell_rung(bell, now);
		now++;
		bell_step(bell, now);
	}
	assert_in_range(bell_wakes(bell) - wakes, 10, 11);
	assert_int_equal(bell_status(bell).rung, bell_wakes(bell) - wakes);
}

/* Another process is busy, and its writers ring for us. */
static void who_is_woken_for_others_tries_less_and_less(void **state)
{
	(void)state;
	int64_t waits[9];
	for (int i = 0; i < 9; i++) {
		now += PAUSE_MS;
		bell_rung(bell, now);
		assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
		bell_unlocked(bell, now);
		int64_t since = now;
		get_lock();
		waits[i] = now - since;
		look_once(0, false);
		look_once(1, false);
	}
	assert_int_equal(waits[0], 2 * BELL_QUIET_MS);
	assert_int_equal(waits[3], 16 * BELL_QUIET_MS);
	assert_int_equal(waits[8], BELL_QUIET_MOST_MS);

	/* a row of its own: it sleeps soon again */
	now += PAUSE_MS;
	bell_rung(bell, now);
	look_once(0, true);
	bell_unlocked(bell, now);
	int64_t since = now;
	get_lock();
	assert_int_equal(now - since, BELL_QUIET_MS);
}

static void rows_without_a_ring_are_distrusted_for_a_minute(void **state)
{
	(void)state;
	now += BELL_POLL_MS;
	look_once(0, true);
	assert_false(bell_may_doze(bell, 1));
	assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
	bell_unlocked(bell, now);
	assert_int_equal(pass_until(now + BELL_GRACE_MS - 1), BELL_NOTHING);
	assert_int_equal(bell_status(bell).missed, 0);
	assert_int_equal(pass_until(now + 1), BELL_NOTHING);
	assert_int_equal(bell_status(bell).missed, 1);
	expect_state(BELL_DISTRUST);
	assert_false(bell_wants_session(bell));
	bell_session_lost(bell, now);

	assert_int_equal(pass_until(now + BELL_DISTRUST_MS - 1), BELL_NOTHING);
	expect_state(BELL_DISTRUST);
	assert_int_equal(pass_until(now + 1), BELL_NOTHING);
	expect_state(BELL_OFF);
	assert_true(bell_wants_session(bell));
	bell_session_ready(bell, now);
	get_lock();
}

static void a_window_without_a_row_is_not_missed(void **state)
{
	(void)state;
	now += BELL_POLL_MS;
	bell_look_begins(bell, 0);
	bell_look_ends(bell, now, 0, true);
	bell_unlocked(bell, now);
	bell_rows_came(bell, 1);
	look_once(0, false);
	assert_int_equal(pass_until(now + 2000), BELL_TRY);
	assert_int_equal(bell_status(bell).missed, 0);
}

/* A large window is read by pages, on a slow disk after the time in which its ring would come. */
static void a_window_whose_rows_come_late_is_missed(void **state)
{
	(void)state;
	now += BELL_POLL_MS;
	bell_look_begins(bell, 0);
	bell_look_ends(bell, now, 0, true);
	assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
	bell_unlocked(bell, now);
	look_once(1, false);
	/* until it is known whether there are rows, nobody sleeps */
	assert_int_equal(pass_until(now + 4 * BELL_GRACE_MS), BELL_NOTHING);
	bell_rows_came(bell, 0);
	assert_true(bell_wait(bell) <= now);
	assert_int_equal(pass_until(now), BELL_NOTHING);
	assert_int_equal(bell_status(bell).missed, 1);
	expect_state(BELL_DISTRUST);
}

static void a_window_that_is_lost_with_its_shard_is_not_missed(void **state)
{
	(void)state;
	now += BELL_POLL_MS;
	bell_look_begins(bell, 0);
	bell_look_ends(bell, now, 0, true);
	bell_unlocked(bell, now);
	bell_own(bell, now, 0, false);
	assert_int_equal(pass_until(now + 2000), BELL_TRY);
	assert_int_equal(bell_status(bell).missed, 0);
}

static void a_ring_that_comes_after_its_row_is_not_missed(void **state)
{
	(void)state;
	now += BELL_POLL_MS;
	look_once(0, true);
	now += BELL_GRACE_MS - 1;
	bell_rung(bell, now);
	bell_unlocked(bell, now);
	assert_int_equal(pass_until(now + 2000), BELL_TRY);
	assert_int_equal(bell_status(bell).missed, 0);
}

static void a_refused_lock_is_tried_again_later_and_later(void **state)
{
	(void)state;
	int64_t before = 0, wait = 0;
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pass_until(now + 60000), BELL_TRY);
		if (i > 1)
			assert_true(now - before >= wait);
		wait = i ? now - before : 0;
		before = now;
		bell_tried(bell, now, false);
		expect_state(BELL_AWAKE);
	}
	assert_int_equal(wait, BELL_RETRY_MOST_MS);
}

static void a_shard_that_does_not_look_keeps_nobody_ringing(void **state)
{
	(void)state;
	get_lock();
	look_once(0, false);
	int64_t since = now;
	assert_int_equal(pass_until(now + 60000), BELL_UNLOCK);
	assert_int_equal(now - since, BELL_LOOK_MS);
}

static void a_new_shard_looks_first(void **state)
{
	(void)state;
	int seat = bell_join(bell);
	assert_true(bell_may_doze(bell, 0));
	bell_own(bell, now, seat, true);
	expect_state(BELL_LOOKING);
	look_once(seat, false);
	expect_state(BELL_ASLEEP);
	assert_true(bell_may_doze(bell, seat));

	/* lost and taken again: earlier looks no longer count */
	bell_own(bell, now, seat, false);
	bell_own(bell, now, seat, true);
	assert_false(bell_may_doze(bell, seat));
	bell_leave(bell, now, seat);
	expect_state(BELL_ASLEEP);
}

static void a_process_without_a_shard_holds_no_lock(void **state)
{
	(void)state;
	bell_own(bell, now, 0, false);
	expect_state(BELL_ASLEEP);
	bell_own(bell, now, 1, false);
	assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
	assert_false(bell_wants_session(bell));
}

static void a_lost_session_wakes_every_shard(void **state)
{
	(void)state;
	uint64_t wakes = bell_wakes(bell);
	bell_session_lost(bell, now);
	expect_state(BELL_OFF);
	assert_true(bell_wakes(bell) > wakes);
	assert_false(bell_may_doze(bell, 0));
	assert_true(bell_wants_session(bell));
}

static void who_disables_it_releases_the_lock(void **state)
{
	(void)state;
	uint64_t wakes = bell_wakes(bell);
	bell_enable(bell, now, false);
	assert_int_equal(bell_next_call(bell, now), BELL_UNLOCK);
	assert_true(bell_wakes(bell) > wakes);
	assert_false(bell_wants_session(bell));
	bell_unlocked(bell, now);
	assert_int_equal(pass_until(now + 60000), BELL_NOTHING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define AWAKE(test) cmocka_unit_test_setup_teardown(test, begin, end)
#define ASLEEP(test) cmocka_unit_test_setup_teardown(test, begin_asleep, end)
	    AWAKE(nobody_sleeps_before_every_shard_has_looked_under_the_lock),
	    AWAKE(rows_under_the_lock_release_it),
	    ASLEEP(a_ring_wakes_every_shard_and_ends_the_sleep),
	    ASLEEP(a_look_of_the_sleep_before_does_not_count),
	    AWAKE(a_ring_during_the_look_releases_the_lock),
	    AWAKE(a_lock_that_was_granted_before_a_ring_is_given_back),
	    ASLEEP(rings_wake_at_most_once_in_a_pause),
	    ASLEEP(who_is_woken_for_others_tries_less_and_less),
	    ASLEEP(rows_without_a_ring_are_distrusted_for_a_minute),
	    ASLEEP(a_window_without_a_row_is_not_missed),
	    ASLEEP(a_window_whose_rows_come_late_is_missed),
	    ASLEEP(a_window_that_is_lost_with_its_shard_is_not_missed),
	    ASLEEP(a_ring_that_comes_after_its_row_is_not_missed),
	    AWAKE(a_refused_lock_is_tried_again_later_and_later),
	    AWAKE(a_shard_that_does_not_look_keeps_nobody_ringing),
	    ASLEEP(a_new_shard_looks_first),
	    ASLEEP(a_process_without_a_shard_holds_no_lock),
	    ASLEEP(a_lost_session_wakes_every_shard),
	    ASLEEP(who_disables_it_releases_the_lock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
