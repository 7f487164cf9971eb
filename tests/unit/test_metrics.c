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

/* The table of one row, whose labels all stay open. */
static struct metric *series_of(const struct metric_row *row)
{
	const struct metric_table table = {.rows = row, .count = 1};
	struct metric *metric;

	metric_series_all(&table, NULL, &metric, NULL);
	return metric;
}

static void a_counter_without_labels_is_one_line(void **state)
{
	static const struct metric_row family = {
	    .name = "relay_test_plain_total", .type = METRIC_COUNTER, .help = "Plain."};
	struct metric *metric = series_of(&family);

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
	static const struct metric_row family = {.name = "relay_test_escaped",
	    .type = METRIC_GAUGE,
	    .help = "A \"quoted\" back\\slash\nand line.",
	    .labels = {{"publisher"}, {"topic"}}};
	const char *const values[] = {"a\"b\\c\nd", "\xc3\xa4\xff{}"};

	(void)state;
	metric_set(metric_labelled(series_of(&family), values), -1);
	assert_page_has("# HELP relay_test_escaped A \"quoted\" back\\\\slash\\nand line.\n"
			"# TYPE relay_test_escaped gauge\n"
			"relay_test_escaped{publisher=\"a\\\"b\\\\c\\nd\","
			"topic=\"\xc3\xa4\xef\xbf\xbd{}\"} -1\n");
}

static void the_same_labels_are_the_same_series(void **state)
{
	static const struct metric_row family = {.name = "relay_test_series_total",
	    .type = METRIC_COUNTER,
	    .help = "Series.",
	    .labels = {{"a"}, {"b"}, {"c"}, {"d"}}};
	struct metric *first = METRIC_LABELLED(series_of(&family), "1", "2", "3", "4");
	struct metric *second = METRIC_LABELLED(series_of(&family), "1", "2", "3", "5");

	(void)state;
	assert_ptr_not_equal(first, second);
	assert_ptr_equal(first, METRIC_LABELLED(series_of(&family), "1", "2", "3", "4"));
	assert_ptr_equal(second, METRIC_LABELLED(series_of(&family), "1", "2", "3", "5"));
	metric_add(second, 1);
	assert_page_has("relay_test_series_total{a=\"1\",b=\"2\",c=\"3\",d=\"4\"} 0\n"
			"relay_test_series_total{a=\"1\",b=\"2\",c=\"3\",d=\"5\"} 1\n");
}

static void numbers_read_back_as_they_were(void **state)
{
	static const struct metric_row family = {.name = "relay_test_number",
	    .type = METRIC_GAUGE,
	    .help = "Numbers.",
	    .labels = {{"n"}}};
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
		metric_set(METRIC_LABELLED(series_of(&family), pairs[i].text), pairs[i].number);
		assert_page_has(line);
		free(line);
	}
}

static const double bounds[] = {0.005, 0.1, 2.5, INFINITY};
static const struct metric_row histogram = {.name = "relay_test_seconds",
    .type = METRIC_HISTOGRAM,
    .help = "Time.",
    .labels = {{"publisher"}},
    .buckets = bounds};

static void a_histogram_is_cumulative_and_bounds_are_included(void **state)
{
	struct metric *metric = METRIC_LABELLED(series_of(&histogram), "main");

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
	static const struct metric_row family = {.name = "relay_test_bare_seconds",
	    .type = METRIC_HISTOGRAM,
	    .help = "Time.",
	    .buckets = bounds + 2};

	(void)state;
	metric_observe(series_of(&family), 1, 1);
	assert_page_has("relay_test_bare_seconds_bucket{le=\"2.5\"} 1\n"
			"relay_test_bare_seconds_bucket{le=\"+Inf\"} 1\n"
			"relay_test_bare_seconds_sum 1\n"
			"relay_test_bare_seconds_count 1\n");
}

enum { THREADS = 4, ROUNDS = 5000 };
static const struct metric_row shared = {.name = "relay_test_shared_total",
    .type = METRIC_COUNTER,
    .help = "Shared.",
    .labels = {{"n"}}};

static void *count_up(void *argument)
{
	struct text page = {0};

	(void)argument;
	for (int i = 0; i < ROUNDS; i++) {
		const char digit[] = {(char)('0' + i % 10), '\0'};
		metric_add(METRIC_LABELLED(series_of(&shared), digit), 1);
		metric_observe(METRIC_LABELLED(series_of(&histogram), "shared"), 0.5, 2);
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
		sum += metric_value(METRIC_LABELLED(series_of(&shared), digit));
	assert_true(sum == THREADS * ROUNDS);
	assert_page_has("relay_test_seconds_bucket{publisher=\"shared\",le=\"2.5\"} 40000\n"
			"relay_test_seconds_bucket{publisher=\"shared\",le=\"+Inf\"} 40000\n"
			"relay_test_seconds_sum{publisher=\"shared\"} 20000\n"
			"relay_test_seconds_count{publisher=\"shared\"} 40000\n");
}

/* --- tables ---------------------------------------------------------------------------------- */

struct test_series {
	struct metric *named, *by_reason;
};
struct test_figures {
	bool paused;
	int partitions;
	int64_t age_ms;
	uint64_t handled;
	double rate;
};
#define SERIES(member) METRIC_FIELD(struct test_series, member)
#define FIGURE(member) METRIC_FIELD(struct test_figures, member)
static const struct metric_row rows[] = {
    {"relay_table_named_total", METRIC_COUNTER, SERIES(named), "Named."},
    {"relay_table_reason_total", METRIC_COUNTER, SERIES(by_reason), "By reason.",
	.labels = {{"reason", "any"}}},
    {"relay_table_paused", METRIC_GAUGE, FIGURE(paused), "Paused."},
    {"relay_table_partitions", METRIC_GAUGE, FIGURE(partitions), "Partitions."},
    {"relay_table_age_seconds", METRIC_GAUGE, FIGURE(age_ms), "Age.", .per_unit = 1000},
    {"relay_table_handled_total", METRIC_COUNTER, FIGURE(handled), "Handled."},
    {"relay_table_rate", METRIC_GAUGE, FIGURE(rate), "Rate."},
};
static const struct metric_table table = {
    .labels = {{"section", "its name"}}, METRIC_ROWS_OF(rows)};

static void labels_of_the_table_come_first_and_open_series_are_not_shown(void **state)
{
	struct metric_figures figures = {0};
	struct test_series series;
	struct text page = {0};

	(void)state;
	metric_series_all(&table, (const char *const[]){"a"}, &series, &figures);
	metrics_write(&page);
	assert_null(strstr(page.data, "relay_table_reason_total"));
	metric_add(METRIC_LABELLED(series.by_reason, "late"), 2);
	metric_add(series.named, 1);
	assert_page_has("relay_table_named_total{section=\"a\"} 1\n");
	assert_page_has("# TYPE relay_table_reason_total counter\n"
			"relay_table_reason_total{section=\"a\",reason=\"late\"} 2\n");
	text_finish(&page);
}

static void figures_set_gauges_and_raise_counters(void **state)
{
	struct metric_figures figures = {0};
	struct test_figures now = {true, 3, 1500, 7, 0.25};
	struct test_series series;

	(void)state;
	metric_series_all(&table, (const char *const[]){"b"}, &series, &figures);
	metric_note(&table, &figures, &now);
	assert_page_has("relay_table_paused{section=\"b\"} 1\n");
	assert_page_has("relay_table_partitions{section=\"b\"} 3\n");
	assert_page_has("relay_table_age_seconds{section=\"b\"} 1.5\n");
	assert_page_has("relay_table_handled_total{section=\"b\"} 7\n");
	assert_page_has("relay_table_rate{section=\"b\"} 0.25\n");
	metric_note(&table, &figures, &(struct test_figures){.handled = 9});
	assert_page_has("relay_table_paused{section=\"b\"} 0\n");
	assert_page_has("relay_table_handled_total{section=\"b\"} 9\n");
	metric_note(
	    &table, &figures, &(struct test_figures){.handled = 4}); /* began again from 0 */
	assert_page_has("relay_table_handled_total{section=\"b\"} 13\n");
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
	    cmocka_unit_test(labels_of_the_table_come_first_and_open_series_are_not_shown),
	    cmocka_unit_test(figures_set_gauges_and_raise_counters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
