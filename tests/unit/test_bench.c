#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "text.h"

static void a_payload_is_json_of_about_the_size_that_was_asked_for(void **state)
{
	(void)state;
	static const int64_t sizes[] = {BENCH_SMALL, BENCH_LARGE};
	struct text payload = {0};

	for (int64_t number = 0; number < 2000; number++) {
		int64_t size = sizes[number % 2];
		json_t *parsed;

		text_clear(&payload);
		bench_payload(&payload, number, size);
		parsed = json_loadb(payload.data, payload.length, 0, NULL);
		assert_non_null(parsed);
		assert_in_range(
		    payload.length, (uintmax_t)size * 8 / 10, (uintmax_t)size * 12 / 10);
		json_decref(parsed);
	}
	text_finish(&payload);
}

static void a_payload_tells_its_number_and_is_the_same_each_time(void **state)
{
	(void)state;
	struct text one = {0}, two = {0};

	bench_payload(&one, 123456789, BENCH_SMALL);
	bench_payload(&two, 123456789, BENCH_SMALL);
	assert_string_equal(one.data, two.data);
	assert_int_equal(bench_number(one.data, one.length), 123456789);
	assert_int_equal(bench_number("{\"n\":12", 7), -1);
	assert_int_equal(bench_number("{\"m\":\"a payload of others\"}", 26), -1);
	assert_int_equal(bench_number(NULL, 0), -1);
	text_finish(&one);
	text_finish(&two);
}

static void payloads_differ(void **state)
{
	(void)state;
	struct text one = {0}, two = {0};

	bench_payload(&one, 1, BENCH_SMALL);
	bench_payload(&two, 2, BENCH_SMALL);
	assert_string_not_equal(one.data + 20, two.data + 20);
	text_finish(&one);
	text_finish(&two);
}

static void the_median_is_in_the_middle(void **state)
{
	(void)state;
	double odd[] = {9, 1, 5}, even[] = {4, 1, 2, 9};

	assert_true(bench_median(odd, 3) == 5);
	assert_true(bench_median(even, 4) == 3);
}

static void a_figure_beyond_its_bound_is_not_good_and_a_saturated_one_says_nothing(void **state)
{
	(void)state;
	struct bench bench = {0};

	bench_judge_ratio(&bench, "rate", "rows/s", 90, 100, '>', 0.8);
	bench_judge(&bench, "memory", "MiB", 64, '<', 64);
	bench_judge_difference(&bench, "latency", "ms", 50, 10, 3, true);
	bench_tell(&bench, "told", "s", 1000);
	assert_int_equal(bench.figures[0].verdict, BENCH_OK);
	assert_int_equal(bench.figures[1].verdict, BENCH_OK);
	assert_int_equal(bench.figures[2].verdict, BENCH_SATURATED);
	assert_int_equal(bench.figures[3].verdict, BENCH_TOLD);
	assert_true(isnan(bench.figures[3].judged));
	assert_true(bench_is_good(&bench));
	bench_judge_ratio(&bench, "CPU", "s", 15, 10, '<', 1.4);
	assert_false(bench_is_good(&bench));
	free(bench.figures);
}

static void pairs_are_judged_by_the_median_of_their_ratios(void **state)
{
	(void)state;
	struct bench bench = {0};
	const double values[] = {90, 50, 200}, references[] = {100, 40, 250};

	bench_judge_pairs(&bench, "drain", "rows/s", values, references, 3, '>', 0.95);
	assert_true(bench.figures[0].value == 90);
	assert_true(bench.figures[0].reference == 100);
	assert_true(bench.figures[0].judged == 0.9);
	assert_int_equal(bench.figures[0].verdict, BENCH_NOT);
	bench_judge_pairs(&bench, "look", "us", values, references, 3, '<', 0.95);
	assert_int_equal(bench.figures[1].verdict, BENCH_OK);
	free(bench.figures);
}

static void a_ratio_without_a_bound_is_shown_and_not_judged(void **state)
{
	(void)state;
	struct bench bench = {0};

	bench_tell_ratio(&bench, "rate", "rows/s", 50, 100);
	bench_tell_difference(&bench, "latency", "ms", 50, 10);
	assert_true(bench.figures[0].judged == 0.5);
	assert_true(bench.figures[1].judged == 40);
	assert_int_equal(bench.figures[0].verdict, BENCH_TOLD);
	assert_int_equal(bench.figures[1].verdict, BENCH_TOLD);
	assert_true(bench_is_good(&bench));
	free(bench.figures);
}

static void a_child_whose_status_is_unknown_has_failed(void **state)
{
	(void)state;
	struct bench_child child = {.pid = fork()};
	struct rusage usage;
	struct err err;

	if (child.pid == 0)
		_exit(0);
	assert_int_equal(waitpid(child.pid, NULL, 0), child.pid);
	assert_false(bench_child_wait(&child, &usage, &err));
	assert_non_null(strstr(err.message, "its exit status is unknown"));
	assert_int_equal(child.pid, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_payload_is_json_of_about_the_size_that_was_asked_for),
	    cmocka_unit_test(a_payload_tells_its_number_and_is_the_same_each_time),
	    cmocka_unit_test(payloads_differ),
	    cmocka_unit_test(the_median_is_in_the_middle),
	    cmocka_unit_test(
		a_figure_beyond_its_bound_is_not_good_and_a_saturated_one_says_nothing),
	    cmocka_unit_test(pairs_are_judged_by_the_median_of_their_ratios),
	    cmocka_unit_test(a_ratio_without_a_bound_is_shown_and_not_judged),
	    cmocka_unit_test(a_child_whose_status_is_unknown_has_failed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
