#include "history.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "metrics.h"
#include "cleanup.h"
#include "text.h"

enum { BEGIN = 1800000000 };

static const double bounds[] = {1, 2, 4, INFINITY};
static const struct metric_row published_row = {.name = "relay_published_total",
    .type = METRIC_COUNTER,
    .help = "Records.",
    .labels = {{"publisher", "its name"}}};
static const struct metric_row level_row = {.name = "relay_in_flight",
    .type = METRIC_GAUGE,
    .help = "In flight.",
    .labels = {{"publisher", "its name"}}};
static const struct metric_row latency_row = {.name = "relay_lookback_check_seconds",
    .type = METRIC_HISTOGRAM,
    .help = "Seconds.",
    .labels = {{"section", "its name"}},
    .buckets = bounds};

static struct metric *series_of(const struct metric_row *row, const char *name)
{
	const struct metric_table table = {.rows = row, .count = 1};
	struct metric *metric;

	metric_series_all(&table, NULL, &metric, NULL);
	return METRIC_LABELLED(metric, name);
}

static bool sees_all(const char *publisher, const char *section, void *context)
{
	(void)publisher;
	(void)section;
	(void)context;
	return true;
}

static bool sees_one(const char *publisher, const char *section, void *context)
{
	(void)section;
	return publisher && text_equal(publisher, context);
}

/* The points of the series with this value of a label; -1 stands for null. */
static void assert_points(
    json_t *shown, const char *label, const char *value, int count, const double *expected)
{
	json_t *series;
	size_t i;

	json_array_foreach(json_object_get(shown, "series"), i, series)
	{
		json_t *points = json_object_get(series, "points");

		if (!text_equal(json_string_value(
				    json_object_get(json_object_get(series, "labels"), label)),
			value))
			continue;
		assert_int_equal(json_array_size(points), count);
		for (int at = 0; at < count; at++) {
			json_t *point = json_array_get(points, (size_t)at);

			if (json_is_null(point) != (expected[at] < 0) ||
			    (!json_is_null(point) &&
				fabs(json_number_value(point) - expected[at]) > 1e-6))
				fail_msg("point %d is %g", at, json_number_value(point));
		}
		json_decref(shown);
		return;
	}
	fail_msg("no series has %s %s", label, value);
}
#define POINTS(shown, label, value, ...)                                                           \
	assert_points(shown, label, value, (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)),  \
	    (const double[]){__VA_ARGS__})

static json_t *shown(struct history *history, const char *name, int from, int to, int step)
{
	const struct history_range range = {BEGIN + from, BEGIN + to, step};

	return history_json(history, name, &range, sees_all, NULL);
}

static void counters_become_rates_and_gauges_levels(void **state)
{
	struct history *history = history_create();
	struct metric *counter = series_of(&published_row, "one");
	struct metric *gauge = series_of(&level_row, "one");

	(void)state;
	metric_add(counter, 1000); /* what came before is no rate */
	history_take(history, BEGIN);
	for (int second = 1; second <= 4; second++) {
		metric_add(counter, second * 10);
		metric_set(gauge, 5 - second);
		history_take(history, BEGIN + second);
	}
	POINTS(shown(history, "relay_published_total", 0, 6, 1), "publisher", "one", -1, 10, 20, 30,
	    40, -1);
	POINTS(shown(history, "relay_published_total", 1, 5, 2), "publisher", "one", 15, 35);
	POINTS(shown(history, "relay_published_total", 1, 5, 3), "publisher", "one", 20, 40);
	POINTS(shown(history, "relay_in_flight", 1, 5, 2), "publisher", "one", 4, 2);
	assert_float_equal(history_newest(history, "relay_published_total", "one"), 40, 1e-6);
	assert_true(isnan(history_newest(history, "relay_published_total", "none")));
	history_destroy(history);
}

static void a_late_call_fills_the_seconds_before_it(void **state)
{
	struct history *history = history_create();
	struct metric *counter = series_of(&published_row, "late");

	(void)state;
	history_take(history, BEGIN);
	history_take(history, BEGIN + 1);
	metric_add(counter, 30);
	history_take(history, BEGIN + 4);
	metric_add(counter, 100);
	history_take(history, BEGIN + 9);
	history_take(history, BEGIN + 9);
	history_take(history, BEGIN + 3);
	POINTS(shown(history, "relay_published_total", 1, 10, 1), "publisher", "late", 0, 10, 10,
	    10, -1, -1, 20, 20, 20);
	history_destroy(history);
}

static void only_the_last_15_minutes_are_kept(void **state)
{
	struct history *history = history_create();
	struct metric *gauge = series_of(&level_row, "kept");

	(void)state;
	for (int second = 0; second <= HISTORY_SECONDS; second++) {
		metric_set(gauge, second);
		history_take(history, BEGIN + second);
	}
	POINTS(shown(history, "relay_in_flight", 0, 3, 1), "publisher", "kept", -1, 1, 2);
	history_destroy(history);
}

static void a_histogram_becomes_two_quantiles_of_each_second(void **state)
{
	struct history *history = history_create();
	struct metric *latency = series_of(&latency_row, "bank");

	(void)state;
	history_take(history, BEGIN);
	metric_observe(latency, 0.5, 50);
	metric_observe(latency, 3, 50);
	history_take(history, BEGIN + 1);
	history_take(history, BEGIN + 2);
	metric_observe(latency, 100, 1);
	history_take(history, BEGIN + 3);
	POINTS(
	    shown(history, "relay_lookback_check_seconds", 1, 4, 1), "quantile", "0.5", 1, -1, 4);
	POINTS(shown(history, "relay_lookback_check_seconds", 1, 4, 1), "quantile", "0.99", 3.96,
	    -1, 4);
	history_destroy(history);
}

static void a_caller_sees_the_series_of_its_scope(void **state)
{
	struct history *history = history_create();
	const struct history_range range = {BEGIN, BEGIN + 1, 1};
	json_t *seen;

	(void)state;
	series_of(&level_row, "mine");
	series_of(&level_row, "others");
	history_take(history, BEGIN);
	seen = history_json(history, "relay_in_flight", &range, sees_one, (void *)"mine");
	assert_int_equal(json_array_size(json_object_get(seen, "series")), 1);
	POINTS(seen, "publisher", "mine", 0);
	history_destroy(history);
}

static void series_beyond_the_rows_are_counted(void **state)
{
	struct history *history = history_create();
	int64_t left_out;

	(void)state;
	for (int i = 0; i < HISTORY_ROWS; i++) {
		owned_text char *name = xformat("many-%d", i);

		series_of(&level_row, name);
	}
	history_take(history, BEGIN);
	json_decref(history_names(history, &left_out));
	assert_true(left_out > 0);
	history_destroy(history);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(counters_become_rates_and_gauges_levels),
	    cmocka_unit_test(a_late_call_fills_the_seconds_before_it),
	    cmocka_unit_test(only_the_last_15_minutes_are_kept),
	    cmocka_unit_test(a_histogram_becomes_two_quantiles_of_each_second),
	    cmocka_unit_test(a_caller_sees_the_series_of_its_scope),
	    cmocka_unit_test(series_beyond_the_rows_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
