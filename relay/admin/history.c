/*
 * A row of points is a ring: the point of a second is at second % HISTORY_SECONDS. [the table] says
 * which metrics are kept, [points are taken] once a second, and [points are shown] as JSON.
 */
#include "history.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include "memory.h"
#include "metrics.h"
#include "moment.h"
#include "text.h"

enum {
	MOST_BUCKETS = 32,
	SPREAD_SECONDS = 3, /* a late call fills so many seconds */
};

/* --- the table ------------------------------------------------------------------------------- */

enum point_kind { POINT_RATE, POINT_LEVEL, POINT_QUANTILE };
static const char *const kinds[] = {"rate", "level", "quantile"};

static const struct kept_metric {
	const char *name;
	enum point_kind kind;
	const char *unit; /* of a point */
} kept_metrics[] = {
    {"relay_published_total", POINT_RATE, "records/s"},
    {"relay_published_bytes_total", POINT_RATE, "bytes/s"},
    {"relay_unpublished_rows", POINT_LEVEL, "rows"},
    {"relay_unpublished_age_seconds", POINT_LEVEL, "s"},
    {"relay_latency_commit_to_read_seconds", POINT_QUANTILE, "s"},
    {"relay_latency_read_to_produce_seconds", POINT_QUANTILE, "s"},
    {"relay_latency_produce_to_ack_seconds", POINT_QUANTILE, "s"},
    {"relay_in_flight", POINT_LEVEL, "records"},
    {"relay_open_windows", POINT_LEVEL, "windows"},
    {"relay_memory_bytes", POINT_LEVEL, "bytes"},
    {"relay_parked_rows", POINT_LEVEL, "rows"},
    {"relay_scheduled_rows", POINT_LEVEL, "rows"},
    {"relay_kafka_broker_rtt_seconds", POINT_LEVEL, "s"},
    {"relay_lookback_decisions_total", POINT_RATE, "prepares/s"},
    {"relay_lookback_checks_total", POINT_RATE, "ids/s"},
    {"relay_lookback_check_seconds", POINT_QUANTILE, "s"},
    {"relay_lookback_overdue", POINT_LEVEL, "prepares"},
    {"relay_lookback_oldest_seconds", POINT_LEVEL, "s"},
    {"relay_deliver_handled_total", POINT_RATE, "messages/s"},
    {"relay_deliver_dead_letters_total", POINT_RATE, "messages/s"},
    {"relay_deliver_in_progress", POINT_LEVEL, "messages"},
    {"relay_deliver_request_seconds", POINT_QUANTILE, "s"},
    {"relay_deliver_false_positive_rate", POINT_LEVEL, "1"},
    {"relay_api_requests_total", POINT_RATE, "requests/s"},
};
enum { KEPT = sizeof kept_metrics / sizeof *kept_metrics };

static const struct kept_metric *find_kept_metric(const char *name)
{
	for (int i = 0; i < KEPT; i++)
		if (text_equal(kept_metrics[i].name, name))
			return &kept_metrics[i];
	return NULL;
}

/* A series takes one row, that of a histogram one for each quantile. */
static const double quantiles[] = {0.5, 0.99};
static const char *const quantile_names[] = {"0.5", "0.99"};
enum { QUANTILES = sizeof quantiles / sizeof *quantiles };

struct kept_series {
	const struct kept_metric *kept;
	struct metric_view view;
	float *rows; /* HISTORY_SECONDS points; a histogram has as many for each quantile */
	double before;
	uint64_t counts[MOST_BUCKETS];
};

struct history {
	pthread_mutex_t mutex;
	float *points; /* HISTORY_ROWS rows */
	int rows;      /* that are taken */
	struct kept_series series[HISTORY_ROWS];
	int count;
	int64_t left_out; /* series without a row, as of the newest call */
	int64_t newest;   /* second; 0: none was taken */
	int64_t second, elapsed;
};

struct history *history_create(void)
{
	struct history *history = xcalloc(1, sizeof *history);

	pthread_mutex_init(&history->mutex, NULL);
	history->points = xcalloc((size_t)HISTORY_ROWS * HISTORY_SECONDS, sizeof *history->points);
	return history;
}

void history_destroy(struct history *history)
{
	if (!history)
		return;
	pthread_mutex_destroy(&history->mutex);
	free(history->points);
	free(history);
}

/* --- points are taken ------------------------------------------------------------------------ */

static int rows_of(const struct kept_metric *kept)
{
	return kept->kind == POINT_QUANTILE ? QUANTILES : 1;
}

static void set_point(const struct history *history, float *row, double value)
{
	for (int64_t i = 0; i < history->elapsed && i < SPREAD_SECONDS; i++)
		row[(history->second - i) % HISTORY_SECONDS] = (float)value;
}

/* False: no row is left. The growth of a counter or histogram is known from the next call on. */
static bool add_kept_series(
    struct history *history, const struct kept_metric *kept, const struct metric_view *view)
{
	int rows = rows_of(kept);
	struct kept_series *series = &history->series[history->count];

	if (history->rows + rows > HISTORY_ROWS)
		return false;
	*series = (struct kept_series){.kept = kept,
	    .view = *view,
	    .rows = history->points + (size_t)history->rows * HISTORY_SECONDS};
	for (int i = 0; i < rows * HISTORY_SECONDS; i++)
		series->rows[i] = NAN;
	if (kept->kind == POINT_QUANTILE)
		metric_counts(view->metric, series->counts);
	else
		series->before = metric_value(view->metric);
	if (kept->kind == POINT_LEVEL)
		set_point(history, series->rows, series->before);
	history->rows += rows;
	history->count++;
	return true;
}

static struct kept_series *find_kept_series(struct history *history, const struct metric *metric)
{
	for (int i = 0; i < history->count; i++)
		if (history->series[i].view.metric == metric)
			return &history->series[i];
	return NULL;
}

/*
 * The value below which a share of the observations is, from their counts by bucket: within a
 * bucket they are taken to be spread evenly, as histogram_quantile of Prometheus does. The last
 * bucket has no upper bound, so that its lower one is the answer.
 */
static double quantile_of(
    const double *bounds, const uint64_t *counts, size_t buckets, double share)
{
	double below = 0, total = 0, rank, from;
	size_t at = 0;

	for (size_t i = 0; i < buckets; i++)
		total += (double)counts[i];
	if (total == 0)
		return NAN;
	rank = share * total;
	while (at + 1 < buckets && below + (double)counts[at] < rank)
		below += (double)counts[at++];
	from = at > 0 ? bounds[at - 1] : 0;
	if (at + 1 == buckets || counts[at] == 0)
		return from;
	return from + (bounds[at] - from) * (rank - below) / (double)counts[at];
}

static void take_quantiles(const struct history *history, struct kept_series *series)
{
	const struct metric_row *row = series->view.row;
	size_t buckets = metric_bounds(row);
	uint64_t counts[MOST_BUCKETS], grown[MOST_BUCKETS];

	metric_counts(series->view.metric, counts);
	for (size_t i = 0; i < buckets; i++)
		grown[i] = counts[i] - series->counts[i];
	memcpy(series->counts, counts, buckets * sizeof *counts);
	for (int i = 0; i < QUANTILES; i++)
		set_point(history, series->rows + (size_t)i * HISTORY_SECONDS,
		    quantile_of(row->buckets, grown, buckets, quantiles[i]));
}

static void take_value(const struct history *history, struct kept_series *series)
{
	double value = metric_value(series->view.metric);

	if (series->kept->kind == POINT_LEVEL)
		set_point(history, series->rows, value);
	else
		set_point(
		    history, series->rows, (value - series->before) / (double)history->elapsed);
	series->before = value;
}

static void take_series(const struct metric_view *view, void *context)
{
	struct history *history = context;
	const struct kept_metric *kept = find_kept_metric(view->row->name);
	struct kept_series *series = kept ? find_kept_series(history, view->metric) : NULL;

	if (!kept)
		return;
	if (!series)
		history->left_out += !add_kept_series(history, kept, view);
	else if (kept->kind == POINT_QUANTILE)
		take_quantiles(history, series);
	else
		take_value(history, series);
}

/* Points of seconds that nobody took are those of 15 minutes ago. */
static void forget_skipped(struct history *history)
{
	int64_t skipped = history->elapsed - SPREAD_SECONDS;

	for (int64_t i = 0; i < skipped && i < HISTORY_SECONDS; i++)
		for (int row = 0; row < history->rows; row++)
			history->points[row * HISTORY_SECONDS +
					(history->newest + 1 + i) % HISTORY_SECONDS] = NAN;
}

void history_take(struct history *history, int64_t second)
{
	pthread_mutex_lock(&history->mutex);
	if (second > history->newest) {
		history->second = second;
		history->elapsed = history->newest ? second - history->newest : 1;
		history->left_out = 0;
		forget_skipped(history);
		metrics_visit(take_series, history);
		history->newest = second;
	}
	pthread_mutex_unlock(&history->mutex);
}

/* --- points are shown ------------------------------------------------------------------------ */

bool history_has(const char *name)
{
	return find_kept_metric(name) != NULL;
}

/* A metric that has no series in this process has no help text either. */
static const char *about_kept(
    const struct history *history, const struct kept_metric *kept, int *ret_series)
{
	const char *about = "";

	*ret_series = 0;
	for (int i = 0; i < history->count; i++) {
		if (history->series[i].kept != kept)
			continue;
		about = history->series[i].view.row->help;
		(*ret_series)++;
	}
	return about;
}

json_t *history_names(struct history *history, int64_t *ret_left_out)
{
	json_t *names = json_array();

	pthread_mutex_lock(&history->mutex);
	for (int i = 0; i < KEPT; i++) {
		const struct kept_metric *kept = &kept_metrics[i];
		int series;
		const char *about = about_kept(history, kept, &series);

		if (series > 0)
			json_array_append_new(
			    names, json_pack("{s:s, s:s, s:s, s:s, s:i}", "name", kept->name,
				       "kind", kinds[kept->kind], "unit", kept->unit, "about",
				       about, "series", series));
	}
	*ret_left_out = history->left_out;
	pthread_mutex_unlock(&history->mutex);
	return names;
}

static bool is_kept_second(const struct history *history, int64_t second)
{
	return second <= history->newest && second > history->newest - HISTORY_SECONDS;
}

/* NAN: nothing is known of these seconds. */
static double point_of(
    const struct history *history, const float *row, enum point_kind kind, int64_t from, int64_t to)
{
	double sum = 0, highest = NAN;
	int known = 0;

	for (int64_t second = from; second < to; second++) {
		double value =
		    is_kept_second(history, second) ? row[second % HISTORY_SECONDS] : NAN;

		if (isnan(value))
			continue;
		known++;
		sum += value;
		highest = known == 1 || value > highest ? value : highest;
	}
	return kind == POINT_RATE && known > 0 ? sum / known : highest;
}

static json_t *points_json(const struct history *history, const float *row, enum point_kind kind,
    const struct history_range *range)
{
	json_t *points = json_array();

	for (int64_t from = range->from; from < range->to; from += range->step) {
		int64_t to = from + range->step < range->to ? from + range->step : range->to;
		double point = point_of(history, row, kind, from, to);

		json_array_append_new(points, isnan(point) ? json_null() : json_real(point));
	}
	return points;
}

static json_t *labels_json(const struct kept_series *series, int row)
{
	json_t *labels = json_object();

	for (int i = 0; series->view.labels[i]; i++)
		json_object_set_new(
		    labels, series->view.labels[i], json_string(series->view.values[i]));
	if (series->kept->kind == POINT_QUANTILE)
		json_object_set_new(labels, "quantile", json_string(quantile_names[row]));
	return labels;
}

json_t *history_json(struct history *history, const char *name, const struct history_range *range,
    history_scope *is_in_scope, void *context)
{
	const struct kept_metric *kept = find_kept_metric(name);
	json_t *all = json_array();
	char from[MOMENT_SIZE];

	pthread_mutex_lock(&history->mutex);
	for (int i = 0; i < history->count; i++) {
		const struct kept_series *series = &history->series[i];

		if (series->kept != kept ||
		    !is_in_scope(metric_view_label(&series->view, "publisher"),
			metric_view_label(&series->view, "section"), context))
			continue;
		for (int row = 0; row < rows_of(kept); row++)
			json_array_append_new(all,
			    json_pack("{s:o, s:o}", "labels", labels_json(series, row), "points",
				points_json(history, series->rows + (size_t)row * HISTORY_SECONDS,
				    kept->kind, range)));
	}
	pthread_mutex_unlock(&history->mutex);
	moment_format(range->from * 1000000, from);
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o}", "name", kept->name, "kind",
	    kinds[kept->kind], "unit", kept->unit, "from", from, "step", (json_int_t)range->step,
	    "series", all);
}

double history_newest(struct history *history, const char *name, const char *publisher)
{
	const struct kept_metric *kept = find_kept_metric(name);
	double sum = NAN;

	pthread_mutex_lock(&history->mutex);
	for (int i = 0; i < history->count; i++) {
		const struct kept_series *series = &history->series[i];
		double point = series->rows[history->newest % HISTORY_SECONDS];

		if (series->kept == kept && !isnan(point) &&
		    (!publisher ||
			text_equal(metric_view_label(&series->view, "publisher"), publisher)))
			sum = isnan(sum) ? point : sum + point;
	}
	pthread_mutex_unlock(&history->mutex);
	return sum;
}
