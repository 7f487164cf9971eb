#include "metrics.h"
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS = sizeof((struct metric_family *)0)->labels / sizeof(char *) };

/* Lists only grow and are walked under the lock; the figures are changed without it. */
struct metric {
	const struct metric_family *family;
	char *values[LABELS];
	_Atomic double value;     /* a histogram's sum */
	_Atomic uint64_t *filled; /* a histogram's buckets, each for itself */
	struct metric *next;
};

struct family {
	const struct metric_family *row;
	struct metric *series;
	struct family *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct family *families;

static size_t bucket_count(const struct metric_family *row)
{
	size_t count = 1;

	while (!isinf(row->buckets[count - 1]))
		count++;
	return count;
}

/* A row defined in a header has an address in each file: the name is what counts. */
static struct family *find_family(const struct metric_family *row)
{
	struct family **at = &families;

	while (*at && (*at)->row != row && strcmp((*at)->row->name, row->name) != 0)
		at = &(*at)->next;
	if (!*at) {
		*at = xcalloc(1, sizeof **at);
		(*at)->row = row;
	}
	return *at;
}

static bool has_values(const struct metric *metric, const char *const *values)
{
	for (int i = 0; i < LABELS && metric->family->labels[i]; i++)
		if (strcmp(metric->values[i], values[i]) != 0)
			return false;
	return true;
}

static struct metric *create_series(const struct metric_family *row, const char *const *values)
{
	struct metric *metric = xcalloc(1, sizeof *metric);

	metric->family = row;
	for (int i = 0; i < LABELS && row->labels[i]; i++)
		metric->values[i] = xstrdup(values[i]);
	if (row->type == METRIC_HISTOGRAM)
		metric->filled = xcalloc(bucket_count(row), sizeof *metric->filled);
	return metric;
}

struct metric *metric_series(const struct metric_family *family, const char *const *values)
{
	struct metric **at;

	pthread_mutex_lock(&lock);
	at = &find_family(family)->series;
	while (*at && !has_values(*at, values))
		at = &(*at)->next;
	if (!*at)
		*at = create_series(family, values);
	pthread_mutex_unlock(&lock);
	return *at;
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
	assert(metric->family->type != METRIC_HISTOGRAM);
	assert(metric->family->type == METRIC_GAUGE || amount >= 0);
	increase_value(&metric->value, amount);
}

void metric_set(struct metric *metric, double value)
{
	assert(metric->family->type == METRIC_GAUGE);
	atomic_store_explicit(&metric->value, value, memory_order_relaxed);
}

double metric_value(const struct metric *metric)
{
	return atomic_load_explicit(&metric->value, memory_order_relaxed);
}

void metric_observe(struct metric *metric, double value, uint64_t count)
{
	const double *bound = metric->family->buckets;

	assert(metric->family->type == METRIC_HISTOGRAM);
	while (value > *bound)
		bound++;
	atomic_fetch_add_explicit(
	    &metric->filled[bound - metric->family->buckets], count, memory_order_relaxed);
	increase_value(&metric->value, value * (double)count);
}

/* The fewest digits that read back as the same number. */
static void add_metric_value(struct text *page, double value)
{
	char digits[32];

	if (isnan(value) || isinf(value)) {
		text_add(page, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
		return;
	}
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

	text_addf(page, "%s%s", metric->family->name, suffix);
	for (int i = 0; i < LABELS && metric->family->labels[i]; i++) {
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

/* _count is the last bucket by construction, also while others observe. */
static void write_histogram(struct text *page, const struct metric *metric)
{
	size_t count = bucket_count(metric->family);
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		total += atomic_load_explicit(&metric->filled[i], memory_order_relaxed);
		add_series_name(page, metric, "_bucket", &metric->family->buckets[i]);
		text_addf(page, "%llu\n", (unsigned long long)total);
	}
	add_series_name(page, metric, "_sum", NULL);
	add_metric_value(page, metric_value(metric));
	text_add(page, "\n");
	add_series_name(page, metric, "_count", NULL);
	text_addf(page, "%llu\n", (unsigned long long)total);
}

static void write_family(struct text *page, const struct family *family)
{
	static const char *const types[] = {"counter", "gauge", "histogram"};

	text_addf(page, "# HELP %s ", family->row->name);
	add_escaped(page, family->row->help, false);
	text_addf(page, "\n# TYPE %s %s\n", family->row->name, types[family->row->type]);
	for (const struct metric *metric = family->series; metric; metric = metric->next) {
		if (family->row->type == METRIC_HISTOGRAM) {
			write_histogram(page, metric);
			continue;
		}
		add_series_name(page, metric, "", NULL);
		add_metric_value(page, metric_value(metric));
		text_add(page, "\n");
	}
}

void metrics_write(struct text *page)
{
	pthread_mutex_lock(&lock);
	for (const struct family *family = families; family; family = family->next)
		write_family(page, family);
	pthread_mutex_unlock(&lock);
}
