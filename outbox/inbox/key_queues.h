#pragma once
/*
 * Lanes: messages with the same key, of which only the first may be handled. A lane is known by 64
 * bits; two keys that share them wait for each other in vain, and nothing worse.
 *
 * A hash table of the lanes' first messages, chained by themselves: it is looked at twice a
 * message, and its size is known, since the messages in memory are limited.
 *
 * Owned by one thread.
 */
#include "item.h"

struct lanes {
	struct item **buckets;
	size_t count; /* of them, a power of two */
};

/* most: so many lanes are quick to find; there may be more. */
void lanes_init(struct lanes *lanes, int64_t most);
void lanes_finish(struct lanes *lanes);

/* Behind those of its lane. True: it is the first. */
bool lanes_add(struct lanes *lanes, struct item *item);
/* The first of its lane leaves it; returns the next one, NULL: none. */
struct item *lanes_leave(struct lanes *lanes, struct item *item);
/* Lets go of all lanes but for what is in them; returns their firsts, linked by `chain`. */
struct item *lanes_clear(struct lanes *lanes);

/* Some first; NULL: there is none. */
struct item *lanes_first(const struct lanes *lanes);
/* All others in turn, while none is added or leaves; NULL: it was the last one. */
struct item *lanes_after(const struct lanes *lanes, const struct item *item);
