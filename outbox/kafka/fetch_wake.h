#pragma once
/*
 * librdkafka stops fetching while a consumer's queue holds queued.min.messages records or
 * queued.max.messages.kbytes, and its threads look again after up to a second, however soon the
 * queue was emptied. A question to the leaders wakes them, while there is still enough to go on
 * with. A thread of its own waits for the answer: the reader would lose a millisecond for each 4
 * MiB that it reads. Private to this folder; used by the thread that reads the queue.
 */
#include <librdkafka/rdkafka.h>
#include <stddef.h>

struct fetch_wake;

/* The bounds are those that kafka_conf_bound_ready was given. The handle must stay until
 * fetch_wake_destroy. */
struct fetch_wake *fetch_wake_create(rd_kafka_t *handle, size_t most_records, size_t most_bytes);
/* Blocks up to 50 ms, until the question of the moment is answered. NULL: does nothing. */
void fetch_wake_destroy(struct fetch_wake *wake);
/* The consumer read so many records more. */
void fetch_wake_note(struct fetch_wake *wake, size_t records, size_t bytes);
/*
 * Called often while records are read, more than once for each half of the bounds. `queue` is the
 * one that all assigned partitions are forwarded to.
 */
void fetch_wake_look(struct fetch_wake *wake, rd_kafka_queue_t *queue);
