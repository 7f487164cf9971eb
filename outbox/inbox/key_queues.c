#include "key_queues.h"

#include <stdlib.h>
#include <string.h>
#include "text.h"

void lanes_init(struct lanes *lanes, int64_t most)
{
	lanes->count = 1024;
	while ((int64_t)lanes->count < most)
		lanes->count *= 2;
	lanes->buckets = xcalloc(lanes->count, sizeof *lanes->buckets);
}

void lanes_finish(struct lanes *lanes)
{
	free(lanes->buckets);
	*lanes = (struct lanes){0};
}

static size_t bucket_of(const struct lanes *lanes, const struct item *item)
{
	return item->lane & (lanes->count - 1);
}

bool lanes_add(struct lanes *lanes, struct item *item)
{
	struct item **place = &lanes->buckets[bucket_of(lanes, item)];
	item->behind = NULL;
	while (*place && (*place)->lane != item->lane)
		place = &(*place)->chain;
	struct item *first = *place;
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

struct item *lanes_leave(struct lanes *lanes, struct item *item)
{
	struct item **place = &lanes->buckets[bucket_of(lanes, item)], *next = item->behind;
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

static struct item *first_from(const struct lanes *lanes, size_t bucket)
{
	for (; bucket < lanes->count; bucket++)
		if (lanes->buckets[bucket])
			return lanes->buckets[bucket];
	return NULL;
}

struct item *lanes_first(const struct lanes *lanes)
{
	return first_from(lanes, 0);
}

struct item *lanes_after(const struct lanes *lanes, const struct item *item)
{
	return item->chain ? item->chain : first_from(lanes, bucket_of(lanes, item) + 1);
}

struct item *lanes_clear(struct lanes *lanes)
{
	struct item *firsts = NULL, *next;
	for (struct item *item = lanes_first(lanes); item; item = next) {
		next = lanes_after(lanes, item);
		item->chain = firsts;
		firsts = item;
	}
	memset(lanes->buckets, 0, lanes->count * sizeof *lanes->buckets);
	return firsts;
}
