#pragma once
/*
 * The fingerprint of an id: XXH3, 128 bits, with the seed of the deployment. Two of n ids have the
 * same fingerprint with a probability of n^2 / 2^129, unless somebody who knows the seed chooses
 * them.
 */
#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct fingerprint {
	uint64_t low, high;
};

static inline struct fingerprint fingerprint_of(const void *id, size_t length, uint64_t seed)
{
	XXH128_hash_t hash = XXH3_128bits_withSeed(id, length, seed);
	return (struct fingerprint){hash.low64, hash.high64};
}
