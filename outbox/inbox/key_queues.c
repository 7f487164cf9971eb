#include "key_queues.h"

#include <stdlib.h>
#include <string.h>
#include "text.h"

void key_queues_init(struct key_queues *queues, int64_t most)
{
	queues->count = 1024;
	while ((int64_t)queues->count < most)
		queues->count *= 2;
	queues->buckets = xcalloc(queues->count, sizeof *queues->buckets);
}

void key_queues_finish(struct key_queues *queues)
{
	free(queues->buckets);
	*queues = (struct key_queues){0};
}

static size_t bucket_of_item(const struct key_queues *queues, const struct item *item)
{
	return item->key_hash & (queues->count - 1);
}

bool key_queues_add(struct key_queues *queues, struct item *item)
{
	struct item **place = &queues->buckets[bucket_of_item(queues, item)];

	item->behind = NULL;
	while (*place && (*place)->key_hash != item->key_hash)
		place = &(*place)->chain;
	struct item *first = *place;
	/* The key has messages: this one waits behind the last of them. */
	if (first) {
		first->last->behind = item;
		first->last = item;
		return false;
	}
	item->last = item;
	item->chain = NULL;
	*place = item;
	return true;
}

struct item *key_queues_leave(struct key_queues *queues, struct item *item)
{
	struct item **place = &queues->buckets[bucket_of_item(queues, item)], *next = item->behind;
	while (*place != item)
		place = &(*place)->chain;
	if (!next) {
		*place = item->chain;
		return NULL;
	}
	next->last = item->last;
	next->chain = item->chain;
	*place = next;
	return next;
}

static struct item *first_from(const struct key_queues *queues, size_t bucket)
{
	for (; bucket < queues->count; bucket++)
		if (queues->buckets[bucket])
			return queues->buckets[bucket];
	return NULL;
}

struct item *key_queues_first(const struct key_queues *queues)
{
	return first_from(queues, 0);
}

struct item *key_queues_after(const struct key_queues *queues, const struct item *item)
{
	return item->chain ? item->chain : first_from(queues, bucket_of_item(queues, item) + 1);
}

struct item *key_queues_clear(struct key_queues *queues)
{
	struct item *firsts = NULL, *next;
	for (struct item *item = key_queues_first(queues); item; item = next) {
		next = key_queues_after(queues, item);
		item->chain = firsts;
		firsts = item;
	}
	memset(queues->buckets, 0, queues->count * sizeof *queues->buckets);
	return firsts;
}
