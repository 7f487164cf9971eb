#pragma once
/* The metrics of partitions and of the sequence of message.id; one set of series for the process.
 */
#include "metrics.h"

struct upkeep_metrics {
	struct metric *partitions, *ahead, *every, *default_rows, *held, *changes;
	struct metric *failing, *locked_out;
	struct metric *archive_waiting, *archived_bytes;
	struct metric *id_raised, *id_unordered;
};

extern const struct metric_table upkeep_metric_table;

/* Any thread. */
const struct upkeep_metrics *upkeep_metrics(void);

/*
 * After a step of a part: why it failed ("": it did not), and the session that keeps it from its
 * lock ("": none; NULL: the part has no lock).
 */
void upkeep_metrics_problem(
    const char *database, const char *part, const char *problem, const char *lock_holder);
