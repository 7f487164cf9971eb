#include "publish_metrics.h"

#include <math.h>
#include <stdio.h>

#include "clock.h"

static const double latency_buckets[] = {0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064,
    0.128, 0.256, 0.512, 1, 2, 4, 8, 16, 32, INFINITY};

#define SERIES(member) METRIC_FIELD(struct publish_metrics, member)
#define STATUS(member) METRIC_FIELD(struct stream_status, member)
#define KAFKA(member) METRIC_FIELD(struct producer_figures, member)

static const struct metric_row publish_rows[] = {
    {"relay_published_total", METRIC_COUNTER, STATUS(published),
	"Records that Kafka acknowledged."},
    {"relay_published_bytes_total", METRIC_COUNTER, STATUS(published_bytes),
	"Memory of the records that Kafka acknowledged, with the bookkeeping of each. "
	"relay_kafka_sent_bytes_total counts the bytes sent."},
    {"relay_skipped_total", METRIC_COUNTER, STATUS(skipped),
	"Rows not published because their records were found in Kafka already."},
    {"relay_parked_total", METRIC_COUNTER, STATUS(parked),
	"Rows parked in outbox.parked: Kafka refused the record, or an earlier record of its key "
	"is "
	"parked."},
    {"relay_scheduled_total", METRIC_COUNTER, STATUS(scheduled),
	"Rows with a deliver_at that were stored in outbox.scheduled."},
    {"relay_owner", METRIC_GAUGE, SERIES(owner), "1 while this process owns the shard.",
	.alert = "no process has 1, or none shows it: nobody publishes the shard"},
    {"relay_lease_over", METRIC_GAUGE, STATUS(lease_over),
	"1 while this process owns the shard and publishes nothing, because it could not renew its "
	"lease.",
	.alert = "above 0 for longer than a `lease`: the log cannot be written"},
    {"relay_leases_lost_total", METRIC_COUNTER, SERIES(leases_lost),
	"Times that another process took the shard from this one, because the lease had ended.",
	.alert = "it rises: the process was paused, or the database was away, for longer than "
		 "`lease`"},
    {"relay_refused", METRIC_GAUGE, STATUS(refused),
	"1 while the publisher is blocked by a record that Kafka refuses.",
	.alert = "above 0: [a publisher is stopped](../guide/parked.md#a-publisher-that-stops)"},
    {"relay_elsewhere", METRIC_GAUGE, SERIES(elsewhere),
	"1 while the shard is not published because its rows were copied from another database "
	"cluster.",
	.alert = "above 0: run `outbox-relay publisher rebase`"},
    {"relay_history_rewound_total", METRIC_COUNTER, SERIES(rewound),
	"Times that an owner found records in Kafka that the log of the database does not have.",
	.alert = "it rises: the database went back in time, or a copy of it publishes as well"},
    {"relay_missing_topic", METRIC_GAUGE, SERIES(missing_topic),
	"1 while rows wait for a topic that does not exist.",
	.alert = "above 0 for minutes: create the topic"},
    {"relay_stalled_partitions", METRIC_GAUGE, STATUS(stalls),
	"Kafka partitions, and missing topics, that accepted nothing for `stall_after`: their rows "
	"are parked."},
    {"relay_denied_partitions", METRIC_GAUGE, STATUS(denied),
	"Kafka partitions that wait for a retry, because they refuse every record or answer with "
	"errors that name no record.",
	.alert = "above 0 for minutes: [a topic that answers with "
		 "errors](../guide/parked.md#a-topic-that-answers-with-errors)"},
    {"relay_paused", METRIC_GAUGE, STATUS(paused),
	"1 while an operator pauses the publisher (`outbox-relay publisher pause`)."},
    {"relay_paused_topics", METRIC_GAUGE, STATUS(paused_topics),
	"Topics that an operator pauses (`outbox-relay publisher pause --topic`): their rows are "
	"parked in the state `paused`."},
    {"relay_open_windows", METRIC_GAUGE, STATUS(windows),
	"Open windows: not all of their rows are acknowledged."},
    {"relay_in_flight", METRIC_GAUGE, STATUS(in_flight),
	"Records passed to the Kafka client whose progress is not yet stored in the log."},
    {"relay_memory_bytes", METRIC_GAUGE, STATUS(bytes),
	"Memory of the rows that were read and are not acknowledged."},
    {"relay_oldest_unpublished_age_seconds", METRIC_GAUGE, SERIES(oldest_age),
	"Age of the oldest row that this process has read and Kafka has not acknowledged; 0 when "
	"there is none. relay_unpublished_age_seconds includes the rows that are not read yet."},
    {"relay_producer_recreations_total", METRIC_COUNTER, SERIES(producer_recreations),
	"Kafka producers that failed and were replaced by a new one."},
    {"relay_tails_read_total", METRIC_COUNTER, SERIES(tails_read),
	"Kafka partitions read to their end after a takeover or the loss of a producer."},
    {"relay_postgres_reconnects_total", METRIC_COUNTER, SERIES(postgres_reconnects),
	"Lost connections to PostgreSQL."},
    {"relay_latency_commit_to_read_seconds", METRIC_HISTOGRAM, SERIES(commit_to_read),
	"Time from created_at (the INSERT, so that a long transaction counts), or deliver_at, to "
	"the read of the row. One message of a shard at a time is sampled.",
	.buckets = latency_buckets},
    {"relay_latency_read_to_produce_seconds", METRIC_HISTOGRAM, SERIES(read_to_produce),
	"Time from the read of the sampled row to the call of the Kafka client.",
	.buckets = latency_buckets},
    {"relay_latency_produce_to_ack_seconds", METRIC_HISTOGRAM, SERIES(produce_to_ack),
	"Time from the call of the Kafka client to the acknowledgement of the sampled record.",
	.buckets = latency_buckets},
};

const struct metric_table publish_metric_table = {
    .title = "Publishing",
    .about = "Each process shows the shards that it owns or waits for.",
    .labels = {{"publisher", "the name of the publisher"}, {"shard", "the number of the shard"}},
    METRIC_ROWS_OF(publish_rows),
};

static const struct metric_row kafka_rows[] = {
    {"relay_kafka_queue_messages", METRIC_GAUGE, KAFKA(queue_messages),
	"Records in the queue of the Kafka client."},
    {"relay_kafka_queue_bytes", METRIC_GAUGE, KAFKA(queue_bytes),
	"Bytes in the queue of the Kafka client."},
    {"relay_kafka_requests_total", METRIC_COUNTER, KAFKA(requests), "Requests sent to brokers."},
    {"relay_kafka_sent_bytes_total", METRIC_COUNTER, KAFKA(bytes_sent), "Bytes sent to brokers."},
    {"relay_kafka_broker_rtt_seconds", METRIC_GAUGE, KAFKA(broker_rtt_us),
	"Average round trip time of the slowest broker.", .per_unit = 1e6},
    {"relay_kafka_brokers_up", METRIC_GAUGE, KAFKA(brokers_up), "Connected brokers."},
};

const struct metric_table kafka_metric_table = {
    .title = "The Kafka client of a publisher",
    .about = "librdkafka makes these statistics only for a producer with at most 200 topics, "
	     "because they take tens of kilobytes for each topic; with more topics the metrics "
	     "keep their last values.",
    .labels = {{"publisher", "the name of the publisher"}, {"shard", "the number of the shard"}},
    METRIC_ROWS_OF(kafka_rows),
};

void publish_metrics_init(struct publish_metrics *metrics, const char *publisher, int shard)
{
	char number[16];
	const char *const labels[] = {publisher, number};

	snprintf(number, sizeof number, "%d", shard);
	*metrics = (struct publish_metrics){0};
	metric_series_all(&publish_metric_table, labels, metrics, &metrics->figures);
	metric_series_all(&kafka_metric_table, labels, NULL, &metrics->kafka_figures);
}

void publish_metrics_read(struct publish_metrics *metrics, uint64_t sequence, int64_t due_us)
{
	if (metrics->sequence)
		return;
	int64_t delay = clock_wall_us() - due_us;
	metric_observe(metrics->commit_to_read, delay > 0 ? (double)delay / 1e6 : 0, 1);
	metrics->sequence = sequence;
	metrics->read_us = clock_us();
}

void publish_metrics_sent(struct publish_metrics *metrics, uint64_t sequence)
{
	if (metrics->sequence != sequence)
		return;
	metrics->sent_us = clock_us();
	metric_observe(
	    metrics->read_to_produce, (double)(metrics->sent_us - metrics->read_us) / 1e6, 1);
}

void publish_metrics_acked(struct publish_metrics *metrics, uint64_t sequence)
{
	if (metrics->sequence != sequence)
		return;
	metric_observe(metrics->produce_to_ack, (double)(clock_us() - metrics->sent_us) / 1e6, 1);
	metrics->sequence = 0;
}

void publish_metrics_forget(struct publish_metrics *metrics)
{
	metrics->sequence = 0;
}

void publish_metrics_kafka(struct publish_metrics *metrics, const struct producer_figures *figures)
{
	metric_note(&kafka_metric_table, &metrics->kafka_figures, figures);
}

void publish_metrics_note(struct publish_metrics *metrics, const struct stream_status *status)
{
	double age =
	    status->oldest_due_us ? (double)(clock_wall_us() - status->oldest_due_us) / 1e6 : 0;
	int64_t aside = status->skipped + status->parked + status->scheduled;

	if (aside != metrics->aside)
		publish_metrics_forget(metrics); /* the sampled record may be one of them */
	metrics->aside = aside;
	metric_note(&publish_metric_table, &metrics->figures, status);
	metric_set(metrics->missing_topic, status->missing_topic != NULL);
	metric_set(metrics->oldest_age, age > 0 ? age : 0);
	metric_set(metrics->owner, status->state == STREAM_OWNER || status->state == STREAM_UNSURE);
}
