#include "deliver_metrics.h"

#include <math.h>
#include <stdlib.h>
#include "metrics.h"
#include "text.h"

static const double seconds[] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, INFINITY};

static const struct metric_family answers = {.name = "relay_deliver_answers_total",
    .type = METRIC_COUNTER,
    .help = "Requests to an application, by the class of the status that it answered, or a code "
	    "that says why there was none.",
    .labels = {"section", "result"}};
static const struct metric_family latency = {.name = "relay_deliver_request_seconds",
    .type = METRIC_HISTOGRAM,
    .help = "How long requests that were sent to an application took.",
    .labels = {"section"},
    .buckets = seconds};
static const struct metric_family breaker = {.name = "relay_deliver_breaker",
    .type = METRIC_GAUGE,
    .help = "Does the application get messages? 0: yes, 1: one request finds it out, 2: no, it "
	    "failed too often.",
    .labels = {"section"}};

/* What an inbox says of itself. */
enum shown {
	HANDLED,
	DUPLICATES,
	REFUSED,
	RETRIES,
	RETRY_RECORDS,
	DEAD_LETTERS,
	REBALANCES,
	ABANDONED,
	COMMITS,
	FAILED_COMMITS,
	IN_PROGRESS,
	MESSAGES,
	BYTES,
	OLDEST,
	PARTITIONS,
	STANDING,
	PAUSED,
	OBSERVED_RATE,
	SUB_SLICES,
	DEDUP_MEMORY,
	DEDUP_DISK,
	SHOWN
};

static const struct metric_family families[SHOWN] = {
    [HANDLED] = {.name = "relay_deliver_handled_total",
	.type = METRIC_COUNTER,
	.help = "Messages that an application has done.",
	.labels = {"section"}},
    [DUPLICATES] = {.name = "relay_deliver_duplicates_total",
	.type = METRIC_COUNTER,
	.help = "Copies: dropped, or called so by the application.",
	.labels = {"section"}},
    [REFUSED] = {.name = "relay_deliver_refused_total",
	.type = METRIC_COUNTER,
	.help = "Messages that a rule dropped.",
	.labels = {"section"}},
    [RETRIES] = {.name = "relay_deliver_retries_total",
	.type = METRIC_COUNTER,
	.help = "Tries that failed, or waited, and are repeated.",
	.labels = {"section"}},
    [RETRY_RECORDS] = {.name = "relay_deliver_retry_records_total",
	.type = METRIC_COUNTER,
	.help = "Messages that were sent to a retry topic.",
	.labels = {"section"}},
    [DEAD_LETTERS] = {.name = "relay_deliver_dead_letters_total",
	.type = METRIC_COUNTER,
	.help = "Messages that were sent to the topic of dead letters.",
	.labels = {"section"}},
    [REBALANCES] = {.name = "relay_deliver_rebalances_total",
	.type = METRIC_COUNTER,
	.help = "How often partitions were given to this process.",
	.labels = {"section"}},
    [ABANDONED] = {.name = "relay_deliver_abandoned_total",
	.type = METRIC_COUNTER,
	.help = "Messages that were being delivered when their partition went to somebody else.",
	.labels = {"section"}},
    [COMMITS] = {.name = "relay_deliver_commits_total",
	.type = METRIC_COUNTER,
	.help = "Commits of offsets.",
	.labels = {"section"}},
    [FAILED_COMMITS] = {.name = "relay_deliver_failed_commits_total",
	.type = METRIC_COUNTER,
	.help = "Commits of offsets that failed, and are repeated.",
	.labels = {"section"}},
    [IN_PROGRESS] = {.name = "relay_deliver_in_progress",
	.type = METRIC_GAUGE,
	.help = "Messages that are being delivered.",
	.labels = {"section"}},
    [MESSAGES] = {.name = "relay_deliver_messages",
	.type = METRIC_GAUGE,
	.help = "Messages in memory: waiting, being delivered, waiting for another try.",
	.labels = {"section"}},
    [BYTES] = {.name = "relay_deliver_bytes",
	.type = METRIC_GAUGE,
	.help = "Memory of them.",
	.labels = {"section"}},
    [OLDEST] = {.name = "relay_deliver_oldest_seconds",
	.type = METRIC_GAUGE,
	.help = "Since the oldest of them came; 0: there is none.",
	.labels = {"section"}},
    [PARTITIONS] = {.name = "relay_deliver_partitions",
	.type = METRIC_GAUGE,
	.help = "Partitions that this process reads.",
	.labels = {"section"}},
    [STANDING] = {.name = "relay_deliver_standing_partitions",
	.type = METRIC_GAUGE,
	.help = "Partitions of them that stand still until somebody helps.",
	.labels = {"section"}},
    [PAUSED] = {.name = "relay_deliver_paused",
	.type = METRIC_GAUGE,
	.help = "1 while an operator has it paused.",
	.labels = {"section"}},
    [OBSERVED_RATE] = {.name = "relay_deliver_false_positive_rate",
	.type = METRIC_GAUGE,
	.help =
	    "The rate of false positives of dedup as counted, of the partition with the largest.",
	.labels = {"section"}},
    [SUB_SLICES] = {.name = "relay_deliver_dedup_sub_slices",
	.type = METRIC_GAUGE,
	.help = "Slices of dedup that were added since more ids came than were planned: raise ids.",
	.labels = {"section"}},
    [DEDUP_MEMORY] = {.name = "relay_deliver_dedup_memory_bytes",
	.type = METRIC_GAUGE,
	.help = "Memory of dedup.",
	.labels = {"section"}},
    [DEDUP_DISK] = {.name = "relay_deliver_dedup_disk_bytes",
	.type = METRIC_GAUGE,
	.help = "Disk of dedup.",
	.labels = {"section"}},
};

static void read_stats(const struct outbox_inbox_stats *stats, double *values)
{
	values[HANDLED] = (double)stats->handled;
	values[DUPLICATES] = (double)stats->duplicates;
	values[REFUSED] = (double)stats->refused;
	values[RETRIES] = (double)stats->retries;
	values[RETRY_RECORDS] = (double)stats->retry_records;
	values[DEAD_LETTERS] = (double)stats->dead_letters;
	values[REBALANCES] = (double)stats->rebalances;
	values[ABANDONED] = (double)stats->abandoned;
	values[COMMITS] = (double)stats->commits;
	values[FAILED_COMMITS] = (double)stats->failed_commits;
	values[IN_PROGRESS] = (double)stats->in_progress;
	values[MESSAGES] = (double)stats->messages;
	values[BYTES] = (double)stats->bytes;
	values[OLDEST] = (double)stats->oldest_ms / 1000;
	values[PARTITIONS] = (double)stats->partitions;
	values[STANDING] = (double)stats->standing;
	values[PAUSED] = (double)stats->paused;
	values[OBSERVED_RATE] = (double)stats->observed_rate;
	values[SUB_SLICES] = (double)stats->sub_slices;
	values[DEDUP_MEMORY] = (double)stats->dedup_memory_bytes;
	values[DEDUP_DISK] = (double)stats->dedup_disk_bytes;
}

struct deliver_metrics {
	char *section;
	struct metric *metrics[SHOWN], *latency, *breaker;
	double seen[SHOWN]; /* of counters */
};

static struct metric *labelled_series(
    const struct deliver_metrics *metrics, const struct metric_family *family, const char *label)
{
	const char *const labels[] = {metrics->section, label};

	return metric_series(family, labels);
}

struct deliver_metrics *deliver_metrics_create(const char *section)
{
	struct deliver_metrics *metrics = xcalloc(1, sizeof *metrics);

	metrics->section = xstrdup(section);
	for (int i = 0; i < SHOWN; i++)
		metrics->metrics[i] = labelled_series(metrics, &families[i], NULL);
	metrics->breaker = labelled_series(metrics, &breaker, NULL);
	metrics->latency = labelled_series(metrics, &latency, NULL);
	metric_observe(metrics->latency, 0, 0);
	metric_add(labelled_series(metrics, &answers, "2xx"), 0);
	return metrics;
}

void deliver_metrics_begin(struct deliver_metrics *metrics)
{
	for (int i = 0; i < SHOWN; i++) {
		metrics->seen[i] = 0;
		if (families[i].type == METRIC_GAUGE)
			metric_set(metrics->metrics[i], 0);
	}
}

void deliver_metrics_note(struct deliver_metrics *metrics, const struct outbox_inbox_stats *stats,
    enum breaker_state state)
{
	double values[SHOWN];

	read_stats(stats, values);
	for (int i = 0; i < SHOWN; i++) {
		if (families[i].type == METRIC_GAUGE)
			metric_set(metrics->metrics[i], values[i]);
		else
			metric_add(metrics->metrics[i], values[i] - metrics->seen[i]);
		metrics->seen[i] = values[i];
	}
	metric_set(metrics->breaker, (double)state);
}

void deliver_metrics_answer(
    struct deliver_metrics *metrics, const char *label, bool sent, int64_t total_us)
{
	metric_add(labelled_series(metrics, &answers, label), 1);
	if (sent)
		metric_observe(metrics->latency, (double)total_us / 1e6, 1);
}

/* Nothing of it is in this process any more. */
void deliver_metrics_destroy(struct deliver_metrics *metrics)
{
	if (!metrics)
		return;
	deliver_metrics_begin(metrics);
	metric_set(metrics->breaker, BREAKER_CLOSED);
	free(metrics->section);
	free(metrics);
}
