#pragma once
/*
 * Finds the unit of an id in the key log. A bucket is one cache line, with up to 12 units and a tag
 * of 8 bits for each, so that a look reads one line, and the unit of the log for each equal tag.
 * The bucket is (low * buckets) >> 64, the tag is the lowest byte of high. If the bucket has no
 * room, the entry is in the next bucket that has.
 *
 *   unit   12 * 4   of the key log
 *   tag    12 * 1
 *   zero        3
 *   count       1
 *
 * The memory is the caller's: buckets * 64 bytes at a multiple of 64, zero in the beginning. It may
 * be a shared mapping of a file: count is stored last, so that a killed process leaves no
 * incomplete entry. Owned by one thread.
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

/* The number of the bucket that has the id, unless the bucket was full. */
static inline uint64_t key_index_bucket(const struct key_index *index, struct fingerprint hash)
{
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)(((wide)hash.low * index->count) >> 64);
}

static inline uint8_t key_index_tag(struct fingerprint hash)
{
	return (uint8_t)hash.high;
}

/* Can the index store a unit with this number? */
static inline bool key_index_takes(uint64_t unit)
{
	return unit <= UINT32_MAX;
}

/* The number of buckets for these ids: at least 1, with room for half as many ids again. */
uint64_t key_index_buckets(uint64_t ids);

/* False: all buckets are full. */
bool key_index_add(const struct key_index *index, struct fingerprint hash, uint32_t unit);

/* Calls `is_it` for each unit that may have the id, until it returns true; false: none has. */
bool key_index_find(const struct key_index *index, struct fingerprint hash,
    bool (*is_it)(void *context, uint32_t unit), void *context);

void key_index_prefetch(const struct key_index *index, struct fingerprint hash);
