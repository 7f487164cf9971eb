/* The stream beside a doorbell: when it looks for new rows (stream_hurry, stream_doze). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "stream.h"

enum { LEASE_MS = 9000, BUSY_MS = 3, IDLE_MS = 70, DOZE_MS = 900 };

static struct stream *stream;
static int64_t now;

/* The next call is a TICK that may open a window. */
static struct stream_tick expect_look(void)
{
	struct stream_tick tick = stream_log_call(stream, now);
	assert_int_equal(tick.call, STREAM_TICK);
	assert_true(tick.may_open);
	return tick;
}

static void look_in_vain(void)
{
	expect_look();
	stream_ticked(stream, now, STREAM_IDLE);
}

static void wait_for_call(void)
{
	int64_t due = stream_wait(stream, now);
	now = due > now ? due : now;
}

/* An owner at rest, which polls every IDLE_MS. */
static int begin_owner(bool drains)
{
	const struct stream_settings settings = {.max_in_flight = 100,
	    .memory = 1 << 20,
	    .lease_ms = LEASE_MS,
	    .poll_busy_ms = BUSY_MS,
	    .poll_idle_ms = IDLE_MS,
	    .ack_interval_ms = 100,
	    .stall_after_ms = 30000,
	    .drains = drains,
	    .seed = 1};

	now = 1000000;
	stream = stream_create(&settings);
	assert_int_equal(stream_log_call(stream, now).call, STREAM_TAKE);
	stream_taken(stream, now, &(struct stream_taken){.n = 1, .epoch = 1});
	assert_int_equal(stream_log_call(stream, now).call, STREAM_DESTINATIONS);
	stream_destinations_end(stream, true);

	look_in_vain();
	for (int64_t until = now + 1000; now < until; look_in_vain())
		wait_for_call();
	assert_int_equal(stream_wait(stream, now), now + IDLE_MS);
	return 0;
}

static int begin(void **state)
{
	(void)state;
	return begin_owner(false);
}

static int begin_drain(void **state)
{
	(void)state;
	return begin_owner(true);
}

static int end(void **state)
{
	(void)state;
	stream_destroy(stream);
	return 0;
}

static void a_stream_that_dozes_looks_later(void **state)
{
	(void)state;
	stream_doze(stream, now, DOZE_MS);
	assert_int_equal(stream_wait(stream, now), now + DOZE_MS);
	wait_for_call();
	look_in_vain();
	/* Once: the doorbell says it again after each look. */
	assert_int_equal(stream_wait(stream, now), now + IDLE_MS);
}

/* Otherwise each of its looks could be one that renews the lease, and the drain would never end. */
static void a_drain_dozes_only_once_a_look_wrote_nothing(void **state)
{
	(void)state;
	wait_for_call();
	expect_look();
	stream_ticked(stream, now, STREAM_NOTED);
	assert_false(stream_status(stream, now).caught_up);
	stream_doze(stream, now, DOZE_MS);
	assert_true(stream_wait(stream, now) <= now);

	look_in_vain();
	assert_true(stream_status(stream, now).caught_up);
	stream_doze(stream, now, DOZE_MS);
	assert_int_equal(stream_wait(stream, now), now + DOZE_MS);
}

static void a_wake_is_looked_for_at_once(void **state)
{
	(void)state;
	stream_doze(stream, now, DOZE_MS);
	stream_hurry(stream, now);
	assert_true(stream_wait(stream, now) <= now);
	look_in_vain();
	assert_true(stream_wait(stream, now) > now);
}

static void a_wake_during_a_look_is_looked_for_after_it(void **state)
{
	(void)state;
	wait_for_call();
	expect_look();
	stream_hurry(stream, now);
	stream_ticked(stream, now, STREAM_IDLE);
	stream_doze(stream, now, DOZE_MS); /* too late */
	assert_true(stream_wait(stream, now) <= now);
	look_in_vain();
}

static void a_look_that_failed_is_made_again(void **state)
{
	(void)state;
	stream_doze(stream, now, DOZE_MS);
	stream_hurry(stream, now);
	expect_look();
	stream_log_failed(stream, now, false, false);
	wait_for_call();
	assert_int_equal(stream_log_call(stream, now).call, STREAM_RENEW);
	stream_renewed(stream, now, true);
	wait_for_call();
	assert_true(now < 1000000 + 2000 + DOZE_MS);
	look_in_vain();
}

/* Dozes and looks in vain until a call renews the lease; returns that call. */
static struct stream_tick doze_until_renewal(void)
{
	for (;;) {
		stream_doze(stream, now, DOZE_MS);
		wait_for_call();
		struct stream_tick tick = stream_log_call(stream, now);
		assert_true(tick.may_open);
		if (tick.call == STREAM_RENEW)
			return tick;
		assert_int_equal(tick.call, STREAM_TICK);
		assert_false(tick.must_write);
		stream_ticked(stream, now, STREAM_IDLE);
	}
}

static void a_renewal_of_one_that_dozes_looks_as_well(void **state)
{
	(void)state;
	struct stream_tick tick = doze_until_renewal();
	struct stream_looks before = stream_looks(stream);

	stream_renewed_idle(stream, now);
	struct stream_looks after = stream_looks(stream);
	assert_int_equal(after.tried - before.tried, 1);
	assert_int_equal(after.made - before.made, 1);
	assert_int_equal(after.found, before.found);
	assert_true(stream_wait(stream, now) > now);
	assert_int_equal(stream_status(stream, now).n, tick.n + 1);

	/* Again and again, as long as nothing else happens. */
	int64_t renewed = now;
	doze_until_renewal();
	assert_int_equal(now - renewed, LEASE_MS / 2);
}

static void a_renewal_that_shows_a_change_is_followed_by_a_look(void **state)
{
	(void)state;
	doze_until_renewal();
	struct stream_looks before = stream_looks(stream);

	stream_renewed(stream, now, true);
	assert_int_equal(stream_looks(stream).tried, before.tried);
	assert_true(stream_wait(stream, now) <= now);
	look_in_vain();
}

static void a_wake_during_a_renewal_is_looked_for_after_it(void **state)
{
	(void)state;
	doze_until_renewal();
	stream_hurry(stream, now);
	stream_renewed_idle(stream, now);
	stream_doze(stream, now, DOZE_MS); /* too late */
	assert_true(stream_wait(stream, now) <= now);
	look_in_vain();
}

static void one_that_does_not_doze_renews_by_a_tick(void **state)
{
	(void)state;
	for (int64_t until = now + LEASE_MS; now < until;) {
		wait_for_call();
		struct stream_tick tick = stream_log_call(stream, now);
		assert_int_equal(tick.call, STREAM_TICK);
		stream_ticked(stream, now, tick.must_write ? STREAM_NOTED : STREAM_IDLE);
	}
}

static void only_a_look_that_saw_every_row_counts(void **state)
{
	(void)state;
	static const enum stream_verdict verdicts[] = {
	    STREAM_IDLE, STREAM_SPLITTING, STREAM_NOTED, STREAM_PAGES};
	struct stream_looks before = stream_looks(stream);

	for (int i = 0; i < 4; i++) {
		wait_for_call();
		expect_look();
		stream_ticked(stream, now, verdicts[i]);
	}
	struct stream_looks after = stream_looks(stream);
	assert_int_equal(after.tried - before.tried, 4);
	assert_int_equal(after.made - before.made, 2);
	assert_int_equal(after.found - before.found, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)
	    TEST(a_stream_that_dozes_looks_later),
	    cmocka_unit_test_setup_teardown(
		a_drain_dozes_only_once_a_look_wrote_nothing, begin_drain, end),
	    TEST(a_wake_is_looked_for_at_once),
	    TEST(a_wake_during_a_look_is_looked_for_after_it),
	    TEST(a_look_that_failed_is_made_again),
	    TEST(a_renewal_of_one_that_dozes_looks_as_well),
	    TEST(a_renewal_that_shows_a_change_is_followed_by_a_look),
	    TEST(a_wake_during_a_renewal_is_looked_for_after_it),
	    TEST(one_that_does_not_doze_renews_by_a_tick),
	    TEST(only_a_look_that_saw_every_row_counts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
