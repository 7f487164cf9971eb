#pragma once
/*
 * A circuit breaker: after a number of failures in a row no request goes out for a while; then one
 * request, the probe, finds out whether the peer works again. Pure: the caller owns the clock.
 *
 *   closed     failures in a row            -> open
 *   open       the pause is over            -> half-open (seen at the next call)
 *   half-open  the probe succeeds           -> closed; fails -> open; neither -> half-open
 */
#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_HALF_OPEN, BREAKER_OPEN, BREAKER_STATES };
extern const char *const breaker_states[BREAKER_STATES];

/* The result of a request, as evidence about the peer. */
enum breaker_outcome {
	BREAKER_SUCCESS,
	BREAKER_FAILURE,
	BREAKER_NEITHER, /* the request failed on our side and says nothing about the peer */
};

struct breaker {
	int64_t failures; /* in a row, while closed */
	bool tripped;     /* not closed */
	bool probing;     /* the probe is in flight */
	int64_t until;    /* tripped: the breaker is half-open from then on */
};

enum breaker_state breaker_state(const struct breaker *breaker, int64_t now);
/* May a request go out now? Half-open: only the probe may. */
bool breaker_allows(const struct breaker *breaker, int64_t now);
/* How long no request may go out, in ms; 0: one may, or a probe is in flight. */
int64_t breaker_wait(const struct breaker *breaker, int64_t now);
/* A request goes out; breaker_allows said yes. Returns whether it is the probe. */
bool breaker_begin(struct breaker *breaker, int64_t now);
/*
 * A request ended, or was not made in the end (BREAKER_NEITHER). While the breaker is tripped only
 * the probe counts: the end of a request that went out before changes nothing.
 */
void breaker_end(struct breaker *breaker, int64_t now, bool probe, enum breaker_outcome outcome,
    int64_t most_failures, int64_t pause_ms);
