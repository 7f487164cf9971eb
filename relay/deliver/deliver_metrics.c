#include "deliver_metrics.h"

#include <math.h>
#include <stdlib.h>
#include "text.h"

static const double seconds[] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, INFINITY};

#define SERIES(member) METRIC_FIELD(struct deliver_metrics, member)
#define STATS(member) METRIC_FIELD(struct outbox_inbox_stats, member)

struct deliver_metrics {
	struct metric *answers, *request_seconds, *breaker;
	struct metric_figures figures;
};

static const struct metric_row deliver_rows[] = {
    {"relay_deliver_answers_total", METRIC_COUNTER, SERIES(answers),
	"Requests to the application, by their result.",
	.labels = {{"result", "the class of the HTTP status, such as `2xx`, or the code of the "
			      "error when there was no answer"}}},
    {"relay_deliver_request_seconds", METRIC_HISTOGRAM, SERIES(request_seconds),
	"Duration of the requests that were sent to the application.", .buckets = seconds},
    {"relay_deliver_breaker", METRIC_GAUGE, SERIES(breaker),
	"Circuit breaker state: 0 closed, 1 half open, 2 open.",
	.alert = "2 for minutes: the application does not answer, or fails"},
    {"relay_deliver_handled_total", METRIC_COUNTER, STATS(handled),
	"Messages that the application handled."},
    {"relay_deliver_duplicates_total", METRIC_COUNTER, STATS(duplicates),
	"Duplicates: dropped by dedup, or reported by the application."},
    {"relay_deliver_refused_total", METRIC_COUNTER, STATS(refused),
	"Messages that a rule dropped, or that were redelivered for another consumer group."},
    {"relay_deliver_retries_total", METRIC_COUNTER, STATS(retries),
	"Attempts that failed or were postponed, and are repeated."},
    {"relay_deliver_retry_records_total", METRIC_COUNTER, STATS(retry_records),
	"Messages sent to a retry topic."},
    {"relay_deliver_dead_letters_total", METRIC_COUNTER, STATS(dead_letters),
	"Messages sent to the dead-letter topic.",
	.alert = "it rises: read the errors in the dead letters"},
    {"relay_deliver_rebalances_total", METRIC_COUNTER, STATS(rebalances),
	"Assignments of partitions to this process."},
    {"relay_deliver_abandoned_total", METRIC_COUNTER, STATS(abandoned),
	"Messages whose partition was revoked during their delivery. The new owner delivers them "
	"again."},
    {"relay_deliver_commits_total", METRIC_COUNTER, STATS(commits), "Offset commits."},
    {"relay_deliver_failed_commits_total", METRIC_COUNTER, STATS(failed_commits),
	"Offset commits that failed, and are repeated."},
    {"relay_deliver_in_progress", METRIC_GAUGE, STATS(in_progress),
	"Messages that the application is handling."},
    {"relay_deliver_messages", METRIC_GAUGE, STATS(messages),
	"Messages in memory: waiting, in progress, or waiting for a retry."},
    {"relay_deliver_bytes", METRIC_GAUGE, STATS(bytes), "Memory of the messages in memory."},
    {"relay_deliver_oldest_seconds", METRIC_GAUGE, STATS(oldest_ms),
	"Time since the oldest message in memory arrived; 0 when there is none.", .per_unit = 1000,
	.alert = "above the delay that your users accept"},
    {"relay_deliver_partitions", METRIC_GAUGE, STATS(partitions),
	"Partitions assigned to this process."},
    {"relay_deliver_blocked_partitions", METRIC_GAUGE, STATS(blocked),
	"Assigned partitions that are blocked until an operator intervenes.",
	.alert = "above 0: `outbox-relay status` shows the reason"},
    {"relay_deliver_paused", METRIC_GAUGE, STATS(paused),
	"1 while an operator has paused the section."},
    {"relay_deliver_false_positive_rate", METRIC_GAUGE, STATS(observed_rate),
	"Measured false positive rate of the dedup filter, of the partition with the highest "
	"rate."},
    {"relay_deliver_dedup_alarm", METRIC_GAUGE, STATS(dedup_alarms),
	"Dedup filters that have more false positives than the setting `alarm` allows, and are not "
	"repaired yet.",
	.alert = "above 0 for minutes: the log (`inbox_filter_alarm`) has the cure"},
    {"relay_deliver_dedup_alarms_total", METRIC_COUNTER, STATS(dedup_alarms_total),
	"Alarms of dedup filters, including those that a repair ended.",
	.alert = "it rises: the log (`inbox_filter_alarm`) has the cure"},
    {"relay_deliver_dedup_sub_slices", METRIC_GAUGE, STATS(sub_slices),
	"Filters that dedup added because more ids arrived than the setting `ids` plans for.",
	.alert = "above 0 for hours: raise `ids`"},
    {"relay_deliver_dedup_memory_bytes", METRIC_GAUGE, STATS(dedup_memory_bytes),
	"Memory of dedup."},
    {"relay_deliver_dedup_disk_bytes", METRIC_GAUGE, STATS(dedup_disk_bytes),
	"Disk space of dedup."},
    {"relay_deliver_claims_refused_total", METRIC_COUNTER, STATS(claims_refused),
	"Claims that were refused because another process had the id; the message waits and is "
	"claimed again."},
    {"relay_deliver_claims_lost_total", METRIC_COUNTER, STATS(claims_lost),
	"Claims that ended while the application had the message.",
	.alert = "it rises: the process was paused, or the server of the claims was away, for "
		 "longer than the lease"},
    {"relay_deliver_reported_total", METRIC_COUNTER, STATS(reported),
	"Handled messages that were reported to their database (key report)."},
    {"relay_deliver_unreported", METRIC_GAUGE, STATS(unreported),
	"Handled messages that are not reported yet. Their offsets are not committed.",
	.alert = "it rises for minutes: the database of the key report is away or refuses"},
};

const struct metric_table deliver_metric_table = {
    .title = "Delivery over HTTP",
    .about = "Each process shows its own messages, partitions and requests.",
    .labels = {{"section", "the name of the `[deliver]` section"}},
    METRIC_ROWS_OF(deliver_rows),
};

struct deliver_metrics *deliver_metrics_create(const char *section)
{
	struct deliver_metrics *metrics = xcalloc(1, sizeof *metrics);

	metric_series_all(&deliver_metric_table, &section, metrics, &metrics->figures);
	metric_add(METRIC_LABELLED(metrics->answers, "2xx"), 0);
	return metrics;
}

void deliver_metrics_begin(struct deliver_metrics *metrics)
{
	metric_note(&deliver_metric_table, &metrics->figures, &(struct outbox_inbox_stats){0});
}

void deliver_metrics_note(struct deliver_metrics *metrics, const struct outbox_inbox_stats *stats,
    enum breaker_state state)
{
	metric_note(&deliver_metric_table, &metrics->figures, stats);
	metric_set(metrics->breaker, (double)state);
}

void deliver_metrics_answer(
    struct deliver_metrics *metrics, const char *label, bool sent, int64_t total_us)
{
	metric_add(METRIC_LABELLED(metrics->answers, label), 1);
	if (sent)
		metric_observe(metrics->request_seconds, (double)total_us / 1e6, 1);
}

/* The metrics of a section that no longer runs here show an empty section. */
void deliver_metrics_destroy(struct deliver_metrics *metrics)
{
	if (!metrics)
		return;
	deliver_metrics_begin(metrics);
	metric_set(metrics->breaker, BREAKER_CLOSED);
	free(metrics);
}
