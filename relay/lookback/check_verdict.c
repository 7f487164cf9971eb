/*
 * Judges the answer of a business: the table in check_verdict.h. Begin at check_verdict_of_answer,
 * which schedule.c calls with the facts that a transport has read.
 */
#include "check_verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "backoff.h"
#include "cleanup.h"

enum {
	/* without a service that says how long */
	PAUSE_FIRST_MS = 5000,
	PAUSE_MAX_MS = 600000,
	AGE_PARTS = 4,
};
static const double jitter = 0.2;

static int64_t draw_pause(int64_t first_ms, int64_t cap_ms, int before, uint64_t *seed)
{
	struct backoff backoff = {.first_ms = first_ms,
	    .cap_ms = cap_ms,
	    .jitter = jitter,
	    .attempts = before,
	    .seed = *seed};
	int64_t pause = backoff_next_ms(&backoff);

	*seed = backoff.seed;
	return pause;
}

static int64_t longer_pause(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t shorter_pause(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The Retry-After of an answer, up to the configured maximum. */
static int64_t asked_pause(const struct config_check *check, const struct check_answer *answer)
{
	return shorter_pause(answer->retry_after_ms, check->retry_after_max_ms);
}

__attribute__((format(printf, 2, 3))) static void park_verdict(
    struct check_verdict *verdict, const char *format, ...)
{
	owned_text char *why = NULL, *whole = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&why, format, args) < 0)
		abort();
	va_end(args);
	whole =
	    verdict->error[0] ? xformat("%s; the last one: %s", why, verdict->error) : xstrdup(why);
	text_copy(verdict->error, sizeof verdict->error, whole);
	verdict->parks = true;
	verdict->next_ms = 0;
}

static void wait_while_pending(struct check_verdict *verdict, const struct config_check *check,
    const struct check_verdict_id *id, const struct check_answer *answer, uint64_t *seed)
{
	verdict->result = "pending";
	verdict->next_ms =
	    longer_pause(draw_pause(check->pending_every_ms, check->pending_every_ms, 0, seed),
		asked_pause(check, answer));

	/* By age and not by attempts: a long transaction is no failure of the business. */
	if (id->age_ms >= check->pending_max_ms)
		park_verdict(verdict, "still pending %lld s after its prepare",
		    (long long)(id->age_ms / 1000));
}

static void ask_after_pause(struct check_verdict *verdict, const struct config_check *check,
    const struct check_verdict_id *id, const struct check_answer *answer, uint64_t *seed)
{
	/* An answer "pending" neither lengthens the pause nor uses up an attempt. */
	int before = id->attempts - id->pendings;

	verdict->next_ms =
	    longer_pause(draw_pause(check->retry_first_ms, check->retry_max_ms, before, seed),
		asked_pause(check, answer));
	if (before + 1 >= check->max_attempts)
		park_verdict(verdict, "%d requests brought no decision", before + 1);
}

bool check_verdict_is_ours(const char *failure)
{
	static const char *const ours[] = {
	    "not_sent", "url", "address_refused", "queue_timeout", "internal"};

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (text_equal(failure, ours[i]))
			return true;
	return false;
}

/*
 * No attempt is spent, so there is no count for a back-off. The pause is a quarter of the age of
 * the id, so that it grows by a quarter each time.
 */
struct check_verdict check_verdict_cannot_ask(const struct config_check *check,
    const struct check_verdict_id *id, const char *result, const char *error, uint64_t *seed)
{
	int64_t first = check ? check->retry_first_ms : PAUSE_FIRST_MS;
	int64_t cap = check ? check->retry_max_ms : PAUSE_MAX_MS;

	return check_verdict_give_back(
	    result, error, longer_pause(first, shorter_pause(cap, id->age_ms / AGE_PARTS)), seed);
}

static struct check_verdict not_sent(const struct config_check *check,
    const struct check_verdict_id *id, const struct check_answer *answer, uint64_t *seed)
{
	const char *result = answer->failure ? answer->failure : "not_sent";

	if (check_verdict_is_ours(result))
		return check_verdict_cannot_ask(check, id, result, answer->error, seed);
	return check_verdict_give_back(result, answer->error, check->retry_first_ms, seed);
}

struct check_verdict check_verdict_of_answer(const struct config_check *check,
    const struct check_verdict_id *id, enum check_word word, const struct check_answer *answer,
    uint64_t *seed)
{
	struct check_verdict verdict = {.counts = true};

	/* Nothing left for the business, so this costs no attempt. */
	if (!answer->sent)
		return not_sent(check, id, answer, seed);
	text_copy(verdict.error, sizeof verdict.error, answer->error);
	verdict.result = answer->failure ? answer->failure : "unknown";
	if (!answer->failure && word == CHECK_COMMIT)
		verdict.decision = verdict.result = "commit";
	else if (!answer->failure && word == CHECK_ROLLBACK)
		verdict.decision = verdict.result = "rollback";
	else if (!answer->failure && word == CHECK_PENDING)
		wait_while_pending(&verdict, check, id, answer, seed);
	else
		ask_after_pause(&verdict, check, id, answer, seed);
	return verdict;
}

struct check_verdict check_verdict_give_back(
    const char *result, const char *error, int64_t pause_ms, uint64_t *seed)
{
	struct check_verdict verdict = {.result = result};

	/* never sooner than asked for */
	verdict.next_ms = longer_pause(pause_ms, draw_pause(pause_ms, pause_ms, 0, seed));
	text_copy(verdict.error, sizeof verdict.error, error);
	return verdict;
}

struct check_verdict check_verdict_expired(void)
{
	struct check_verdict verdict = {.result = "expired"};

	park_verdict(&verdict, "its time was over (expires_after) before a decision came");
	return verdict;
}
