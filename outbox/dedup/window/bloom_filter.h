#pragma once
/*
 * A blocked Bloom filter: an id has 8 bits in one line of 64 bytes, one bit in each of its 8 words,
 * so that a look reads one line of memory. The line is (high * lines) >> 64, the bit of word i is
 * bits 6i to 6i+5 of low. All 54 and more bits come from one hash and none is used twice, so that
 * the rate is that of theory (bloom_size.h).
 *
 * On disk and in memory a word is 64 bits, little-endian. AVX2, NEON and portable code produce the
 * same bits: each can read a filter that another one wrote.
 *
 * The memory is the caller's: lines * 64 bytes, at a multiple of 64, zero in the beginning. One
 * thread adds; meanwhile other threads may look only in filters that it does not add to.
 */
#include <stdbool.h>
#include "fingerprint.h"

enum { BLOOM_LINE = 64, BLOOM_BITS = 8, BLOOM_FILTERS = 64 };

struct bloom_filter {
	uint64_t *words;
	uint64_t lines;
};

/* An implementation of the filter. */
struct bloom_code {
	const char *name;
	void (*add)(const struct bloom_filter *filter, struct fingerprint hash);
	/* Bit i of the result: filter i may have the id. count <= BLOOM_FILTERS. */
	uint64_t (*look)(const struct bloom_filter *filters, int count, struct fingerprint hash);
};

/* The false positive rate that the filter's bits make, whatever set them: the part of all ids that
 * it would take for present. Reads the whole filter. */
double bloom_measured_rate(const struct bloom_filter *filter);

/* The implementations for this machine, the fastest first, the portable one last; then NULL. */
const struct bloom_code *const *bloom_codes(void);

static inline uint64_t *bloom_line(const struct bloom_filter *filter, struct fingerprint hash)
{
	__extension__ typedef unsigned __int128 wide;
	uint64_t line = (uint64_t)(((wide)hash.high * filter->lines) >> 64);
	return filter->words + line * (BLOOM_LINE / sizeof(uint64_t));
}

/* Prefetches the lines of an id that is looked up or added a little later. */
static inline void bloom_prefetch(
    const struct bloom_filter *filters, int count, struct fingerprint hash)
{
	for (int i = 0; i < count; i++)
		__builtin_prefetch(bloom_line(&filters[i], hash));
}
