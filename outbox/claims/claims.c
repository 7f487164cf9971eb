/*
 * Claims of one process: a list of the claims that it holds, and a thread that renews them. The
 * list is read by outbox_claims_check without a request to the server; is_lost decides by this
 * process's clock. The store is called through two connections, one for the callers and one for the
 * renewals, so that a slow call delays no renewal.
 *
 * Read struct outbox_claims first, then the list, the renewals (run_renewals, renew_all), opening
 * and closing, and the calls of the header.
 */
#include "claims.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "claims_store.h"
#include "cleanup.h"
#include "clock.h"
#include "outbox_error.h"
#include "text.h"

enum { RENEW_MOST = 1000 }; /* claims in one call of the store */

struct held {
	uint64_t number;
	void *id;
	size_t length;
	int64_t token, ends_ms; /* by clock_ms; the server keeps the claim at least until then */
	bool lost;
};

struct outbox_claims {
	const struct claims_store_type *type;
	int64_t lease_ms;

	pthread_mutex_t calling;      /* held during a call of `store` */
	struct claims_store *store;   /* connection of the callers */
	struct claims_store *renewer; /* connection of the watchdog */

	pthread_mutex_t lock; /* protects the members below; never held during a store's call */
	pthread_cond_t changed;
	struct held *held; /* sorted by number */
	size_t count, capacity;
	uint64_t next;
	bool closing;
	pthread_t watchdog;
};

/* --- the list ------------------------------------------------------------------------------- */

static int compare_held_number(const void *number, const void *held)
{
	uint64_t wanted = *(const uint64_t *)number, found = ((const struct held *)held)->number;
	return (wanted > found) - (wanted < found);
}

static struct held *find_held(struct outbox_claims *claims, uint64_t number)
{
	return claims->count == 0 ? NULL
				  : bsearch(&number, claims->held, claims->count,
					sizeof *claims->held, compare_held_number);
}

static uint64_t keep_claim(
    struct outbox_claims *claims, const void *id, size_t length, int64_t token, int64_t ends_ms)
{
	pthread_mutex_lock(&claims->lock);
	if (claims->count == claims->capacity) {
		claims->capacity = claims->capacity ? claims->capacity * 2 : 16;
		claims->held = xrealloc(claims->held, claims->capacity * sizeof *claims->held);
	}

	/* Numbers rise, so that the list stays sorted for find_held. */
	struct held *held = &claims->held[claims->count++];
	*held = (struct held){++claims->next, xmalloc(length), length, token, ends_ms, false};
	memcpy(held->id, id, length);

	uint64_t number = held->number;
	pthread_mutex_unlock(&claims->lock);
	return number;
}

/* The caller frees ret_held->id. False: there is no such claim. */
static bool remove_held(struct outbox_claims *claims, uint64_t number, struct held *ret_held)
{
	pthread_mutex_lock(&claims->lock);
	struct held *held = find_held(claims, number);
	if (held) {
		*ret_held = *held;
		size_t behind = (size_t)(claims->held + --claims->count - held);
		memmove(held, held + 1, behind * sizeof *held);
	}
	pthread_mutex_unlock(&claims->lock);
	return held;
}

static bool is_lost(const struct held *held)
{
	return held->lost || clock_ms() >= held->ends_ms;
}

/* --- the watchdog --------------------------------------------------------------------------- */

/* Copies of the claims in one call of the store: the lock is free during the call. */
struct round {
	struct claims_id ids[RENEW_MOST];
	uint64_t numbers[RENEW_MOST];
	bool held[RENEW_MOST];
	size_t count;
};

/*
 * Collects the next claims, numbered above `after`. A claim that has ended by our clock is lost,
 * even if the server still has it: it is not renewed.
 */
static void begin_round(struct outbox_claims *claims, uint64_t after, struct round *round)
{
	round->count = 0;
	pthread_mutex_lock(&claims->lock);
	for (size_t i = 0; i < claims->count && round->count < RENEW_MOST; i++) {
		struct held *held = &claims->held[i];
		held->lost = is_lost(held);
		if (held->lost || held->number <= after)
			continue;

		void *id = memcpy(xmalloc(held->length), held->id, held->length);
		round->ids[round->count] = (struct claims_id){id, held->length, held->token};
		round->numbers[round->count++] = held->number;
	}
	pthread_mutex_unlock(&claims->lock);
}

static void end_round(
    struct outbox_claims *claims, struct round *round, bool answered, int64_t ends_ms)
{
	pthread_mutex_lock(&claims->lock);
	for (size_t i = 0; i < round->count; i++) {
		struct held *held = find_held(claims, round->numbers[i]);
		free((void *)round->ids[i].id);
		if (!held || !answered)
			continue; /* released meanwhile, or the next round tries again */
		held->lost = is_lost(held) || !round->held[i];
		held->ends_ms = ends_ms;
	}
	pthread_mutex_unlock(&claims->lock);
}

/* False: the server does not answer. */
static bool renew_all(struct outbox_claims *claims, struct round *round)
{
	uint64_t after = 0;
	struct err err; /* ignored: the holder learns of the loss from its next call */
	do {
		/* the lease counts from before the request: the server's ends no earlier */
		int64_t begin = clock_ms();
		begin_round(claims, after, round);
		if (round->count == 0)
			return true;

		after = round->numbers[round->count - 1];
		bool answered = claims->type->renew(
		    claims->renewer, round->ids, round->count, round->held, &err);
		end_round(claims, round, answered, begin + claims->lease_ms);
		if (!answered)
			return false;
	} while (round->count == RENEW_MOST);
	return true;
}

/* False: the claims are being closed. */
static bool wait_until_renewal(struct outbox_claims *claims, int64_t ms)
{
	const struct timespec until = clock_until(ms);

	pthread_mutex_lock(&claims->lock);
	/* A loop, since pthread_cond_timedwait may return without a signal. */
	while (!claims->closing &&
	       pthread_cond_timedwait(&claims->changed, &claims->lock, &until) == 0)
		;
	bool goes_on = !claims->closing;
	pthread_mutex_unlock(&claims->lock);
	return goes_on;
}

static void *run_renewals(void *context)
{
	struct outbox_claims *claims = context;
	struct round *round = xmalloc(sizeof *round);
	bool answered = true;
	/* after a failure the next attempt comes sooner, while the leases still last */
	while (wait_until_renewal(claims, claims->lease_ms / (answered ? 3 : 12)))
		answered = renew_all(claims, round);
	free(round);
	return NULL;
}

/* --- life ----------------------------------------------------------------------------------- */

static void init_claim_locks(struct outbox_claims *claims)
{
	pthread_mutex_init(&claims->calling, NULL);
	pthread_mutex_init(&claims->lock, NULL);
	clock_cond_init(&claims->changed);
}

static void destroy_claims(struct outbox_claims *claims)
{
	if (claims->store)
		claims->type->close(claims->store);
	if (claims->renewer)
		claims->type->close(claims->renewer);
	pthread_cond_destroy(&claims->changed);
	pthread_mutex_destroy(&claims->lock);
	pthread_mutex_destroy(&claims->calling);
	free(claims->held);
	free(claims);
}

struct outbox_claims *claims_open(const struct claims_spec *spec, struct err *err)
{
	const struct claims_store_type *type = spec->type;
	struct outbox_claims *claims = xcalloc(1, sizeof *claims);
	claims->type = type;
	claims->lease_ms = spec->lease_ms;
	init_claim_locks(claims);

	claims->store = type->open(spec, err);
	claims->renewer = claims->store ? type->open(spec, err) : NULL;
	if (claims->renewer && pthread_create(&claims->watchdog, NULL, run_renewals, claims) == 0)
		return claims;

	/* Otherwise the store's own message says why. */
	if (claims->renewer)
		err_set(
		    err, ERR_RETRY, "no thread can be made to renew claims: lower their number");
	destroy_claims(claims);
	return NULL;
}

/* Until the server does not answer: then the leases end. */
static void release_rest(struct outbox_claims *claims)
{
	struct outbox_claim *rest = xcalloc(CLAIMS_MOST, sizeof *rest);
	struct err err;
	size_t lost;
	bool good = true;

	while (good && claims->count > 0) {
		size_t count = claims->count < CLAIMS_MOST ? claims->count : CLAIMS_MOST;
		for (size_t i = 0; i < count; i++)
			rest[i].number = claims->held[i].number;
		good = claims_release_many(claims, rest, count, &lost, &err);
	}
	free(rest);
	for (size_t i = 0; i < claims->count; i++)
		free(claims->held[i].id);
}

void outbox_claims_close(struct outbox_claims *claims)
{
	if (!claims)
		return;

	pthread_mutex_lock(&claims->lock);
	claims->closing = true;
	pthread_cond_signal(&claims->changed);
	pthread_mutex_unlock(&claims->lock);
	pthread_join(claims->watchdog, NULL);

	release_rest(claims);
	destroy_claims(claims);
}

struct outbox_claims *outbox_claims_open(const char *line, struct outbox_error *error)
{
	OWNED(claims_spec_finish) struct claims_spec spec;
	struct err err;
	struct outbox_claims *claims = NULL;
	if (claims_spec_parse(line, &spec, &err))
		claims = claims_open(&spec, &err);
	if (!claims)
		outbox_error_of(&err, error);
	return claims;
}

/* --- calls ---------------------------------------------------------------------------------- */

static bool fail_claim(struct outbox_error *error, const struct err *err)
{
	outbox_error_of(err, error);
	return false;
}

static bool check_claim_length(size_t length, struct err *err)
{
	return (length > 0 && length <= CLAIMS_ID_MOST) ||
	       err_set(err, ERR_REJECT,
		   "an id of %zu bytes cannot be claimed: it has 1 to %d; use its SHA-256 if it is "
		   "longer",
		   length, CLAIMS_ID_MOST);
}

bool claims_take_many(struct outbox_claims *claims, const struct claims_id *ids, size_t count,
    struct outbox_claim *ret_claims, struct err *err)
{
	struct claims_id *taken = xcalloc(count + 1, sizeof *taken);
	memcpy(taken, ids, count * sizeof *taken);

	pthread_mutex_lock(&claims->calling);
	/* Counted from before the request: the server's lease ends no earlier than ours. */
	int64_t ends_ms = clock_ms() + claims->lease_ms;
	bool good = count == 0 || claims->type->take(claims->store, taken, count, err);
	pthread_mutex_unlock(&claims->calling);

	for (size_t i = 0; good && i < count; i++) {
		int64_t token = taken[i].token;
		uint64_t number =
		    token ? keep_claim(claims, ids[i].id, ids[i].length, token, ends_ms) : 0;
		ret_claims[i] = (struct outbox_claim){token, number};
	}
	free(taken);
	return good;
}

bool outbox_claims_take(struct outbox_claims *claims, const void *id, size_t length,
    struct outbox_claim *ret_claim, bool *ret_taken, struct outbox_error *error)
{
	const struct claims_id wanted = {id, length, 0};
	struct outbox_claim claim;
	struct err err;

	if (!check_claim_length(length, &err) ||
	    !claims_take_many(claims, &wanted, 1, &claim, &err))
		return fail_claim(error, &err);

	*ret_taken = claim.token != 0;
	if (*ret_taken)
		*ret_claim = claim;
	return true;
}

static bool tell_lost(const struct outbox_claims *claims, struct err *err)
{
	return err_set(err, ERR_FENCED,
	    "the claim was lost: it was not renewed within its lease of %lld ms, and somebody "
	    "else may have the id: stop, and write nothing more",
	    (long long)claims->lease_ms);
}

static bool tell_unknown(struct err *err)
{
	return err_set(err, ERR_REJECT, "there is no such claim: it was released before");
}

bool outbox_claims_check(
    struct outbox_claims *claims, const struct outbox_claim *claim, struct outbox_error *error)
{
	struct err err;
	pthread_mutex_lock(&claims->lock);
	struct held *held = find_held(claims, claim->number);
	if (held)
		held->lost = is_lost(held);
	bool good = held ? !held->lost || tell_lost(claims, &err) : tell_unknown(&err);
	pthread_mutex_unlock(&claims->lock);
	return good || fail_claim(error, &err);
}

/* Claims that are being released. */
struct releases {
	struct held held[CLAIMS_MOST];
	struct claims_id ids[CLAIMS_MOST];
	bool had[CLAIMS_MOST];
	size_t count;
};

/* Removes the claims before the request, so that the watchdog no longer renews them. */
static void begin_releases(struct outbox_claims *claims, const struct outbox_claim *released,
    size_t count, struct releases *releases)
{
	releases->count = 0;
	for (size_t i = 0; i < count; i++) {
		struct held *held = &releases->held[releases->count];
		if (!remove_held(claims, released[i].number, held))
			continue;
		releases->ids[releases->count++] =
		    (struct claims_id){held->id, held->length, held->token};
	}
}

static size_t end_releases(struct releases *releases, bool answered)
{
	size_t lost = 0;
	for (size_t i = 0; i < releases->count; i++) {
		lost += is_lost(&releases->held[i]) || (answered && !releases->had[i]);
		free(releases->held[i].id);
	}
	return lost;
}

/* ret_count: the number of the claims that were held or lost, and were not released before. */
static bool release_counted(struct outbox_claims *claims, const struct outbox_claim *released,
    size_t count, size_t *ret_count, size_t *ret_lost, struct err *err)
{
	struct releases *releases = xmalloc(sizeof *releases);
	begin_releases(claims, released, count, releases);

	pthread_mutex_lock(&claims->calling);
	bool good = releases->count == 0 || claims->type->release(claims->store, releases->ids,
						releases->count, releases->had, err);
	pthread_mutex_unlock(&claims->calling);

	*ret_count = releases->count;
	*ret_lost = end_releases(releases, good);
	free(releases);
	return good;
}

bool claims_release_many(struct outbox_claims *claims, const struct outbox_claim *released,
    size_t count, size_t *ret_lost, struct err *err)
{
	size_t known;
	return release_counted(claims, released, count, &known, ret_lost, err);
}

bool outbox_claims_release(
    struct outbox_claims *claims, const struct outbox_claim *claim, struct outbox_error *error)
{
	struct err err;
	size_t known, lost;
	bool good = release_counted(claims, claim, 1, &known, &lost, &err);

	if (lost) /* the loss comes first, also if the server does not answer */
		good = tell_lost(claims, &err);
	else if (known == 0)
		good = tell_unknown(&err);
	return good || fail_claim(error, &err);
}
