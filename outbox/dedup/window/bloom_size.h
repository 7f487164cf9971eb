#pragma once
/*
 * How large a filter must be. The classic formula (1 - e^(-kn/m))^k is that of bits anywhere in the
 * filter; here all bits of an id are in one line, and lines hold different numbers of ids. With n
 * ids on m lines a line holds j of them by Poisson(n/m) (Putze, Sanders, Singler, "Cache-, Hash-
 * and Space-Efficient Bloom Filters", 2007), and j ids leave a bit of a word of 64 zero with
 * (63/64)^j:
 *
 *   rate(n/m) = sum over j of Poisson(j; n/m) * (1 - (63/64)^j)^8
 *
 * A counting filter (counting_filter.h) has 16 places a word in place of 64.
 *
 * A window is cut into `slices`; one more is alive, since the oldest ends only when all of it is
 * outside the window. All of them are asked: for a rate of p of the whole window each may have
 * 1 - (1 - p)^(1 / (slices + 1)). Of that a slice as planned uses BLOOM_PLANNED; the rest is for
 * sub-slices, when more ids come than were planned: each of them has half of what is left.
 */
#include <stdint.h>

#define BLOOM_PLANNED 0.85
enum { BLOOM_PLACES = 64 }; /* a word */

/* Of a filter with `load` ids a line. */
double bloom_rate(double load, int places);
/* The most ids a line at which the rate is at most that; 0 < rate < 1. */
double bloom_load(double rate, int places);

/* The classic filter with the best number of hash functions: bits an id, and that number. */
double bloom_classic_bits(double rate);
int bloom_classic_hashes(double rate);

struct bloom_plan {
	int slices, places;
	uint64_t ids;          /* in one of them */
	uint64_t lines;        /* of the filter of one */
	double share;          /* of the rate that a slice and its sub-slices may have */
	double rate;           /* of a full one, as planned */
	uint64_t filter_bytes; /* of all that are alive */
	double bits_an_id;     /* filter_bytes for the ids of the window */
};

/* ids >= 1 in a window, 0 < rate < 1 of the whole of it, slices >= 1. */
struct bloom_plan bloom_plan(uint64_t ids, double rate, int slices, int places);

/* How many ids a slice (sub 0) or sub-slice has room for that has so many lines: at least 1. */
uint64_t bloom_room(const struct bloom_plan *plan, int sub, uint64_t lines);
/* Lines of sub-slice number `sub` (1, 2, …) of a slice with that plan, with room for `ids`. */
uint64_t bloom_sub_lines(const struct bloom_plan *plan, int sub, uint64_t ids);
