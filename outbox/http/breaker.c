#include "breaker.h"

const char *const breaker_states[BREAKER_STATES] = {
    [BREAKER_CLOSED] = "closed",
    [BREAKER_HALF_OPEN] = "half-open",
    [BREAKER_OPEN] = "open",
};

enum breaker_state breaker_state(const struct breaker *breaker, int64_t now)
{
	if (!breaker->tripped)
		return BREAKER_CLOSED;
	return now < breaker->until ? BREAKER_OPEN : BREAKER_HALF_OPEN;
}

bool breaker_allows(const struct breaker *breaker, int64_t now)
{
	enum breaker_state state = breaker_state(breaker, now);

	return state == BREAKER_CLOSED || (state == BREAKER_HALF_OPEN && !breaker->probing);
}

int64_t breaker_wait(const struct breaker *breaker, int64_t now)
{
	return breaker_state(breaker, now) == BREAKER_OPEN ? breaker->until - now : 0;
}

bool breaker_begin(struct breaker *breaker, int64_t now)
{
	bool probe = breaker_state(breaker, now) == BREAKER_HALF_OPEN;

	breaker->probing |= probe;
	return probe;
}

static void trip_breaker(struct breaker *breaker, int64_t until)
{
	breaker->tripped = true;
	breaker->failures = 0;
	breaker->until = until;
}

void breaker_end(struct breaker *breaker, int64_t now, bool probe, enum breaker_outcome outcome,
    int64_t most_failures, int64_t pause_ms)
{
	if (probe) {
		breaker->probing = false;
		breaker->tripped = outcome != BREAKER_SUCCESS;
	}
	/* This request went out before the breaker tripped: it says nothing about the peer now. */
	if (breaker->tripped && !probe)
		return;

	if (outcome == BREAKER_SUCCESS)
		breaker->failures = 0;
	else if (outcome == BREAKER_FAILURE && (++breaker->failures >= most_failures || probe))
		trip_breaker(breaker, now + pause_ms);
}
