#pragma once
/*
 * The metrics of one shard, and the latency of a sample of its messages: one message at a time,
 * from its read to its acknowledgement, as timing each message would cost too much. Internal to
 * outbox/publish; owned by the shard worker's thread.
 */
#include "metrics.h"
#include "producer.h"
#include "stream.h"

struct publish_metrics {
	struct metric *oldest_age, *owner, *elsewhere, *missing_topic;
	struct metric *leases_lost, *rewound;
	struct metric *producer_recreations, *postgres_reconnects, *tails_read;
	struct metric *commit_to_read, *read_to_produce, *produce_to_ack;
	struct metric_figures figures, kafka_figures;
	int64_t aside;     /* rows skipped, parked or scheduled at the last publish_metrics_note */
	uint64_t sequence; /* the sampled record; 0: none */
	int64_t read_us, sent_us;
};

extern const struct metric_table publish_metric_table; /* of struct stream_status */
extern const struct metric_table kafka_metric_table;   /* of struct producer_figures */

void publish_metrics_init(struct publish_metrics *metrics, const char *publisher, int shard);

/* A record was read, and may be sampled; then it was sent, and acknowledged. */
void publish_metrics_read(struct publish_metrics *metrics, uint64_t sequence, int64_t due_us);
void publish_metrics_sent(struct publish_metrics *metrics, uint64_t sequence);
void publish_metrics_acked(struct publish_metrics *metrics, uint64_t sequence);
void publish_metrics_forget(struct publish_metrics *metrics); /* forgets only the sample */

/* Notes librdkafka's own figures; they begin again with each producer. */
void publish_metrics_kafka(struct publish_metrics *metrics, const struct producer_figures *figures);

void publish_metrics_note(struct publish_metrics *metrics, const struct stream_status *status);
