#pragma once
/*
 * How large a filter must be. The classic formula (1 - e^(-kn/m))^k holds for bits anywhere in the
 * filter; here all bits of an id are in one line, and lines hold different numbers of ids. With n
 * ids on m lines, the number of ids in a line has the distribution Poisson(n/m) (Putze, Sanders,
 * Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007), and j ids leave a bit of a
 * word of 64 zero with the probability (63/64)^j:
 *
 *   rate(n/m) = sum over j of Poisson(j; n/m) * (1 - (63/64)^j)^8
 *
 * A counting filter (counting_filter.h) has 16 places a word instead of 64.
 *
 * A window is cut into `slices`; one more is alive, since the oldest ends only when all of it is
 * outside the window. A look asks all of them: for a rate of p of the whole window each may have
 * the rate 1 - (1 - p)^(1 / (slices + 1)). A planned slice uses the part BLOOM_PLANNED of its rate.
 * The rest is for sub-slices, when more ids come than were planned: each sub-slice uses half of the
 * rate that is left.
 */
#include <stdint.h>

#define BLOOM_PLANNED 0.85
enum { BLOOM_PLACES = 64 }; /* in a word */

/* The false positive rate of a filter with `load` ids a line. */
double bloom_rate(double load, int places);
/* The standard deviation of the rate of a filter with so many lines, which differs by chance. */
double bloom_rate_deviation(double load, uint64_t lines, int places);
/* The largest number of ids a line with this rate at most; 0 < rate < 1. */
double bloom_load(double rate, int places);

/* The classic filter with the best number of hash functions: its bits an id, and that number. */
double bloom_classic_bits(double rate);
int bloom_classic_hashes(double rate);

struct bloom_plan {
	int slices, places;
	uint64_t ids;          /* in one slice */
	uint64_t lines;        /* in the filter of one slice */
	double share;          /* the rate that a slice and its sub-slices may have together */
	double rate;           /* the rate of a full slice, as planned */
	uint64_t filter_bytes; /* for the filters of all slices that are alive */
	double bits_an_id;     /* filter_bytes in bits, divided by the ids of the window */
};

/* For a whole window: ids >= 1, 0 < rate < 1, slices >= 1. */
struct bloom_plan bloom_plan(uint64_t ids, double rate, int slices, int places);

/* The number of ids that fit into a slice (sub 0) or sub-slice with these lines: at least 1. */
uint64_t bloom_room(const struct bloom_plan *plan, int sub, uint64_t lines);
/* The rate that a full slice (sub 0) or sub-slice may have. */
double bloom_share(const struct bloom_plan *plan, int sub);
/* The lines that a slice (sub 0) or sub-slice needs for these ids. */
uint64_t bloom_sub_lines(const struct bloom_plan *plan, int sub, uint64_t ids);
