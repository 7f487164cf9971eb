#pragma once
/*
 * The filter's code for NEON. Include arm_neon.h before it, or a model of that (the unit test on
 * other machines).
 */
#include "bloom_filter.h"

/* The bits of words 2 * pair and 2 * pair + 1. */
static inline uint64x2_t neon_bits(uint64x2_t low, int pair)
{
	const int64_t shifts[2] = {-12 * pair, -12 * pair - 6};
	uint64x2_t places = vandq_u64(vshlq_u64(low, vld1q_s64(shifts)), vdupq_n_u64(63));
	return vshlq_u64(vdupq_n_u64(1), vreinterpretq_s64_u64(places));
}

static void neon_add(const struct bloom_filter *filter, struct fingerprint hash)
{
	uint64_t *line = bloom_line(filter, hash);
	uint64x2_t low = vdupq_n_u64(hash.low);
	for (int pair = 0; pair < BLOOM_BITS / 2; pair++)
		vst1q_u64(
		    line + 2 * pair, vorrq_u64(vld1q_u64(line + 2 * pair), neon_bits(low, pair)));
}

static uint64_t neon_look(const struct bloom_filter *filters, int count, struct fingerprint hash)
{
	uint64x2_t low = vdupq_n_u64(hash.low), bits[BLOOM_BITS / 2];
	uint64_t found = 0;
	for (int pair = 0; pair < BLOOM_BITS / 2; pair++)
		bits[pair] = neon_bits(low, pair);

	for (int i = 0; i < count; i++) {
		const uint64_t *line = bloom_line(&filters[i], hash);
		uint64x2_t missing = vdupq_n_u64(0);
		for (int pair = 0; pair < BLOOM_BITS / 2; pair++)
			missing =
			    vorrq_u64(missing, vbicq_u64(bits[pair], vld1q_u64(line + 2 * pair)));
		bool all = !(vgetq_lane_u64(missing, 0) | vgetq_lane_u64(missing, 1));
		found |= (uint64_t)all << i;
	}
	return found;
}
