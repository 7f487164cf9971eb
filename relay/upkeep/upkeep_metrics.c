#include "upkeep_metrics.h"

#include <pthread.h>

#define SERIES(member) METRIC_FIELD(struct upkeep_metrics, member)
#define TABLE "table", "`message`, `lookback`, `processed`, `unique_ledger`"

static const struct metric_row upkeep_rows[] = {
    {"relay_partitions", METRIC_GAUGE, SERIES(partitions),
	"Partitions of the table, without the default partition.", .labels = {{TABLE}}},
    {"relay_partition_ahead_seconds", METRIC_GAUGE, SERIES(ahead),
	"Time until the end of the last partition. Below 0, new rows go to the default partition.",
	.labels = {{TABLE}},
	.alert = "below relay_partition_every_seconds for minutes: no partitions are made"},
    {"relay_partition_every_seconds", METRIC_GAUGE, SERIES(every), "The setting `partition_every`.",
	.labels = {{TABLE}}},
    {"relay_upkeep_failing", METRIC_GAUGE, SERIES(failing),
	"1 while the last step of upkeep failed.",
	.labels = {{"part", "`tables`, `log`, `archive`"}},
	.alert = "above 0 for minutes: `/readyz?verbose` shows the error"},
    {"relay_upkeep_locked_out", METRIC_GAUGE, SERIES(locked_out),
	"1 while a session keeps upkeep from its lock.", .labels = {{"part", "`tables`, `log`"}},
	.alert = "above 0 for minutes: `/readyz?verbose` and the log event `upkeep_lock_held` "
		 "name the session"},
    {"relay_default_partition_rows", METRIC_GAUGE, SERIES(default_rows),
	"Rows in the default partition, which should be empty. At most 100,000 are counted.",
	.labels = {{TABLE}},
	.alert = "above 0: partitions were missing when the rows were written"},
    {"relay_partition_held", METRIC_GAUGE, SERIES(held),
	"1 while a partition older than the retention is kept because its rows are still needed.",
	.labels = {{TABLE}},
	.alert = "above 0: `outbox-relay partition list` shows who needs the rows; watch the disk"},
    {"relay_partition_changes_total", METRIC_COUNTER, SERIES(changes),
	"Calls that change partitions, by their outcome.",
	.labels = {{"table", "`message`, `lookback`, `processed`, `unique_ledger`, `log`"},
	    {"outcome", "`made`, `exists`, `overlaps`, `default_not_empty`, `name_taken`, "
			"`emptied`, `held`, `dropped`, `not_empty`, `detached`, `moved`, `empty`, "
			"`missing`, `busy`"}}},
    {"relay_archive_waiting", METRIC_GAUGE, SERIES(archive_waiting),
	"Detached partitions whose rows are not in a checked file yet (`retention = archive`).",
	.alert = "above 0 for hours: the log event `archive_failed` names the cause and the cure"},
    {"relay_archived_bytes_total", METRIC_COUNTER, SERIES(archived_bytes),
	"Bytes of rows, before compression, that were archived and whose table was dropped."},
    {"relay_id_sequence_raised_total", METRIC_COUNTER, SERIES(id_raised),
	"Number of times that the sequence of message.id had been reset and was raised again."},
    {"relay_id_sequence_unordered", METRIC_GAUGE, SERIES(id_unordered),
	"1 while the sequence of message.id has a CACHE above 1 or a negative INCREMENT.",
	.alert = "above 0: the log event `id_sequence_unordered` names the statement that helps"},
};

const struct metric_table upkeep_metric_table = {
    .title = "Partitions and ids",
    .about = "Each process shows the databases that it serves.",
    .labels = {{"database", "the name of the `[postgres]` section"}},
    METRIC_ROWS_OF(upkeep_rows),
};

static struct upkeep_metrics metrics;

static void find_upkeep_series(void)
{
	metric_series_all(&upkeep_metric_table, NULL, &metrics, NULL);
}

const struct upkeep_metrics *upkeep_metrics(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_upkeep_series);
	return &metrics;
}

void upkeep_metrics_problem(
    const char *database, const char *part, const char *problem, const char *lock_holder)
{
	metric_set(METRIC_LABELLED(upkeep_metrics()->failing, database, part), *problem != '\0');
	if (lock_holder)
		metric_set(METRIC_LABELLED(upkeep_metrics()->locked_out, database, part),
		    *lock_holder != '\0');
}
