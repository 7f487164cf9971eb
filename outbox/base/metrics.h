#pragma once
/*
 * Metrics. Each part of the program has one table; each row of it is one metric (Prometheus: a
 * family of series). metric_series_all makes the part's series from the table, and
 * docs/reference/metrics.md is printed from all tables. The part looks a series up once and then
 * updates it without a lock (C11 atomics). Names carry the prefix relay_ and base units; a key or
 * an id is never a label. A series lives as long as the process; any thread may call any function.
 */
#include <stddef.h>
#include "text.h"

enum {
	METRIC_LABELS = 4, /* maximum for a series, including the labels of the table */
	METRIC_ROWS = 32,  /* maximum for a table */
};

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_label {
	const char *name;
	const char *values; /* the values or their meaning, for docs/reference/metrics.md */
};

struct metric; /* one series */

/*
 * The field of a struct that a row is about. A `struct metric *` belongs to the part's struct of
 * series, and the part updates it. A number belongs to a struct of figures: metric_note reads it.
 */
enum metric_kind {
	METRIC_SERIES,
	METRIC_BOOL,
	METRIC_INT,
	METRIC_INT64,
	METRIC_UINT64,
	METRIC_DOUBLE
};
struct metric_field {
	enum metric_kind kind;
	size_t offset;
};
/* clang-format off */
#define METRIC_KIND_OF(value)                                                                      \
	_Generic((value), struct metric *: METRIC_SERIES, bool: METRIC_BOOL, int: METRIC_INT,      \
	    int64_t: METRIC_INT64, uint64_t: METRIC_UINT64, double: METRIC_DOUBLE)
#define METRIC_FIELD(type, member) {METRIC_KIND_OF(((type *)0)->member), offsetof(type, member)}
/* clang-format on */

struct metric_row {
	const char *name; /* "relay_published_total" */
	enum metric_type type;
	struct metric_field field;
	const char *help;
	struct metric_label labels[METRIC_LABELS]; /* in addition to those of the table */
	const double *buckets; /* histogram: ascending upper bounds, ended by INFINITY */
	double per_unit;       /* a figure in milliseconds has 1000 to the second; 0: 1 */
	const char *alert; /* when to raise an alarm, for docs/reference/metrics.md; NULL: never */
};

struct metric_table {
	const char *title, *about; /* for docs/reference/metrics.md */
	struct metric_label labels[METRIC_LABELS];
	const struct metric_row *rows;
	size_t count;
};
#define METRIC_ROWS_OF(array) .rows = (array), .count = sizeof(array) / sizeof *(array)

/* The series of rows that read figures, and the figures that metric_note read last. */
struct metric_figures {
	struct metric *series[METRIC_ROWS];
	double seen[METRIC_ROWS];
};

/*
 * Sets the fields of the part's struct of series, and `figures` (NULL when no row reads figures).
 * values: the values of the table's labels; NULL leaves them open. A series with open labels is not
 * shown: only metric_labelled uses it.
 */
void metric_series_all(const struct metric_table *table, const char *const *values, void *series,
    struct metric_figures *figures);
/* The series with these values for the labels that `metric` leaves open. Takes a lock. */
struct metric *metric_labelled(const struct metric *metric, const char *const *values);
#define METRIC_LABELLED(metric, ...) metric_labelled((metric), (const char *const[]){__VA_ARGS__})

void metric_add(struct metric *metric, double amount);
void metric_set(struct metric *metric, double value);
double metric_value(const struct metric *metric); /* counter or gauge: for status and tests */
/* Histogram: `count` observations of the same value. */
void metric_observe(struct metric *metric, double value, uint64_t count);
/*
 * Reads the rows' numbers from the struct of figures at `from`: sets gauges, and adds the growth of
 * a figure to its counter. A figure that is smaller than before has started again from 0. Only one
 * thread may call it.
 */
void metric_note(
    const struct metric_table *table, struct metric_figures *figures, const void *from);

/* A series without open labels. Its pointers stay valid until the process ends. */
struct metric_view {
	const struct metric *metric;
	const struct metric_row *row;
	const char *const *labels; /* names; NULL ends them */
	char *const *values;       /* in the order of the names */
};
/* Calls `visit` for each such series, in the order of the page. `visit` uses no metric_labelled. */
void metrics_visit(void (*visit)(const struct metric_view *view, void *context), void *context);
const char *metric_view_label(const struct metric_view *view, const char *name); /* NULL: none */
/* Histogram: how many observations each bucket has, not cumulative; as many as the row's bounds. */
void metric_counts(const struct metric *metric, uint64_t *ret_counts);
/* The number of bounds of a histogram, with INFINITY. */
size_t metric_bounds(const struct metric_row *row);

const char *metric_type_name(enum metric_type type);
/* Appends the whole page with # HELP and # TYPE, metrics in the order of their first use. */
void metrics_write(struct text *page);
