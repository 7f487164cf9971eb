#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "take_limiter.h"

static void one_take_at_a_time(void **state)
{
	(void)state;
	struct take_limiter *limiter = take_limiter_create(false);
	assert_true(take_limiter_begin(limiter, 0));
	assert_false(take_limiter_begin(limiter, 0));
	take_limiter_end(limiter, 0, false);
	assert_true(take_limiter_begin(limiter, 0));
	take_limiter_destroy(limiter);
}

static void a_take_without_an_answer_keeps_the_others_for_a_second(void **state)
{
	(void)state;
	struct take_limiter *limiter = take_limiter_create(false);
	int64_t now = 0;
	assert_true(take_limiter_begin(limiter, now));
	while (!take_limiter_begin(limiter, now)) {
		assert_true(take_limiter_wait(limiter, now) > now);
		now++;
	}
	assert_int_equal(now, 1000);
	/* the late answer of the first, which has its shard now, as the second has */
	take_limiter_end(limiter, now, true);
	take_limiter_end(limiter, now, true);
	assert_int_equal(take_limiter_held(limiter), 2);
	assert_false(take_limiter_begin(limiter, now));
	assert_true(take_limiter_begin(limiter, take_limiter_wait(limiter, now)));
	take_limiter_destroy(limiter);
}

static void who_holds_more_waits_longer(void **state)
{
	(void)state;
	struct take_limiter *limiter = take_limiter_create(false);
	int64_t waits[3];
	int64_t now = 0;
	for (int i = 0; i < 3; i++) {
		int64_t before = now;
		while (!take_limiter_begin(limiter, now))
			now++;
		waits[i] = now - before;
		take_limiter_end(limiter, now, true);
	}
	assert_int_equal(take_limiter_held(limiter), 3);
	assert_int_equal(waits[0], 0);
	assert_true(waits[1] < waits[2]);
	take_limiter_lost(limiter);
	assert_int_equal(take_limiter_held(limiter), 2);
	take_limiter_destroy(limiter);
}

static int64_t time_to_take(int shards)
{
	struct take_limiter *limiter = take_limiter_create(false);
	int64_t now = 0;
	take_limiter_count(limiter, shards);
	for (int i = 0; i < shards; i++) {
		while (!take_limiter_begin(limiter, now))
			now++;
		take_limiter_end(limiter, now, true);
	}
	take_limiter_count(limiter, -shards);
	take_limiter_destroy(limiter);
	return now;
}

static void many_shards_are_taken_within_seconds(void **state)
{
	(void)state;
	assert_int_equal(time_to_take(4), 500 + 1000 + 1500);
	for (int shards = 5; shards <= 1000; shards += 15)
		assert_in_range(time_to_take(shards), 0, 10000);
	assert_in_range(time_to_take(50), 5000, 10000);
}

static void who_shares_nothing_waits_for_nobody(void **state)
{
	(void)state;
	struct take_limiter *limiter = take_limiter_create(true);
	for (int i = 0; i < 16; i++) {
		assert_true(take_limiter_begin(limiter, 0));
		assert_false(take_limiter_begin(limiter, 0));
		take_limiter_end(limiter, 0, true);
	}
	assert_int_equal(take_limiter_held(limiter), 16);
	take_limiter_destroy(limiter);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_take_at_a_time),
	    cmocka_unit_test(a_take_without_an_answer_keeps_the_others_for_a_second),
	    cmocka_unit_test(who_holds_more_waits_longer),
	    cmocka_unit_test(many_shards_are_taken_within_seconds),
	    cmocka_unit_test(who_shares_nothing_waits_for_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
