#pragma once
/* The metrics of partitions and of the sequence of message.id; one set of series for the process.
 */
#include "metrics.h"

struct upkeep_metrics {
	struct metric *partitions, *ahead, *default_rows, *held, *changes;
	struct metric *archive_waiting, *archived_bytes;
	struct metric *id_raised, *id_unordered;
};

extern const struct metric_table upkeep_metric_table;

/* Any thread. */
const struct upkeep_metrics *upkeep_metrics(void);
