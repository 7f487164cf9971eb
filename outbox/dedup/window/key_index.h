#pragma once
/*
 * Where in the key log an id is: buckets of one cache line, each with up to 12 units and as many
 * tags of 8 bits, so that a look costs a line, and a unit of the log for what has the tag. The
 * bucket is (low * buckets) >> 64, the tag the lowest byte of high. What has no room in its bucket
 * is in the next one that has.
 *
 *   unit   12 * 4   of the key log
 *   tag    12 * 1
 *   zero        3
 *   count       1
 *
 * The memory is the caller's: buckets * 64 bytes at a multiple of 64, zero in the beginning. It may
 * be shared with the file it is mapped from: count is stored last, so that a process that is killed
 * leaves no entry of which a part is missing. Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"

enum { KEY_BUCKET = 64, KEY_BUCKET_UNITS = 12, KEY_BUCKET_PLANNED = 8 };

struct key_bucket {
	uint32_t units[KEY_BUCKET_UNITS];
	uint8_t tags[KEY_BUCKET_UNITS];
	uint8_t zero[3], count;
};
_Static_assert(sizeof(struct key_bucket) == KEY_BUCKET, "a bucket is a cache line");

struct key_index {
	struct key_bucket *buckets;
	uint64_t count;
};

/* The number of the bucket in which an id is, unless it was full. */
static inline uint64_t key_index_bucket(const struct key_index *index, struct fingerprint hash)
{
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)(((wide)hash.low * index->count) >> 64);
}

static inline uint8_t key_index_tag(struct fingerprint hash)
{
	return (uint8_t)hash.high;
}

/* Has the index place for this unit? */
static inline bool key_index_takes(uint64_t unit)
{
	return unit <= UINT32_MAX;
}

/* Buckets for so many ids: never 0, and more room than that by half. */
uint64_t key_index_buckets(uint64_t ids);

/* False: all buckets are full. */
bool key_index_add(const struct key_index *index, struct fingerprint hash, uint32_t unit);

/* Shows units that may have the id until `is_it` says that one has; false: none has. */
bool key_index_find(const struct key_index *index, struct fingerprint hash,
    bool (*is_it)(void *context, uint32_t unit), void *context);

void key_index_prefetch(const struct key_index *index, struct fingerprint hash);
