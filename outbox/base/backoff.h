#pragma once
/*
 * Capped exponential back-off with jitter: the n-th delay is drawn evenly from
 * [d * (1 - jitter), d * (1 + jitter)], d = min(cap, first * 2^(n-1)).
 * Pure: the caller owns the seed, so that a simulator can repeat the delays.
 */
#include <stdint.h>

struct backoff {
	int64_t first_ms, cap_ms;
	double jitter; /* 0 … 1 */
	int attempts;  /* since the last reset */
	uint64_t seed;
};
int64_t backoff_next_ms(struct backoff *backoff);
void backoff_reset(struct backoff *backoff);
