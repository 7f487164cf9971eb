#pragma once
/*
 * Metrics: families are rows (name, type, help, label names), series are found or made once by
 * their label values and then updated without a lock (C11 atomics). The page is Prometheus text.
 * Names carry the prefix relay_ and base units; a key or an id is never a label.
 * A series lives as long as the process; any thread may call anything.
 */
#include "text.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_family {
	const char *name; /* "relay_published_total" */
	enum metric_type type;
	const char *help;
	const char *labels[4]; /* names, NULL-terminated */
	const double *buckets; /* histogram: ascending upper bounds, ended by INFINITY */
};

struct metric; /* one series */

/* values: as many as the family has labels. The family must be static. */
struct metric *metric_series(const struct metric_family *family, const char *const *values);
void metric_add(struct metric *metric, double amount);
void metric_set(struct metric *metric, double value);
double metric_value(const struct metric *metric); /* counter or gauge: for status and tests */
/* Histogram: `count` observations of the same value. */
void metric_observe(struct metric *metric, double value, uint64_t count);

/* Appends the whole page, families in order of first use, # HELP and # TYPE included. */
void metrics_write(struct text *page);
