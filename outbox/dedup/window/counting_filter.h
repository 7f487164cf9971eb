#pragma once
/*
 * A blocked counting Bloom filter: as bloom_filter.h, but in each group of a line an id has one of
 * 16 counters instead of one of 64 bits, so that the id can be removed again. The line is
 * (high * lines) >> 64, the counter of group i is bits 4i to 4i+3 of low.
 *
 * A counter has 4 bits (its group is a word of 64 bits, a line has 64 bytes) or 8 bits (its group
 * is 16 bytes, a line has 128). The width changes no answer as long as no counter is full: a
 * counter that has reached 15 or 255 stays there, since its true value is unknown.
 *
 * The memory is the caller's: lines * counting_line_bytes(bits), at a multiple of 64, zero in the
 * beginning. Owned by one thread.
 */
#include <stdbool.h>
#include "bloom_filter.h"

enum { COUNTING_PLACES = 16 }; /* in a group: for bloom_size.h */

struct counting_filter {
	uint64_t *words;
	uint64_t lines;
	int bits; /* 4 or 8 */
};

static inline uint64_t counting_line_bytes(int bits)
{
	return (uint64_t)bits * BLOOM_BITS * COUNTING_PLACES / 8;
}

/* The largest value of a counter. */
static inline int counting_most(int bits)
{
	return (1 << bits) - 1;
}

/* Returns the number of counters that became full by it. */
int counting_add(const struct counting_filter *filter, struct fingerprint hash);
bool counting_has(const struct counting_filter *filter, struct fingerprint hash);
/* False: the filter does not have the id, and is not changed. Full counters stay. */
bool counting_remove(const struct counting_filter *filter, struct fingerprint hash);

/* Prefetches the lines of an id that is looked up or added a little later. */
void counting_prefetch(const struct counting_filter *filters, int count, struct fingerprint hash);

/* For the counters in these bytes: adds up their values, and counts those that are full. */
struct counting_sum {
	uint64_t values, full;
};
struct counting_sum counting_sum_up(const uint64_t *words, size_t count, int bits);
