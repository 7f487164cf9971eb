#pragma once
/*
 * One idempotent producer, transactional if wanted: records in with an explicit partition, delivery
 * reports out. Thin: order, retries after a fatal error and the careful first batch are the
 * business of outbox/publish.
 *
 * Owned by one thread (librdkafka has its own behind it, and a transactional one has another for
 * the calls that wait). Nothing here blocks, except producer_destroy and producer_knows.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"
#include "kafka_settings.h"

/*
 * The reports of a failed record (librdkafka 2.0.2 against Kafka 3.9.1, measured):
 *
 * The broker refuses one record of a batch (MSG_SIZE_TOO_LARGE over the topic's max.message.bytes,
 * INVALID_RECORD for a null key on a compacted topic, INVALID_TIMESTAMP): every record of that
 * batch, innocent ones included, is reported with that code, purged = false; nothing of the batch
 * is written. The producer is fatal by then (_GAPLESS_GUARANTEE). If the record is alone in its
 * batch, only that record has the code. Records in the queue are reported _PURGE_QUEUE. Batches
 * that were in flight behind the refused one:
 *   - established producer (a batch of this partition was acknowledged before): not written; the
 *     broker answers "out of order", and 2.0.2 would keep those records for ever without a report,
 *     so producer_poll purges them (_PURGE_QUEUE) as long as the producer is fatal;
 *   - fresh producer, the refused batch being its first: up to max.in.flight - 1 batches behind it
 *     ARE written and reported as such, after the refusal.
 * The broker forgets a producer after producer.id.expiration.ms (one day) without a batch for the
 * partition: it is fresh there once more.
 *
 * A missing topic: no report for 30 s (topic.metadata.propagation.max.ms), then
 * UNKNOWN_TOPIC_OR_PART; a topic that is deleted meanwhile: _UNKNOWN_PARTITION. librdkafka calls
 * neither fatal and sends later records when the topic comes back, which would pass the failed
 * ones: so here any failed record makes the producer fatal; it gives back the queued records and
 * refuses new ones.
 *
 * After producer_is_fatal: poll every few milliseconds until every record is reported (records
 * in flight may yet turn out to be written) or patience ends, destroy, send the unacknowledged ones
 * again, in order, by a new producer.
 */
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
	int32_t partition; /* explicit; -1: at random (for null keys only) */
	const void *key;   /* NULL: null key; copied by librdkafka */
	size_t key_length;
	const void *payload; /* NULL: tombstone; NOT copied: stays valid until the report */
	size_t payload_length;
	int64_t timestamp_ms; /* 0: now */
	const struct producer_header *headers;
	int header_count;
	void *opaque; /* handed back with the report */
};

struct producer_report {
	void *opaque;
	int64_t offset; /* the record's offset in its partition; -1 if unknown */
	int32_t error;  /* rd_kafka_resp_err_t; 0: written with acks=all */
	bool purged;    /* innocent: _PURGE_QUEUE, _PURGE_INFLIGHT, _FATAL; send again */
};

/*
 * transactional_id: NULL for a producer without transactions. topics: so many, about, are to be
 * opened; beyond PRODUCER_FEW_TOPICS it makes no statistics.
 */
enum { PRODUCER_FEW_TOPICS = 200 };
struct producer *producer_create(const struct kafka_settings *kafka, const char *transactional_id,
    int64_t queue_bytes, int64_t queue_messages, int topics, struct err *err);
/* The same; linger_ms is the default of the property linger.ms, which the section may set. */
struct producer *producer_create_lingering(const struct kafka_settings *kafka,
    const char *transactional_id, int64_t queue_bytes, int64_t queue_messages, int topics,
    int64_t linger_ms, struct err *err);

/*
 * Purges what is queued and in flight, drops all reports (the payload memory is free to go when it
 * returns), waits at most wait_ms for the background threads. NULL is fine.
 *
 * To be rid of the payloads takes milliseconds, brokers or not, and has no limit: librdkafka holds
 * on to one as long as a thread of its own is stuck (a name server that does not answer, half a
 * minute). kafka_purge_slow tells when that lasts longer than wait_ms.
 */
void producer_destroy(struct producer *producer, int wait_ms);

/*
 * Transactions. INIT comes first, once: it fences every other producer with that id, ends their
 * transaction one way or the other, and begins one of ours. COMMIT, once every record of the open
 * transaction was reported as written, begins the next one. Both go on in the background, also
 * while brokers are away, until producer_work reports the outcome; meanwhile no record may be sent.
 * After a failure the state of the open transaction is unknown: destroy the producer. The next
 * producer's INIT settles it, and committed records are in the topics.
 */
enum producer_call { PRODUCER_INIT, PRODUCER_COMMIT };
enum producer_outcome { PRODUCER_NO_CALL, PRODUCER_CALLING, PRODUCER_DONE, PRODUCER_FAILED };
void producer_begin(struct producer *producer, enum producer_call call);
/*
 * Reported once. Call it after producer_poll whenever producer_fd is readable. Why it failed: kind
 * ERR_FENCED if another producer with that id was made, ERR_RETRY otherwise.
 */
enum producer_outcome producer_work(struct producer *producer, struct err *ret_why);

/*
 * Readable when producer_poll or producer_work has something to say; stays readable until
 * producer_poll said everything.
 */
int producer_fd(const struct producer *producer);

/* NULL + err when the name is not one Kafka allows. The same name gives the same handle. */
struct producer_topic *producer_topic(struct producer *producer, const char *name, struct err *err);
const char *producer_topic_name(const struct producer_topic *topic);
/* Does Kafka accept the name? As the broker checks it (org.apache.kafka.common.internals.Topic). */
bool producer_topic_is_valid(const char *name);
/* No record of it is under way; its handle is worth nothing from here on. */
void producer_close_topic(struct producer *producer, const char *name);
/*
 * Can records be handed over for so many partitions? For one that librdkafka has not heard of yet
 * producer_send fails. Asks the broker when it is not known, and waits wait_ms for it at most; with
 * 0 it does not ask.
 */
bool producer_knows(
    struct producer *producer, struct producer_topic *topic, int32_t partitions, int wait_ms);

/*
 * ERR_RETRY: the queue is full, librdkafka does not know the partition now, or the producer is
 * fatal; ERR_REJECT: this record can never be sent (over message.max.bytes). On false nothing is
 * kept of the record.
 */
bool producer_send(
    struct producer *producer, const struct producer_record *record, struct err *err) MUST_CHECK;

/* Reads up to max reports without blocking; returns how many. */
int producer_poll(struct producer *producer, struct producer_report *reports, int max);

/*
 * True once the producer is broken for good or gave a record up; text says why (the kinds are those
 * of producer_work).
 * Then as described above.
 */
bool producer_is_fatal(const struct producer *producer, struct err *ret_why);

/* The last client-level error ("all brokers down", authentication) and when (clock_ms); 0: none. */
int64_t producer_last_error(const struct producer *producer, char *ret_text, size_t size);
/* When a broker last acknowledged a record (clock_ms); 0: never. */
int64_t producer_heard(const struct producer *producer);
/*
 * librdkafka keeps some kilobytes for each partition of a topic until its client ends, and tens of
 * kilobytes for each topic while it makes statistics, which grow with the topics as well. So one
 * with statistics is for few topics. True: another producer would need much less memory than this
 * one, since most of its topics were closed, or too many are open for statistics.
 */
bool producer_is_bloated(const struct producer *producer);
/*
 * True: certificates of its cluster have changed, and it goes on with the former ones. The owner
 * replaces it once nothing is in flight, or after some seconds, since brokers may refuse new
 * connections with the former ones.
 */
bool producer_is_stale(const struct producer *producer);

/*
 * Figures from librdkafka's own statistics (statistics.interval.ms 5 s), 0 before the first, and
 * without statistics.
 */
struct producer_figures {
	int64_t queue_messages, queue_bytes, requests, bytes_sent, broker_rtt_us;
	int64_t brokers_up; /* connected now */
	int64_t at_ms;      /* clock_ms of these figures; 0: none yet */
};
struct producer_figures producer_figures(const struct producer *producer);

/*
 * The reaction to the error of a report (kafka_error_kind). ERR_REJECT: Kafka refuses this record
 * for good if it was alone in its batch. Any other kind: send it again. Any thread.
 */
enum err_kind producer_error_kind(int32_t error);
const char *producer_error_text(int32_t error); /* for people; static */
