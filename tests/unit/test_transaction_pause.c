/* A cluster's time for its markers is not known: the pause must find it, and stay near it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "transaction_pause.h"

enum { REPORT_US = 3000, ROUNDS = 4000 };

struct course {
	int64_t pause_us; /* at the end */
	int refused;      /* in the second half */
};

/* Markers take marker_us, and every tenth time twice as long if `varies`. */
static struct course run_transactions(int64_t marker_us, bool varies)
{
	struct course course = {.pause_us = TRANSACTION_PAUSE_FIRST_US};

	for (int i = 0; i < ROUNDS; i++) {
		int64_t takes = varies && i % 10 == 0 ? 2 * marker_us : marker_us;
		bool refused = course.pause_us < takes;

		course.refused += refused && i >= ROUNDS / 2;
		course.pause_us = transaction_pause_next(
		    course.pause_us, REPORT_US + (refused ? TRANSACTION_RETRY_US : 0));
	}
	return course;
}

static void assert_learned(int64_t marker_us)
{
	struct course course = run_transactions(marker_us, false);

	assert_in_range(course.pause_us, marker_us * 9 / 10, marker_us * 4 / 3 + 600);
	assert_true(course.refused <= ROUNDS / 2 / 200);
}

static void the_pause_becomes_the_time_of_the_markers(void **state)
{
	(void)state;
	assert_learned(300);
	assert_learned(1000);
	assert_learned(4000);
	assert_learned(12000);
}

static void a_cluster_that_is_sometimes_slow_refuses_few(void **state)
{
	struct course course = run_transactions(1000, true);

	(void)state;
	assert_in_range(course.pause_us, 1900, 3200);
	assert_true(course.refused <= ROUNDS / 2 / 200);
}

static void a_cluster_without_delay_needs_no_pause(void **state)
{
	(void)state;
	assert_true(run_transactions(0, false).pause_us == 0);
}

static void the_pause_never_exceeds_the_retry(void **state)
{
	int64_t pause = TRANSACTION_PAUSE_FIRST_US;

	(void)state;
	for (int i = 0; i < 100; i++)
		pause = transaction_pause_next(pause, INT64_C(3600000000));
	assert_true(pause == TRANSACTION_RETRY_US);
	assert_true(transaction_pause_next(pause, 0) < pause);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_pause_becomes_the_time_of_the_markers),
	    cmocka_unit_test(a_cluster_that_is_sometimes_slow_refuses_few),
	    cmocka_unit_test(a_cluster_without_delay_needs_no_pause),
	    cmocka_unit_test(the_pause_never_exceeds_the_retry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
