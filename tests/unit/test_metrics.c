#include "metrics.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The page grows from test to test, as it does in a process. */
static void assert_page_has(const char *lines)
{
	struct text page = {0};

	metrics_write(&page);
	if (!strstr(page.data, lines))
		fail_msg("missing:\n%s\nin:\n%s", lines, page.data);
	text_finish(&page);
}

static void a_counter_without_labels_is_one_line(void **state)
{
	static const struct metric_family family = {
	    "relay_test_plain_total", METRIC_COUNTER, "Plain."};
	struct metric *metric = metric_series(&family, NULL);

	(void)state;
	metric_add(metric, 1);
	metric_add(metric, 2.5);
	assert_true(metric_value(metric) == 3.5);
	assert_page_has("# HELP relay_test_plain_total Plain.\n"
			"# TYPE relay_test_plain_total counter\n"
			"relay_test_plain_total 3.5\n");
}

static void label_values_and_help_are_escaped(void **state)
{
	static const struct metric_family family = {"relay_test_escaped", METRIC_GAUGE,
	    "A \"quoted\" back\\slash\nand line.", {"publisher", "topic"}};
	const char *const values[] = {"a\"b\\c\nd", "\xc3\xa4\xff{}"};

	(void)state;
	metric_set(metric_series(&family, values), -1);
	assert_page_has("# HELP relay_test_escaped A \"quoted\" back\\\\slash\\nand line.\n"
			"# TYPE relay_test_escaped gauge\n"
			"relay_test_escaped{publisher=\"a\\\"b\\\\c\\nd\","
			"topic=\"\xc3\xa4\xef\xbf\xbd{}\"} -1\n");
}

static void the_same_labels_are_the_same_series(void **state)
{
	static const struct metric_family family = {
	    "relay_test_series_total", METRIC_COUNTER, "Series.", {"a", "b", "c", "d"}};
	static const struct metric_family copy = {
	    "relay_test_series_total", METRIC_COUNTER, "Series.", {"a", "b", "c", "d"}};
	struct metric *first = metric_series(&family, (const char *[]){"1", "2", "3", "4"});
	struct metric *second = metric_series(&family, (const char *[]){"1", "2", "3", "5"});

	(void)state;
	assert_ptr_not_equal(first, second);
	assert_ptr_equal(first, metric_series(&family, (const char *[]){"1", "2", "3", "4"}));
	assert_ptr_equal(second, metric_series(&copy, (const char *[]){"1", "2", "3", "5"}));
	metric_add(second, 1);
	assert_page_has("relay_test_series_total{a=\"1\",b=\"2\",c=\"3\",d=\"4\"} 0\n"
			"relay_test_series_total{a=\"1\",b=\"2\",c=\"3\",d=\"5\"} 1\n");
}

static void numbers_read_back_as_they_were(void **state)
{
	static const struct metric_family family = {
	    "relay_test_number", METRIC_GAUGE, "Numbers.", {"n"}};
	static const struct {
		double number;
		const char *text;
	} pairs[] = {{0.1, "0.1"}, {1e9, "1000000000"}, {1.0 / 3, "0.3333333333333333"},
	    {9007199254740992.0, "9007199254740992"}, {1e300, "1e+300"}, {INFINITY, "+Inf"},
	    {-INFINITY, "-Inf"}, {NAN, "NaN"}};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		char *line =
		    xformat("relay_test_number{n=\"%s\"} %s\n", pairs[i].text, pairs[i].text);
		metric_set(metric_series(&family, &pairs[i].text), pairs[i].number);
		assert_page_has(line);
		free(line);
	}
}

static const double bounds[] = {0.005, 0.1, 2.5, INFINITY};
static const struct metric_family histogram = {
    "relay_test_seconds", METRIC_HISTOGRAM, "Time.", {"publisher"}, bounds};

static void a_histogram_is_cumulative_and_bounds_are_included(void **state)
{
	struct metric *metric = metric_series(&histogram, (const char *[]){"main"});

	(void)state;
	metric_observe(metric, 0.005, 1);
	metric_observe(metric, 0.0051, 3);
	metric_observe(metric, 100, 2);
	assert_page_has("# TYPE relay_test_seconds histogram\n"
			"relay_test_seconds_bucket{publisher=\"main\",le=\"0.005\"} 1\n"
			"relay_test_seconds_bucket{publisher=\"main\",le=\"0.1\"} 4\n"
			"relay_test_seconds_bucket{publisher=\"main\",le=\"2.5\"} 4\n"
			"relay_test_seconds_bucket{publisher=\"main\",le=\"+Inf\"} 6\n"
			"relay_test_seconds_sum{publisher=\"main\"} 200.0203\n"
			"relay_test_seconds_count{publisher=\"main\"} 6\n");
}

static void a_histogram_without_labels_has_le_alone(void **state)
{
	static const struct metric_family family = {
	    "relay_test_bare_seconds", METRIC_HISTOGRAM, "Time.", {NULL}, bounds + 2};

	(void)state;
	metric_observe(metric_series(&family, NULL), 1, 1);
	assert_page_has("relay_test_bare_seconds_bucket{le=\"2.5\"} 1\n"
			"relay_test_bare_seconds_bucket{le=\"+Inf\"} 1\n"
			"relay_test_bare_seconds_sum 1\n"
			"relay_test_bare_seconds_count 1\n");
}

enum { THREADS = 4, ROUNDS = 5000 };
static const struct metric_family shared = {
    "relay_test_shared_total", METRIC_COUNTER, "Shared.", {"n"}};

static void *count_up(void *argument)
{
	struct text page = {0};

	(void)argument;
	for (int i = 0; i < ROUNDS; i++) {
		const char digit[] = {(char)('0' + i % 10), '\0'};
		metric_add(metric_series(&shared, (const char *[]){digit}), 1);
		metric_observe(metric_series(&histogram, (const char *[]){"shared"}), 0.5, 2);
		if (i % 1000 == 0) {
			text_clear(&page);
			metrics_write(&page);
		}
	}
	text_finish(&page);
	return NULL;
}

static void threads_lose_no_count(void **state)
{
	pthread_t threads[THREADS];
	double sum = 0;

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (char digit[] = "0"; *digit <= '9'; ++*digit)
		sum += metric_value(metric_series(&shared, (const char *[]){digit}));
	assert_true(sum == THREADS * ROUNDS);
	assert_page_has("relay_test_seconds_bucket{publisher=\"shared\",le=\"2.5\"} 40000\n"
			"relay_test_seconds_bucket{publisher=\"shared\",le=\"+Inf\"} 40000\n"
			"relay_test_seconds_sum{publisher=\"shared\"} 20000\n"
			"relay_test_seconds_count{publisher=\"shared\"} 40000\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_counter_without_labels_is_one_line),
	    cmocka_unit_test(label_values_and_help_are_escaped),
	    cmocka_unit_test(the_same_labels_are_the_same_series),
	    cmocka_unit_test(numbers_read_back_as_they_were),
	    cmocka_unit_test(a_histogram_is_cumulative_and_bounds_are_included),
	    cmocka_unit_test(a_histogram_without_labels_has_le_alone),
	    cmocka_unit_test(threads_lose_no_count),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
