#pragma once
/*
 * Decides what the checker of a [lookback] section does next: rows that were claimed, answers and
 * the time go in; how many rows to claim, questions to ask and settlements to write come out. No
 * I/O, no clock; one thread.
 *
 * A claimed row waits in the line of its type and host. Questions are taken from the types in turn,
 * and within one from its hosts in turn, as far as these allow:
 *
 *   in_flight                        requests at once of the section
 *   type_in_flight, host_in_flight   of the service, about one type, to one host
 *   rate                             of the service, a token bucket that holds 1/20 s of it
 *   the host's breaker               (breaker.h)
 *
 * Rows are claimed just before the calls about them: each type has a window, which doubles when
 * it became empty at once and halves when rows waited for a second. A row that still waits when
 * a quarter of its claim is over goes back. Rows of a host whose breaker is open go back at once,
 * with a time and without a count; a type that brings only such rows is claimed rarely, with a
 * growing number of rows (rows of other hosts may be behind them), and at once when the host works
 * again.
 *
 * Rows live from schedule_add until schedule_release; there are never more than SCHEDULE_ROWS.
 */
#include "breaker.h"
#include "check_verdict.h"
#include "config.h"
#include "destination.h"
#include "transport.h"

enum { SCHEDULE_ROWS = 8192 };

struct schedule_settings {
	const struct config_check *services; /* by route.service; outlives the schedule */
	int service_count;
	int type_count;
	int64_t in_flight, claim_ms;
	uint64_t seed;
};

struct schedule;

struct schedule *schedule_create(const struct schedule_settings *settings, int64_t now);
void schedule_destroy(struct schedule *schedule); /* with every row; NULL is fine */

/* --- claims -------------------------------------------------------------------------------- */

/*
 * How many rows of each type to claim (most[type_count]); returns the sum. For a type that gets
 * none now, schedule_deadline tells when to ask again.
 */
int schedule_wants(struct schedule *schedule, int64_t now, int *most);

/* All texts are copied. */
struct schedule_claimed {
	int type;
	const char *biz_id, *prepared_at;
	const char *url; /* that the message brought; NULL: none */
	int attempts, pendings;
	int64_t age_ms; /* since the prepare */
	bool expired;
	int64_t claim;
	int64_t claimed_at; /* before the claim was sent; it ends claim_ms later */
};
void schedule_add(struct schedule *schedule, int64_t now, const struct schedule_claimed *claimed,
    const struct destination *route);
/*
 * All rows of a claim were added. most: from schedule_wants; came: how many rows of each type came.
 */
void schedule_claim_over(struct schedule *schedule, int64_t now, const int *most, const int *came);

/* --- questions ----------------------------------------------------------------------------- */

struct schedule_question {
	struct check_question ask; /* opaque is this struct */
	int service, type;
	/* the schedule's */
	struct schedule_host *host;
	struct schedule_row **rows;
	bool probe;
	struct schedule_question *before, *after;
};

/*
 * The next question to ask now; NULL: none. The schedule owns it until one of the next three
 * functions ends it.
 */
struct schedule_question *schedule_next(struct schedule *schedule, int64_t now);
void schedule_answered(struct schedule *schedule, int64_t now, struct schedule_question *question,
    const struct check_answer *answer);
/* The transport has no room: undoes schedule_next, and asks the service nothing for a moment. */
void schedule_put_back(struct schedule *schedule, int64_t now, struct schedule_question *question);
/* The request cannot be made, and nothing was sent. */
void schedule_refused(
    struct schedule *schedule, int64_t now, struct schedule_question *question, const char *error);

/* --- settlements --------------------------------------------------------------------------- */

/* Rows about which something is to be written, in a list. */
struct schedule_row {
	struct schedule_row *next;
	char *biz_id, *prepared_at, *url;
	int type, service; /* service -1: none */
	int attempts, pendings;
	int64_t age_ms, claim, claimed_at;
	struct check_verdict *verdict;
	int64_t settled_at;
};

/* How many wait, and since when the first does. */
int schedule_settlements(const struct schedule *schedule, int64_t *ret_since);
/*
 * Takes at most `most` rows of the claim that waits longest; the caller hands each to
 * schedule_release.
 */
struct schedule_row *schedule_take(struct schedule *schedule, int most);
void schedule_release(struct schedule *schedule, struct schedule_row *row);

/* --- the rest ------------------------------------------------------------------------------ */

/* Asks no more questions. Waiting rows go back, and any checker may ask about them at once. */
void schedule_drain(struct schedule *schedule, int64_t now);
/*
 * When the result of schedule_next, or also of schedule_wants, may change without an event;
 * INT64_MAX: never.
 */
int64_t schedule_deadline(const struct schedule *schedule, bool wants_too);

struct schedule_figures {
	int rows, waiting, in_flight;
	int64_t late; /* answers that came after the claim's end, and were ignored */
};
struct schedule_figures schedule_figures(const struct schedule *schedule);

/* Its texts are valid until the next answer. */
struct schedule_host_figures {
	const char *name;
	const char *error; /* of the last request; "": it did not fail */
	enum breaker_state breaker;
	int in_flight;
};
/* Recently called hosts, from 0; false: behind the last one. */
bool schedule_host(const struct schedule *schedule, int index, int64_t now,
    struct schedule_host_figures *ret_figures);
