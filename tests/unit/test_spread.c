#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "spread.h"

static void one_take_at_a_time(void **state)
{
	(void)state;
	struct spread *spread = spread_create(false);
	assert_true(spread_begin(spread, 0));
	assert_false(spread_begin(spread, 0));
	spread_end(spread, 0, false);
	assert_true(spread_begin(spread, 0));
	spread_destroy(spread);
}

static void a_take_without_an_answer_keeps_the_others_for_a_second(void **state)
{
	(void)state;
	struct spread *spread = spread_create(false);
	int64_t now = 0;
	assert_true(spread_begin(spread, now));
	while (!spread_begin(spread, now)) {
		assert_true(spread_wait(spread, now) > now);
		now++;
	}
	assert_int_equal(now, 1000);
	/* the late answer of the first, which has its shard now, as the second has */
	spread_end(spread, now, true);
	spread_end(spread, now, true);
	assert_int_equal(spread_held(spread), 2);
	assert_false(spread_begin(spread, now));
	assert_true(spread_begin(spread, spread_wait(spread, now)));
	spread_destroy(spread);
}

static void who_holds_more_waits_longer(void **state)
{
	(void)state;
	struct spread *spread = spread_create(false);
	int64_t waits[3];
	int64_t now = 0;
	for (int i = 0; i < 3; i++) {
		int64_t before = now;
		while (!spread_begin(spread, now))
			now++;
		waits[i] = now - before;
		spread_end(spread, now, true);
	}
	assert_int_equal(spread_held(spread), 3);
	assert_int_equal(waits[0], 0);
	assert_true(waits[1] < waits[2]);
	spread_lost(spread);
	assert_int_equal(spread_held(spread), 2);
	spread_destroy(spread);
}

static void who_shares_nothing_waits_for_nobody(void **state)
{
	(void)state;
	struct spread *spread = spread_create(true);
	for (int i = 0; i < 16; i++) {
		assert_true(spread_begin(spread, 0));
		assert_false(spread_begin(spread, 0));
		spread_end(spread, 0, true);
	}
	assert_int_equal(spread_held(spread), 16);
	spread_destroy(spread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_take_at_a_time),
	    cmocka_unit_test(a_take_without_an_answer_keeps_the_others_for_a_second),
	    cmocka_unit_test(who_holds_more_waits_longer),
	    cmocka_unit_test(who_shares_nothing_waits_for_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
