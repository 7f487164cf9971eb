#pragma once
/*
 * The metrics of one shard, and the latency of a sample of its messages (one at a time from its
 * read to its acknowledgement: a timestamp on each would cost more than it tells). Internal to
 * outbox/publish; owned by the publisher's thread.
 */
#include "metrics.h"
#include "stream.h"

struct publish_metrics {
	struct metric *published, *published_bytes, *windows, *in_flight, *memory, *oldest_age;
	struct metric *owner, *refused, *producer_recreations, *postgres_reconnects;
	struct metric *commit_to_read, *read_to_produce, *produce_to_ack;
	int64_t seen_published, seen_bytes;
	uint64_t sequence; /* the sampled record; 0: none */
	int64_t read_us, sent_us;
};

void publish_metrics_init(struct publish_metrics *metrics, const char *slot, int shard);

/* A record was read, may be sampled; then what becomes of it. */
void publish_metrics_read(struct publish_metrics *metrics, uint64_t sequence, int64_t created_us);
void publish_metrics_sent(struct publish_metrics *metrics, uint64_t sequence);
void publish_metrics_acked(struct publish_metrics *metrics, uint64_t sequence);
void publish_metrics_forget(struct publish_metrics *metrics); /* the sample, not the figures */

void publish_metrics_note(struct publish_metrics *metrics, const struct stream_status *status);
