#pragma once
/*
 * One idempotent producer: records in with an explicit partition, delivery reports out. Thin: order,
 * retries after a fatal error and the careful first batch are the business of outbox/publish.
 *
 * Owned by one thread (librdkafka has its own behind it). Nothing here blocks, except
 * producer_destroy (bounded by wait_ms).
 */
#include "config.h"

struct producer;
struct producer_topic; /* a topic handle, owned by the producer */

struct producer_header {
	const char *name;
	int32_t name_length;
	const void *value; /* NULL: a null header value */
	int32_t value_length;
};

struct producer_record {
	struct producer_topic *topic;
	int32_t partition;    /* explicit; -1 = let librdkafka choose at random (never used for keys) */
	const void *key;      /* NULL: null key; copied by librdkafka */
	size_t key_length;
	const void *payload;  /* NULL: tombstone; NOT copied: stays valid until the report */
	size_t payload_length;
	int64_t timestamp_ms; /* 0: now */
	const struct producer_header *headers;
	int header_count;
	void *opaque;         /* handed back with the report */
};

struct producer_report {
	void *opaque;
	int64_t offset;   /* of the record in its partition; -1 if unknown */
	int32_t error;    /* rd_kafka_resp_err_t; 0: written with acks=all */
	bool purged;      /* not at fault: purged or behind a fatal error; send again */
};

struct producer *producer_create(const struct config_kafka *kafka, int64_t queue_bytes,
    int64_t queue_messages, struct err *err);

/*
 * Purges what is queued and in flight, drops all reports (the payload memory is free to go when it
 * returns), waits at most wait_ms for the background threads. NULL is fine.
 */
void producer_destroy(struct producer *producer, int wait_ms);

/* Readable when producer_poll has something to say. */
int producer_fd(const struct producer *producer);

/* NULL + err when the name is not one Kafka allows. The same name gives the same handle. */
struct producer_topic *producer_topic(struct producer *producer, const char *name,
    struct err *err);

/* ERR_RETRY: the queue is full; ERR_REJECT: this record can never be sent (too large …). */
bool producer_send(struct producer *producer, const struct producer_record *record,
    struct err *err) MUST_CHECK;

/* Reads up to max reports without blocking; returns how many. */
int producer_poll(struct producer *producer, struct producer_report *reports, int max);

/* True once the idempotent producer is broken for good; text says why. Then: destroy, make anew. */
bool producer_is_fatal(const struct producer *producer, struct err *ret_why);

/* The last client-level error ("all brokers down", authentication) and when (clock_ms); 0: none. */
int64_t producer_last_error(const struct producer *producer, char *ret_text, size_t size);

/*
 * Figures from librdkafka's own statistics (statistics.interval.ms 5 s), 0 before the first.
 */
struct producer_figures {
	int64_t queue_messages, queue_bytes, requests, bytes_sent, broker_rtt_us;
};
struct producer_figures producer_figures(const struct producer *producer);
