#pragma once
/*
 * A blocked counting Bloom filter: as bloom_filter.h, but in each word of 64 bits an id has one of
 * 16 counters of 4 bits, so that the id can be removed again. The line is (high * lines) >> 64, the
 * counter of word i is bits 4i to 4i+3 of low. A counter that has reached 15 stays there, since its
 * true value is unknown.
 *
 * The memory is the caller's: lines * 64 bytes, at a multiple of 64, zero in the beginning. Owned
 * by one thread.
 */
#include <stdbool.h>
#include "bloom_filter.h"

enum { COUNTING_PLACES = 16 }; /* in a word: for bloom_size.h */

void counting_add(const struct bloom_filter *filter, struct fingerprint hash);
bool counting_has(const struct bloom_filter *filter, struct fingerprint hash);
/* False: the filter does not have the id, and is not changed. */
bool counting_remove(const struct bloom_filter *filter, struct fingerprint hash);
