#pragma once
/* The metrics of a [lookback] section. Its readers, its checker and the API share the series. */
#include "metrics.h"

struct lookback_metrics {
	struct metric *records, *batches, *partitions, *promoted, *decisions; /* readers */
	struct metric *duplicates;
	struct metric *checks, *check_seconds, *in_flight, *breaker, *late_answers, *lost_decisions;
	struct metric *addresses;
	struct metric *parks, *overdue, *parked, *oldest, *unprepared, *conflicts; /* checker */
};

extern const struct metric_table lookback_metric_table;

struct lookback_metrics lookback_metrics(const char *section);
