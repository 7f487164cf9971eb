#include "metrics.h"
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Families of series in a list, in the order of first use. metric_series_all and metric_labelled
 * find or create a series, metric_add, metric_set and metric_observe change its value, metric_note
 * reads values from a struct of figures, and metrics_write prints the page.
 *
 * The lists only grow and are read under the lock; values change without it.
 */
struct metric {
	const struct metric_row *row;
	struct family *family;
	char *values[METRIC_LABELS]; /* values of the family's labels; NULL: this one and the later
					ones are open */
	_Atomic double value;        /* the sum of a histogram, otherwise the value */
	_Atomic uint64_t *filled;    /* of a histogram: counts of the buckets, not cumulative */
	struct metric *next;
};

struct family {
	const struct metric_row *row;
	const char *labels[METRIC_LABELS + 1]; /* the table's, then the row's; ended by NULL */
	struct metric *series;
	struct family *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct family *families;

size_t metric_bounds(const struct metric_row *row)
{
	size_t count = 1;

	while (!isinf(row->buckets[count - 1]))
		count++;
	return count;
}

static void add_labels(struct family *family, int *count, const struct metric_label *labels)
{
	for (int i = 0; i < METRIC_LABELS && labels[i].name; i++) {
		assert(*count < METRIC_LABELS);
		family->labels[(*count)++] = labels[i].name;
	}
}

static struct family *find_family(const struct metric_table *table, const struct metric_row *row)
{
	struct family **at = &families;
	int count = 0;

	while (*at && (*at)->row != row)
		at = &(*at)->next;
	if (!*at) {
		*at = xcalloc(1, sizeof **at);
		(*at)->row = row;
		add_labels(*at, &count, table->labels);
		add_labels(*at, &count, row->labels);
	}
	return *at;
}

static bool has_values(const struct metric *metric, const char *const *values)
{
	for (int i = 0; i < METRIC_LABELS; i++)
		if (!text_equal(metric->values[i], values[i]))
			return false;
	return true;
}

static struct metric *create_series(struct family *family, const char *const *values)
{
	struct metric *metric = xcalloc(1, sizeof *metric);

	metric->row = family->row;
	metric->family = family;
	for (int i = 0; i < METRIC_LABELS && values[i]; i++)
		metric->values[i] = xstrdup(values[i]);
	if (metric->row->type == METRIC_HISTOGRAM)
		metric->filled = xcalloc(metric_bounds(metric->row), sizeof *metric->filled);
	return metric;
}

/* values: METRIC_LABELS values, NULL from the first open label on. */
static struct metric *find_series(struct family *family, const char *const *values)
{
	struct metric **at = &family->series;

	while (*at && !has_values(*at, values))
		at = &(*at)->next;
	if (!*at)
		*at = create_series(family, values);
	return *at;
}

void metric_series_all(const struct metric_table *table, const char *const *values, void *series,
    struct metric_figures *figures)
{
	const char *all[METRIC_LABELS] = {0};

	assert(table->count <= METRIC_ROWS);
	for (int i = 0; values && i < METRIC_LABELS && table->labels[i].name; i++)
		all[i] = values[i];
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < table->count; i++) {
		const struct metric_field *field = &table->rows[i].field;
		struct metric *metric = find_series(find_family(table, &table->rows[i]), all);

		if (field->kind == METRIC_SERIES)
			*(struct metric **)((char *)series + field->offset) = metric;
		else
			figures->series[i] = metric;
	}
	pthread_mutex_unlock(&lock);
}

struct metric *metric_labelled(const struct metric *metric, const char *const *values)
{
	const char *all[METRIC_LABELS] = {0};
	struct metric *found;

	for (int i = 0; i < METRIC_LABELS && metric->family->labels[i]; i++)
		/* The values fill the open labels only, in their order. */
		all[i] = metric->values[i] ? metric->values[i] : *values++;
	pthread_mutex_lock(&lock);
	found = find_series(metric->family, all);
	pthread_mutex_unlock(&lock);
	return found;
}

static void increase_value(_Atomic double *value, double amount)
{
	double before = atomic_load_explicit(value, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(
	    value, &before, before + amount, memory_order_relaxed, memory_order_relaxed))
		;
}

void metric_add(struct metric *metric, double amount)
{
	assert(metric->row->type != METRIC_HISTOGRAM);
	assert(metric->row->type == METRIC_GAUGE || amount >= 0);
	increase_value(&metric->value, amount);
}

void metric_set(struct metric *metric, double value)
{
	assert(metric->row->type == METRIC_GAUGE);
	atomic_store_explicit(&metric->value, value, memory_order_relaxed);
}

double metric_value(const struct metric *metric)
{
	return atomic_load_explicit(&metric->value, memory_order_relaxed);
}

void metric_observe(struct metric *metric, double value, uint64_t count)
{
	const double *bound = metric->row->buckets;

	assert(metric->row->type == METRIC_HISTOGRAM);
	while (value > *bound)
		bound++;
	atomic_fetch_add_explicit(
	    &metric->filled[bound - metric->row->buckets], count, memory_order_relaxed);
	increase_value(&metric->value, value * (double)count);
}

static double read_figure(const struct metric_row *row, const void *from)
{
	const void *at = (const char *)from + row->field.offset;
	double unit = row->per_unit > 0 ? row->per_unit : 1;

	switch (row->field.kind) {
	case METRIC_BOOL:
		return *(const bool *)at;
	case METRIC_INT:
		return *(const int *)at / unit;
	case METRIC_INT64:
		return (double)*(const int64_t *)at / unit;
	case METRIC_UINT64:
		return (double)*(const uint64_t *)at / unit;
	case METRIC_DOUBLE:
		return *(const double *)at / unit;
	case METRIC_SERIES:
		break; /* the part itself updates this series */
	}
	return NAN;
}

void metric_note(const struct metric_table *table, struct metric_figures *figures, const void *from)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct metric_row *row = &table->rows[i];
		double *seen = &figures->seen[i], value;

		/* The part itself updates such a series. */
		if (row->field.kind == METRIC_SERIES)
			continue;
		value = read_figure(row, from);
		if (row->type == METRIC_GAUGE)
			metric_set(figures->series[i], value);
		else
			metric_add(figures->series[i], value >= *seen ? value - *seen : value);
		*seen = value;
	}
}

/* Adds the shortest form that reads back as the same number. */
static void add_metric_value(struct text *page, double value)
{
	char digits[32];

	if (isnan(value) || isinf(value)) {
		text_add(page, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
		return;
	}

	/* 17 digits always suffice for a double; most numbers need fewer. */
	for (int precision = 15; precision <= 17; precision++) {
		snprintf(digits, sizeof digits, "%.*g", precision, value);
		if (strtod(digits, NULL) == value)
			break;
	}
	text_add(page, digits);
}

/* Bytes that are not UTF-8 would make a scraper refuse the whole page. */
static void add_escaped(struct text *page, const char *value, bool quotes)
{
	while (*value) {
		uint32_t code = 0;
		int length = text_utf8(value, &code);

		if (length == 0)
			text_add(page, "\xef\xbf\xbd"); /* U+FFFD */
		else if (code == '\n')
			text_add(page, "\\n");
		else if (code == '\\' || (code == '"' && quotes))
			text_addf(page, "\\%c", (int)code);
		else
			text_append(page, value, (size_t)length);
		value += length ? length : 1;
	}
}

/* name_suffix{label="value",…,le="bound"} ; bound NULL: no such label. */
static void add_series_name(
    struct text *page, const struct metric *metric, const char *suffix, const double *bound)
{
	const char *separator = "{";

	text_addf(page, "%s%s", metric->row->name, suffix);
	for (int i = 0; metric->family->labels[i]; i++) {
		text_addf(page, "%s%s=\"", separator, metric->family->labels[i]);
		add_escaped(page, metric->values[i], true);
		text_add(page, "\"");
		separator = ",";
	}
	if (bound) {
		text_addf(page, "%sle=\"", separator);
		add_metric_value(page, *bound);
		text_add(page, "\"");
		separator = ",";
	}
	text_add(page, *separator == ',' ? "} " : " ");
}

/* _count always equals the last bucket, also while other threads observe. */
static void write_histogram(struct text *page, const struct metric *metric)
{
	size_t count = metric_bounds(metric->row);
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		total += atomic_load_explicit(&metric->filled[i], memory_order_relaxed);
		add_series_name(page, metric, "_bucket", &metric->row->buckets[i]);
		text_addf(page, "%llu\n", (unsigned long long)total);
	}
	add_series_name(page, metric, "_sum", NULL);
	add_metric_value(page, metric_value(metric));
	text_add(page, "\n");
	add_series_name(page, metric, "_count", NULL);
	text_addf(page, "%llu\n", (unsigned long long)total);
}

const char *metric_type_name(enum metric_type type)
{
	static const char *const names[] = {"counter", "gauge", "histogram"};

	return names[type];
}

/* A series with open labels is not shown: it only serves metric_labelled. */
static bool is_whole(const struct metric *metric)
{
	int count = 0;

	while (metric->family->labels[count])
		count++;
	return count == 0 || metric->values[count - 1];
}

static void write_series(struct text *page, const struct metric *metric)
{
	if (metric->row->type == METRIC_HISTOGRAM) {
		write_histogram(page, metric);
		return;
	}
	add_series_name(page, metric, "", NULL);
	add_metric_value(page, metric_value(metric));
	text_add(page, "\n");
}

static void write_family(struct text *page, const struct family *family)
{
	bool begun = false;

	for (const struct metric *metric = family->series; metric; metric = metric->next) {
		if (!is_whole(metric))
			continue;
		if (!begun) {
			text_addf(page, "# HELP %s ", family->row->name);
			add_escaped(page, family->row->help, false);
			text_addf(page, "\n# TYPE %s %s\n", family->row->name,
			    metric_type_name(family->row->type));
			begun = true;
		}
		write_series(page, metric);
	}
}

void metrics_visit(void (*visit)(const struct metric_view *view, void *context), void *context)
{
	pthread_mutex_lock(&lock);
	for (const struct family *family = families; family; family = family->next)
		for (const struct metric *metric = family->series; metric; metric = metric->next) {
			const struct metric_view view = {
			    metric, family->row, family->labels, metric->values};

			if (is_whole(metric))
				visit(&view, context);
		}
	pthread_mutex_unlock(&lock);
}

const char *metric_view_label(const struct metric_view *view, const char *name)
{
	for (int i = 0; view->labels[i]; i++)
		if (text_equal(view->labels[i], name))
			return view->values[i];
	return NULL;
}

void metric_counts(const struct metric *metric, uint64_t *ret_counts)
{
	size_t count = metric_bounds(metric->row);

	for (size_t i = 0; i < count; i++)
		ret_counts[i] = atomic_load_explicit(&metric->filled[i], memory_order_relaxed);
}

void metrics_write(struct text *page)
{
	pthread_mutex_lock(&lock);
	for (const struct family *family = families; family; family = family->next)
		write_family(page, family);
	pthread_mutex_unlock(&lock);
}
