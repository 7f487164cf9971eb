#pragma once
/* Those of NEON's intrinsics that bloom_neon.h uses, as Arm's reference describes them. */
#include <stdint.h>

typedef struct {
	uint64_t lane[2];
} uint64x2_t;
typedef struct {
	int64_t lane[2];
} int64x2_t;

static inline uint64x2_t vld1q_u64(const uint64_t *from)
{
	return (uint64x2_t){{from[0], from[1]}};
}

static inline int64x2_t vld1q_s64(const int64_t *from)
{
	return (int64x2_t){{from[0], from[1]}};
}

static inline void vst1q_u64(uint64_t *to, uint64x2_t value)
{
	to[0] = value.lane[0];
	to[1] = value.lane[1];
}

static inline uint64x2_t vdupq_n_u64(uint64_t value)
{
	return (uint64x2_t){{value, value}};
}

static inline uint64x2_t vandq_u64(uint64x2_t a, uint64x2_t b)
{
	return (uint64x2_t){{a.lane[0] & b.lane[0], a.lane[1] & b.lane[1]}};
}

static inline uint64x2_t vorrq_u64(uint64x2_t a, uint64x2_t b)
{
	return (uint64x2_t){{a.lane[0] | b.lane[0], a.lane[1] | b.lane[1]}};
}

/* BIC: the second operand's bits are cleared in the first */
static inline uint64x2_t vbicq_u64(uint64x2_t a, uint64x2_t b)
{
	return (uint64x2_t){{a.lane[0] & ~b.lane[0], a.lane[1] & ~b.lane[1]}};
}

/* USHL: the lowest byte of each lane says how far, negative is to the right */
static inline uint64_t neon_shift(uint64_t value, int64_t by)
{
	int8_t places = (int8_t)by;
	if (places <= -64 || places >= 64)
		return 0;
	return places < 0 ? value >> -places : value << places;
}

static inline uint64x2_t vshlq_u64(uint64x2_t a, int64x2_t by)
{
	return (uint64x2_t){{neon_shift(a.lane[0], by.lane[0]), neon_shift(a.lane[1], by.lane[1])}};
}

static inline int64x2_t vreinterpretq_s64_u64(uint64x2_t a)
{
	return (int64x2_t){{(int64_t)a.lane[0], (int64_t)a.lane[1]}};
}

#define vgetq_lane_u64(vector, number) ((vector).lane[number])
