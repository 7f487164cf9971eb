#include "publish_metrics.h"

#include <math.h>
#include <stdio.h>

#include "clock.h"

static const double latency_buckets[] = {0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064,
    0.128, 0.256, 0.512, 1, 2, 4, 8, 16, 32, INFINITY};

#define FAMILY(id, kind, text)                                                                     \
	static const struct metric_family id = {                                                   \
	    .name = "relay_" #id, .type = kind, .help = text, .labels = {"publisher", "shard"}}
#define LATENCY(id, text)                                                                          \
	static const struct metric_family id = {.name = "relay_" #id,                              \
	    .type = METRIC_HISTOGRAM,                                                              \
	    .help = text,                                                                          \
	    .labels = {"publisher", "shard"},                                                      \
	    .buckets = latency_buckets}

FAMILY(published_total, METRIC_COUNTER, "Records acknowledged by Kafka.");
FAMILY(published_bytes_total, METRIC_COUNTER,
    "Memory of the records acknowledged by Kafka, bookkeeping included.");
FAMILY(
    open_windows, METRIC_GAUGE, "Snapshot windows opened and not yet acknowledged to their end.");
FAMILY(in_flight, METRIC_GAUGE, "Records given to Kafka and not yet covered by a log row.");
FAMILY(memory_bytes, METRIC_GAUGE, "Memory of rows read and not yet acknowledged.");
FAMILY(oldest_unpublished_age_seconds, METRIC_GAUGE,
    "Age of the oldest row read and not yet acknowledged; 0 when there is none.");
FAMILY(owner, METRIC_GAUGE, "1 while this process owns the shard.");
FAMILY(refused, METRIC_GAUGE, "1 when the publisher is stopped by a record that Kafka refuses.");
FAMILY(elsewhere, METRIC_GAUGE,
    "1 while the shard is not published because its rows were carried here from another database "
    "cluster: `outbox-relay publisher rebase` is needed.");
FAMILY(denied_partitions, METRIC_GAUGE,
    "Partitions left alone until they are tried again: they refuse every record, or answer with an "
    "error that blames none.");
FAMILY(producer_recreations_total, METRIC_COUNTER, "Producers given up and made anew.");
FAMILY(
    skipped_total, METRIC_COUNTER, "Rows not published because their records were found in Kafka.");
FAMILY(parked_total, METRIC_COUNTER,
    "Rows noted in outbox.parked: refused by Kafka, or behind such a one.");
FAMILY(scheduled_total, METRIC_COUNTER,
    "Rows noted in outbox.scheduled: with a deliver_at, due or not.");
FAMILY(tails_read_total, METRIC_COUNTER,
    "Partitions read to their end after a take-over or a lost producer.");
FAMILY(postgres_reconnects_total, METRIC_COUNTER, "Connections to Postgres lost.");
FAMILY(kafka_queue_messages, METRIC_GAUGE, "Records in librdkafka's queue.");
FAMILY(kafka_queue_bytes, METRIC_GAUGE, "Bytes in librdkafka's queue.");
FAMILY(kafka_requests_total, METRIC_COUNTER, "Requests sent to brokers.");
FAMILY(kafka_sent_bytes_total, METRIC_COUNTER, "Bytes sent to brokers.");
FAMILY(kafka_broker_rtt_seconds, METRIC_GAUGE, "Average round trip to the slowest broker.");
FAMILY(kafka_brokers_up, METRIC_GAUGE, "Brokers that are connected.");
LATENCY(latency_commit_to_read_seconds,
    "From created_at, or deliver_at, to the read of the row, sampled.");
LATENCY(latency_read_to_produce_seconds, "From the read to the producer, sampled.");
LATENCY(latency_produce_to_ack_seconds, "From the producer to the acknowledgement, sampled.");

void publish_metrics_init(struct publish_metrics *metrics, const char *publisher, int shard)
{
	char number[16];
	snprintf(number, sizeof number, "%d", shard);
	const char *const labels[] = {publisher, number};
	*metrics = (struct publish_metrics){
	    .published = metric_series(&published_total, labels),
	    .published_bytes = metric_series(&published_bytes_total, labels),
	    .windows = metric_series(&open_windows, labels),
	    .in_flight = metric_series(&in_flight, labels),
	    .memory = metric_series(&memory_bytes, labels),
	    .oldest_age = metric_series(&oldest_unpublished_age_seconds, labels),
	    .owner = metric_series(&owner, labels),
	    .refused = metric_series(&refused, labels),
	    .elsewhere = metric_series(&elsewhere, labels),
	    .denied = metric_series(&denied_partitions, labels),
	    .producer_recreations = metric_series(&producer_recreations_total, labels),
	    .skipped = metric_series(&skipped_total, labels),
	    .parked = metric_series(&parked_total, labels),
	    .scheduled = metric_series(&scheduled_total, labels),
	    .tails_read = metric_series(&tails_read_total, labels),
	    .postgres_reconnects = metric_series(&postgres_reconnects_total, labels),
	    .kafka_queue_messages = metric_series(&kafka_queue_messages, labels),
	    .kafka_queue_bytes = metric_series(&kafka_queue_bytes, labels),
	    .kafka_requests = metric_series(&kafka_requests_total, labels),
	    .kafka_sent_bytes = metric_series(&kafka_sent_bytes_total, labels),
	    .kafka_broker_rtt = metric_series(&kafka_broker_rtt_seconds, labels),
	    .kafka_brokers_up = metric_series(&kafka_brokers_up, labels),
	    .commit_to_read = metric_series(&latency_commit_to_read_seconds, labels),
	    .read_to_produce = metric_series(&latency_read_to_produce_seconds, labels),
	    .produce_to_ack = metric_series(&latency_produce_to_ack_seconds, labels),
	};
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

/* Adds what a counter of librdkafka's grew by; a new producer counts from 0. */
static void add_growth(struct metric *metric, int64_t *seen, int64_t value)
{
	metric_add(metric, (double)(value >= *seen ? value - *seen : value));
	*seen = value;
}

void publish_metrics_kafka(struct publish_metrics *metrics, const struct producer_figures *figures)
{
	metric_set(metrics->kafka_queue_messages, (double)figures->queue_messages);
	metric_set(metrics->kafka_queue_bytes, (double)figures->queue_bytes);
	metric_set(metrics->kafka_broker_rtt, (double)figures->broker_rtt_us / 1e6);
	metric_set(metrics->kafka_brokers_up, (double)figures->brokers_up);
	add_growth(metrics->kafka_requests, &metrics->seen_requests, figures->requests);
	add_growth(metrics->kafka_sent_bytes, &metrics->seen_sent_bytes, figures->bytes_sent);
}

void publish_metrics_note(struct publish_metrics *metrics, const struct stream_status *status)
{
	double age =
	    status->oldest_due_us ? (double)(clock_wall_us() - status->oldest_due_us) / 1e6 : 0;
	metric_add(metrics->published, (double)(status->published - metrics->seen_published));
	metric_add(
	    metrics->published_bytes, (double)(status->published_bytes - metrics->seen_bytes));
	metric_add(metrics->skipped, (double)(status->skipped - metrics->seen_skipped));
	metric_add(metrics->parked, (double)(status->parked - metrics->seen_parked));
	metric_add(metrics->scheduled, (double)(status->scheduled - metrics->seen_scheduled));
	if (status->skipped != metrics->seen_skipped || status->parked != metrics->seen_parked ||
	    status->scheduled != metrics->seen_scheduled)
		publish_metrics_forget(metrics); /* the sampled one may be among them */
	metrics->seen_skipped = status->skipped;
	metrics->seen_parked = status->parked;
	metrics->seen_scheduled = status->scheduled;
	metrics->seen_published = status->published;
	metrics->seen_bytes = status->published_bytes;
	metric_set(metrics->windows, status->windows);
	metric_set(metrics->in_flight, (double)status->in_flight);
	metric_set(metrics->memory, (double)status->bytes);
	metric_set(metrics->oldest_age, age > 0 ? age : 0);
	metric_set(metrics->owner, status->state == STREAM_OWNER || status->state == STREAM_UNSURE);
	metric_set(metrics->refused, status->refused);
	metric_set(metrics->denied, status->denied);
}
