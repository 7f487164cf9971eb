#pragma once
/*
 * Key queues: the messages of one key, of which only the first may be handled. A queue is known by
 * the 64-bit hash of its key: two keys with the same hash share a queue and wait for each other,
 * which costs time and nothing else.
 *
 * The queues' first messages are in a hash table, chained through the messages themselves. Every
 * message needs two look-ups. The table never grows, because messages in memory are limited.
 *
 * Owned by one thread.
 */
#include "item.h"

struct key_queues {
	struct item **buckets;
	size_t count; /* number of buckets, a power of two */
};

/* most: the number of queues that the table is sized for; there may be more. */
void key_queues_init(struct key_queues *queues, int64_t most);
void key_queues_finish(struct key_queues *queues);

/* Fetches the memory that the next call for the message reads, which other records have displaced.
 */
static inline void key_queues_prefetch(const struct key_queues *queues, const struct item *item)
{
	__builtin_prefetch(&queues->buckets[item->key_hash & (queues->count - 1)]);
}

/* Adds the message at the end of its queue. True: it is the first. */
bool key_queues_add(struct key_queues *queues, struct item *item);
/* Removes the first message of a queue; returns the next one, NULL: none. */
struct item *key_queues_leave(struct key_queues *queues, struct item *item);
/* Empties the table and frees no message; returns the first of each queue, linked by `chain`. */
struct item *key_queues_clear(struct key_queues *queues);

/* The first message of any queue; NULL: there is none. */
struct item *key_queues_first(const struct key_queues *queues);
/* The next one in turn, as long as none is added or leaves; NULL: it was the last one. */
struct item *key_queues_after(const struct key_queues *queues, const struct item *item);
