#pragma once
/*
 * Ids that were seen a moment ago, exactly: one place for each value of some bits of the
 * fingerprint, which has the last id with these bits. Most duplicates come soon, and are found here
 * without a look into the store. The owner chooses the unit of `until`, up to which an entry is
 * valid.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"

struct dedup_hot_place {
	struct fingerprint hash;
	int64_t until;
};

struct dedup_hot {
	struct dedup_hot_place *places;
	uint64_t mask;
};

/* ids: rounded up to a power of two. */
void dedup_hot_init(struct dedup_hot *hot, uint64_t ids);
void dedup_hot_finish(struct dedup_hot *hot);

static inline struct dedup_hot_place *dedup_hot_at(
    const struct dedup_hot *hot, struct fingerprint hash)
{
	return &hot->places[hash.low & hot->mask];
}

static inline void dedup_hot_prefetch(const struct dedup_hot *hot, struct fingerprint hash)
{
	__builtin_prefetch(dedup_hot_at(hot, hash));
}

static inline bool dedup_hot_has(const struct dedup_hot *hot, struct fingerprint hash, int64_t now)
{
	const struct dedup_hot_place *place = dedup_hot_at(hot, hash);
	return place->hash.low == hash.low && place->hash.high == hash.high && place->until >= now;
}

static inline void dedup_hot_put(
    const struct dedup_hot *hot, struct fingerprint hash, int64_t until)
{
	*dedup_hot_at(hot, hash) = (struct dedup_hot_place){hash, until};
}

static inline void dedup_hot_drop(const struct dedup_hot *hot, struct fingerprint hash)
{
	struct dedup_hot_place *place = dedup_hot_at(hot, hash);
	if (place->hash.low == hash.low && place->hash.high == hash.high)
		place->until = INT64_MIN;
}
