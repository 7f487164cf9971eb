#pragma once
/*
 * librdkafka stops fetching while a consumer's queue holds queued.min.messages records or
 * queued.max.messages.kbytes, and its threads look again after up to a second, however soon the
 * queue was emptied. A question to the leaders wakes them, while there is still enough to go on
 * with. Private to this folder; used by the thread that reads the queue.
 */
#include <librdkafka/rdkafka.h>
#include <stddef.h>

struct fetch_wake {
	size_t most_records, most_bytes; /* the bounds that kafka_conf_bound_ready was given */
	size_t records, bytes;           /* read since the fetchers were woken; the reader counts */
};

/*
 * Called often while records are read, more than once for each half of the bounds. `queue` is the
 * one that all assigned partitions are forwarded to. Blocks up to 50 ms, at most once for each half
 * of the bounds.
 */
void fetch_wake_look(struct fetch_wake *wake, rd_kafka_t *handle, rd_kafka_queue_t *queue);
