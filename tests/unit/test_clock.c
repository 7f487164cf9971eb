#include "clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "backoff.h"

static void monotonic_time_never_goes_back(void **state)
{
	int64_t before = clock_us();

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t now = clock_us();
		assert_true(now >= before);
		before = now;
	}
	assert_in_range(clock_ms() - before / 1000, 0, 60000);
}

static void wall_time_is_of_this_century(void **state)
{
	(void)state;
	assert_true(clock_wall_us() > INT64_C(1700000000) * 1000000);
	assert_true(clock_wall_us() < INT64_C(4102444800) * 1000000);
}

static void random_values_are_positive_and_differ(void **state)
{
	int64_t before = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t value = clock_random();
		assert_true(value > 0);
		assert_true(value != before);
		before = value;
	}
}

static void without_jitter_a_delay_doubles_up_to_its_cap(void **state)
{
	static const int64_t delays[] = {100, 200, 400, 800, 1000, 1000, 1000};
	struct backoff backoff = {.first_ms = 100, .cap_ms = 1000};

	(void)state;
	for (size_t i = 0; i < sizeof delays / sizeof *delays; i++)
		assert_int_equal(backoff_next_ms(&backoff), delays[i]);
	backoff_reset(&backoff);
	assert_int_equal(backoff_next_ms(&backoff), 100);
}

static void the_cap_holds_for_the_largest_numbers(void **state)
{
	struct backoff large = {.first_ms = 1, .cap_ms = INT64_C(1) << 50};
	struct backoff low = {.first_ms = 500, .cap_ms = 20};
	struct backoff none = {0};

	(void)state;
	for (int i = 0; i < 100; i++)
		assert_true(backoff_next_ms(&large) <= INT64_C(1) << 50);
	assert_true(backoff_next_ms(&large) == INT64_C(1) << 50);
	assert_int_equal(backoff_next_ms(&low), 20);
	assert_int_equal(backoff_next_ms(&none), 0);
}

static void jitter_spreads_evenly_within_its_bounds(void **state)
{
	struct backoff backoff = {.first_ms = 1000, .cap_ms = 1000, .jitter = 0.2, .seed = 42};
	int low = 0;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		int64_t delay = backoff_next_ms(&backoff);
		assert_in_range(delay, 800, 1200);
		low += delay < 1000;
	}
	assert_in_range(low, 4700, 5300);
}

static void the_same_seed_gives_the_same_delays(void **state)
{
	struct backoff a = {.first_ms = 10, .cap_ms = 5000, .jitter = 1, .seed = 7};
	struct backoff b = a;

	(void)state;
	for (int i = 0; i < 50; i++)
		assert_int_equal(backoff_next_ms(&a), backoff_next_ms(&b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(monotonic_time_never_goes_back),
	    cmocka_unit_test(wall_time_is_of_this_century),
	    cmocka_unit_test(random_values_are_positive_and_differ),
	    cmocka_unit_test(without_jitter_a_delay_doubles_up_to_its_cap),
	    cmocka_unit_test(the_cap_holds_for_the_largest_numbers),
	    cmocka_unit_test(jitter_spreads_evenly_within_its_bounds),
	    cmocka_unit_test(the_same_seed_gives_the_same_delays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
