#pragma once
/*
 * A set of fingerprints in memory: open addressing, at most half full, grows by doubling.
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"

/* {0} is an empty set. */
struct hash_set {
	struct fingerprint *places; /* {0, 0}: free */
	size_t capacity, count;     /* a power of two, or 0 */
};

void hash_set_finish(struct hash_set *set);
void hash_set_clear(struct hash_set *set); /* keeps memory that it may need again */
static inline void hash_set_prefetch(const struct hash_set *set, struct fingerprint hash)
{
	if (set->count)
		__builtin_prefetch(&set->places[hash.high & (set->capacity - 1)]);
}
bool hash_set_has(const struct hash_set *set, struct fingerprint hash);
/* False: the set had it already. */
bool hash_set_add(struct hash_set *set, struct fingerprint hash);
/* False: the set did not have it. */
bool hash_set_remove(struct hash_set *set, struct fingerprint hash);
