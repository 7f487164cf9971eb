#include "backoff.h"
#include <limits.h>

/* splitmix64 (Vigna): any seed is good, 0 too. */
static double next_unit(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1p-53;
}

int64_t backoff_next_ms(struct backoff *backoff)
{
	int64_t delay = backoff->first_ms < backoff->cap_ms ? backoff->first_ms : backoff->cap_ms;

	for (int i = 0; i < backoff->attempts && delay > 0 && delay < backoff->cap_ms; i++)
		/* Compared before it is doubled, so that the product cannot overflow. */
		delay = delay > backoff->cap_ms / 2 ? backoff->cap_ms : delay * 2;
	if (backoff->attempts < INT_MAX)
		backoff->attempts++;
	return (
	    int64_t)((double)delay * (1 + backoff->jitter * (2 * next_unit(&backoff->seed) - 1)));
}

void backoff_reset(struct backoff *backoff)
{
	backoff->attempts = 0;
}
