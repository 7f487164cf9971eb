#pragma once
/*
 * A circuit breaker: after so many failures in a row nothing is asked for a while; then one request
 * finds out whether it works again. Pure: the caller owns the clock.
 *
 *   closed     failures in a row            -> open
 *   open       the pause is over            -> half-open (seen when it is asked)
 *   half-open  the probe succeeds           -> closed; fails -> open; says neither -> half-open
 */
#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_HALF_OPEN, BREAKER_OPEN, BREAKER_STATES };
extern const char *const breaker_states[BREAKER_STATES];

/* Of a request, about the one who was asked. */
enum breaker_outcome {
	BREAKER_SUCCESS,
	BREAKER_FAILURE,
	BREAKER_NEITHER, /* it failed on our side of the line */
};

struct breaker {
	int64_t failures; /* in a row, while closed */
	bool tripped;     /* not closed */
	bool probing;     /* the one request is under way */
	int64_t until;    /* tripped: then it is half-open */
};

enum breaker_state breaker_state(const struct breaker *breaker, int64_t now);
/* May something be asked now? Half-open: only as the probe. */
bool breaker_allows(const struct breaker *breaker, int64_t now);
/* How long it will certainly not, in ms; 0: it may, or a probe is under way. */
int64_t breaker_wait(const struct breaker *breaker, int64_t now);
/* A request goes out; breaker_allows said yes. Returns whether it is the probe. */
bool breaker_begin(struct breaker *breaker, int64_t now);
/*
 * A request ended, or was not made in the end (BREAKER_NEITHER). What was asked before it tripped
 * changes nothing: only the probe does.
 */
void breaker_end(struct breaker *breaker, int64_t now, bool probe, enum breaker_outcome outcome,
    int64_t most_failures, int64_t pause_ms);
