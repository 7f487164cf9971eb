#pragma once
/*
 * A reader of whole topics without a group: every partition, from the beginning (or an offset), up
 * to the end at the time when the reader was created, or for ever. For verify, the demonstration
 * and the bench. One thread owns it.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"
#include "kafka_settings.h"

struct consumer;

struct consumer_record {
	const char *topic;
	int32_t partition;
	int64_t offset;
	int64_t timestamp_ms;
	const void *key; /* NULL: null key */
	size_t key_length;
	const void *payload; /* NULL: tombstone */
	size_t payload_length;
	void *internal; /* for consumer_header */
};

/* isolation: "read_committed" or "read_uncommitted". Topics: NULL-ended list; each must exist. */
struct consumer *consumer_create(const struct kafka_settings *kafka, const char *const *topics,
    const char *isolation, struct err *err);
void consumer_destroy(struct consumer *consumer);

/* One that counts what the brokers send, for consumer_received. */
struct consumer *consumer_create_counting(const struct kafka_settings *kafka,
    const char *const *topics, const char *isolation, struct err *err);
/*
 * Bytes that came from the brokers until now: batches as they are stored, with little besides.
 * Waits for the next statistics of librdkafka, 100 ms at most.
 */
int64_t consumer_received(struct consumer *consumer);

/*
 * A part of each partition, chosen by the timestamps of records, which need not be in order: from
 * the first one with from_ms or later, to the first one with to_ms or later, without it.
 * INT64_MIN and INT64_MAX: from the beginning, to the end. A cluster that cannot tell (the mock
 * one) is read from the beginning.
 */
struct consumer_range {
	int64_t from_ms, to_ms;
	const int64_t *offsets; /* by partition, in place of from_ms; NULL: none */
	int offset_count;       /* partitions beyond it begin by from_ms */
	const int32_t *only;    /* this partition alone; NULL: all */
	/* Creating and destroying the reader wait no longer than until then (clock_ms); 0: for each
	 * answer of a broker some seconds. */
	int64_t until_ms;
};
/* Records behind the range are not seen, and not waited for. */
struct consumer *consumer_create_range(const struct kafka_settings *kafka,
    const char *const *topics, const char *isolation, const struct consumer_range *range,
    struct err *err);

/* What is read: offsets from `from` up to high, as they were when the reader was made. */
struct consumer_partition {
	const char *topic;
	int32_t partition;
	int64_t low; /* the first offset that is there */
	int64_t from, high;
};
/* The i-th partition; false beyond the last. */
bool consumer_partition_at(
    const struct consumer *consumer, int index, struct consumer_partition *ret_partition);

/*
 * Calls `see` for each record that is there, waits at most timeout_ms for the first. Pointers in
 * the record are valid during the call only. *ret_at_end: every partition was read up to the high
 * watermark it had at creation. `see` returns false to stop early (no error).
 */
bool consumer_read(struct consumer *consumer, int timeout_ms,
    bool (*see)(void *context, const struct consumer_record *record), void *context,
    bool *ret_at_end, struct err *err) MUST_CHECK;

/* The last header of that name; false if absent. *ret_value NULL: a null value. */
bool consumer_header(const struct consumer_record *record, const char *name, const void **ret_value,
    size_t *ret_length);
/* All headers of a record, for consumer_headers_at; NULL: there are none. */
const void *consumer_headers(const struct consumer_record *record);
/* The i-th in order; false beyond the last. */
bool consumer_headers_at(const void *headers, size_t index, const char **ret_name,
    const void **ret_value, size_t *ret_length);
bool consumer_header_at(const struct consumer_record *record, size_t index, const char **ret_name,
    const void **ret_value, size_t *ret_length);
