#pragma once
/*
 * Metrics. A part of the program has one table; a row of it is one metric (a family of series in
 * the words of Prometheus). metric_series_all makes the part's series from the table, and
 * docs/reference/metrics.md is printed from all tables. A series is found once and then updated
 * without a lock (C11 atomics). Names carry the prefix relay_ and base units; a key or an id is
 * never a label. A series lives as long as the process; any thread may call anything.
 */
#include <stddef.h>
#include "text.h"

enum {
	METRIC_LABELS = 4, /* the most of one series, those of the table included */
	METRIC_ROWS = 32,  /* the most of one table */
};

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_label {
	const char *name;
	const char *values; /* for docs/reference/metrics.md: the values, or their meaning */
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
	const char *alert; /* for docs/reference/metrics.md: when to raise an alarm; NULL: never */
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
 * values: of the table's labels; NULL leaves them open. A series with open labels is not shown: it
 * only serves metric_labelled.
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
 * Reads the numbers of the rows from the struct of figures at `from`: gauges are set, counters
 * grow by as much as their figure grew. A figure that fell has begun again from 0. From one thread.
 */
void metric_note(
    const struct metric_table *table, struct metric_figures *figures, const void *from);

const char *metric_type_name(enum metric_type type);
/* Appends the whole page, metrics in order of first use, # HELP and # TYPE included. */
void metrics_write(struct text *page);
