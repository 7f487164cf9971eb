#pragma once
/*
 * Judges the outcome of one check: the decision for an id, or when to ask again. Pure.
 *
 *   outcome                          | decided | counts | then
 *   sent, a right answer: commit     | commit  | yes    |
 *   sent, a right answer: rollback   | rollback| yes    |
 *   sent, a right answer: pending    |         | yes    | pending_every; too old: parked
 *   sent, any other answer           |         | yes    | back-off; max_attempts: parked
 *   not sent, they were not reached  |         | no     | retry_first; the breaker does the rest
 *   not sent, by our own doing       |         | no     | a pause that grows with its age
 *   its time is over                 |         | no     | parked
 *
 * There is no other way to a decision.
 */
#include "config.h"
#include "transport.h"

enum { CHECK_VERDICT_ERROR = 640 };

struct check_verdict {
	const char *decision; /* "commit" or "rollback"; NULL: none, and the next fields count */
	const char *result;   /* a word of an answer or a stable code, never one of the above */
	char error[CHECK_VERDICT_ERROR]; /* for people; "" */
	bool counts;                     /* as an attempt */
	int64_t next_ms;                 /* from now */
	bool parks;                      /* error says why */
};

/* The configuration or this machine caused the failure (transport.h), and not the service. */
bool check_verdict_is_ours(const char *failure);

/* The state of an id before the check. */
struct check_verdict_id {
	int attempts, pendings; /* only requests that were sent */
	int64_t age_ms;         /* since its prepare */
};

/* `seed` is the random source, as that of a back-off. */
struct check_verdict check_verdict_of_answer(const struct config_check *check,
    const struct check_verdict_id *id, enum check_word word, const struct check_answer *answer,
    uint64_t *seed);

/*
 * The question cannot be sent, for a reason on our side. `result` is static. check may be NULL:
 * there is nobody to ask.
 */
struct check_verdict check_verdict_cannot_ask(const struct config_check *check,
    const struct check_verdict_id *id, const char *result, const char *error, uint64_t *seed);

/*
 * Nobody tried to ask: the id goes back unchanged, and the relay asks about it after pause_ms, or
 * up to a fifth later.
 */
struct check_verdict check_verdict_give_back(
    const char *result, const char *error, int64_t pause_ms, uint64_t *seed);

struct check_verdict check_verdict_expired(void);
