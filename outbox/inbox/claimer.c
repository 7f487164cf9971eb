/*
 * The thread that claims ids for the loop. Read run_claimer, which in each round releases claims
 * and takes others; then claimer_offer and claimer_results, the loop's side.
 */
#include "claimer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "clock.h"
#include "text.h"

enum {
	REQUEST = 256, /* ids in one request: a short one holds up no other message */
	/*
	 * Releases wait for others, since a request may cost the server a transaction, and only a
	 * copy of a message that is done waits for them.
	 */
	RELEASE_MS = 10,
	RELEASE_MANY = 64,
	AGAIN_MS = 500, /* after the server failed */
};

struct claimer {
	struct claims_spec spec;
	size_t most;
	int wake_fd;
	pthread_t thread;
	bool runs;
	struct outbox_claims *claims; /* NULL: the server has not answered yet */

	pthread_mutex_t mutex; /* protects the members below; never held during a request */
	pthread_cond_t work;   /* of the thread */
	pthread_cond_t rest;   /* a request has ended */
	struct item_list asked, granted, refused;
	struct outbox_claim *released; /* the server does not know it yet */
	size_t released_count, released_capacity;
	int64_t release_at; /* clock_ms: when the first of them is due */
	size_t held;        /* claims that were granted and not released */
	bool in_request, over;
	bool failed;
	struct err err;
};

/* --- the thread ------------------------------------------------------------------------------ */

static bool releases_are_due(const struct claimer *claimer)
{
	return claimer->released_count >= RELEASE_MANY ||
	       (claimer->released_count > 0 && clock_ms() >= claimer->release_at);
}

/* With many messages the claims are taken some at a time, and not one as each handler ends. */
static bool takes_are_due(const struct claimer *claimer)
{
	size_t some = claimer->most / 4 + 1;
	size_t wanted = claimer->asked.count < some ? claimer->asked.count : some;
	return wanted > 0 && claimer->held + wanted <= claimer->most;
}

static void wait_for_asked(struct claimer *claimer)
{
	if (claimer->released_count == 0) {
		pthread_cond_wait(&claimer->work, &claimer->mutex);
		return;
	}
	struct timespec until = clock_until(claimer->release_at - clock_ms());
	(void)pthread_cond_timedwait(&claimer->work, &claimer->mutex, &until);
}

/* Called with the mutex. False: the claimer ends. */
static bool wait_for_claimer_work(struct claimer *claimer, bool answered)
{
	if (!answered) {
		/* A loop, since pthread_cond_timedwait may return early. */
		struct timespec until = clock_until(AGAIN_MS);
		while (!claimer->over &&
		       pthread_cond_timedwait(&claimer->work, &claimer->mutex, &until) == 0)
			;
	}
	while (!claimer->over && !takes_are_due(claimer) && !releases_are_due(claimer))
		wait_for_asked(claimer);
	return !claimer->over;
}

/* The requests of one round. */
struct claimer_round {
	struct outbox_claim released[REQUEST];
	size_t released_count;
	struct item *items[REQUEST];
	struct claims_id ids[REQUEST];
	char digests[REQUEST][ITEM_DIGEST];
	struct outbox_claim claims[REQUEST];
	size_t count;
};

/* Called with the mutex. */
static void begin_claimer_round(struct claimer *claimer, struct claimer_round *round)
{
	size_t count = claimer->released_count < REQUEST ? claimer->released_count : REQUEST;
	count = releases_are_due(claimer) ? count : 0;
	if (count > 0) { /* the list may be NULL before */
		memcpy(round->released, claimer->released, count * sizeof *round->released);
		claimer->released_count -= count;
		memmove(claimer->released, claimer->released + count,
		    claimer->released_count * sizeof *claimer->released);
	}
	round->released_count = count;

	/* Other consumers can have the ids of messages that would only wait here. */
	round->count = 0;
	while (claimer->asked.first && round->count < REQUEST &&
	       claimer->held + round->count < claimer->most) {
		struct item *item = item_list_take(&claimer->asked);
		struct claims_id *id = &round->ids[round->count];
		id->id = item_short_id(item->public.id, item->public.id_length,
		    round->digests[round->count], &id->length);
		round->items[round->count++] = item;
	}
	claimer->in_request = true;
}

static bool open_claims(struct claimer *claimer, struct err *err)
{
	if (!claimer->claims)
		claimer->claims = claims_open(&claimer->spec, err);
	return claimer->claims;
}

/* The release comes first: a message that waits for its own lost claim can have it then. */
static bool ask_for_claims(struct claimer *claimer, struct claimer_round *round, struct err *err)
{
	size_t lost;
	return open_claims(claimer, err) &&
	       claims_release_many(
		   claimer->claims, round->released, round->released_count, &lost, err) &&
	       claims_take_many(claimer->claims, round->ids, round->count, round->claims, err);
}

/* Puts items back in front of those that are asked for. */
static void put_back_asked(struct claimer *claimer, const struct claimer_round *round)
{
	struct item_list again = {0};
	for (size_t i = 0; i < round->count; i++)
		item_list_add(&again, round->items[i]);
	item_list_join(&again, &claimer->asked);
	claimer->asked = again;
}

/* Called with the mutex. */
static void end_claimer_round(struct claimer *claimer, struct claimer_round *round, bool answered)
{
	for (size_t i = 0; answered && i < round->count; i++) {
		struct item *item = round->items[i];
		bool granted = round->claims[i].token != 0;

		if (granted) {
			item->claimer = claimer;
			item->claim = round->claims[i];
			item->public.token = item->claim.token;
		}
		claimer->held += granted;
		item_list_add(granted ? &claimer->granted : &claimer->refused, item);
	}
	if (!answered)
		put_back_asked(claimer, round);

	claimer->in_request = false;
	pthread_cond_signal(&claimer->rest);
}

static void *run_claimer(void *context)
{
	struct claimer *claimer = context;
	struct claimer_round *round = xcalloc(1, sizeof *round);
	bool answered = true;

	pthread_setname_np(pthread_self(), "inbox-claimer");
	pthread_mutex_lock(&claimer->mutex);
	while (wait_for_claimer_work(claimer, answered)) {
		struct err err;
		begin_claimer_round(claimer, round);
		pthread_mutex_unlock(&claimer->mutex);
		answered = ask_for_claims(claimer, round, &err);
		pthread_mutex_lock(&claimer->mutex);
		end_claimer_round(claimer, round, answered);
		if (!answered) {
			claimer->failed = true;
			claimer->err = err;
		}
		if (round->count > 0 || !answered)
			(void)!write(claimer->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	pthread_mutex_unlock(&claimer->mutex);
	free(round);
	return NULL;
}

/* --- the loop's side ------------------------------------------------------------------------- */

void claimer_offer(struct claimer *claimer, struct item_list *items)
{
	pthread_mutex_lock(&claimer->mutex);
	item_list_join(&claimer->asked, items);
	pthread_cond_signal(&claimer->work);
	pthread_mutex_unlock(&claimer->mutex);
}

void claimer_results(
    struct claimer *claimer, struct item_list *ret_granted, struct item_list *ret_refused)
{
	pthread_mutex_lock(&claimer->mutex);
	item_list_join(ret_granted, &claimer->granted);
	item_list_join(ret_refused, &claimer->refused);
	pthread_mutex_unlock(&claimer->mutex);
}

bool claimer_failed(struct claimer *claimer, struct err *ret_err)
{
	pthread_mutex_lock(&claimer->mutex);
	bool failed = claimer->failed;
	claimer->failed = false;
	if (failed)
		*ret_err = claimer->err;
	pthread_mutex_unlock(&claimer->mutex);
	return failed;
}

struct item_list claimer_withdraw(struct claimer *claimer)
{
	struct item_list items = {0};
	pthread_mutex_lock(&claimer->mutex);
	while (claimer->in_request)
		pthread_cond_wait(&claimer->rest, &claimer->mutex);
	item_list_join(&items, &claimer->asked);
	item_list_join(&items, &claimer->granted);
	item_list_join(&items, &claimer->refused);
	pthread_mutex_unlock(&claimer->mutex);
	return items;
}

/* --- claims ---------------------------------------------------------------------------------- */

bool claimer_holds(const struct item *item)
{
	return item->claim.number == 0 ||
	       outbox_claims_check(item->claimer->claims, &item->claim, NULL);
}

/* Called with the mutex. */
static void add_released(struct claimer *claimer, struct item *item)
{
	if (claimer->released_count == claimer->released_capacity) {
		claimer->released_capacity =
		    claimer->released_capacity ? 2 * claimer->released_capacity : 64;
		claimer->released = xrealloc(
		    claimer->released, claimer->released_capacity * sizeof *claimer->released);
	}

	if (claimer->released_count == 0)
		claimer->release_at = clock_ms() + RELEASE_MS;
	claimer->released[claimer->released_count++] = item->claim;
	claimer->held--;
	item->claim = (struct outbox_claim){0};
	item->public.token = 0;
	pthread_cond_signal(&claimer->work);
}

void claimer_release(struct item *item)
{
	if (item->claim.number == 0)
		return;
	struct claimer *claimer = item->claimer;
	pthread_mutex_lock(&claimer->mutex);
	add_released(claimer, item);
	pthread_mutex_unlock(&claimer->mutex);
}

void claimer_claim_again(struct item *item)
{
	struct claimer *claimer = item->claimer;
	item_move(item, ITEM_CLAIMING);
	pthread_mutex_lock(&claimer->mutex);
	add_released(claimer, item);
	item_list_add(&claimer->asked, item);
	pthread_mutex_unlock(&claimer->mutex);
}

/* --- life ------------------------------------------------------------------------------------ */

static void init_claimer_locks(struct claimer *claimer)
{
	pthread_mutex_init(&claimer->mutex, NULL);
	clock_cond_init(&claimer->work);
	clock_cond_init(&claimer->rest);
}

struct claimer *claimer_create(const struct claimer_settings *settings, struct err *err)
{
	struct claimer *claimer = xcalloc(1, sizeof *claimer);
	claimer->most = settings->most;
	claimer->wake_fd = settings->wake_fd;
	init_claimer_locks(claimer);

	if (claims_spec_parse(settings->line, &claimer->spec, err)) {
		claimer->runs = pthread_create(&claimer->thread, NULL, run_claimer, claimer) == 0;
		if (claimer->runs)
			return claimer;
		err_set(err, ERR_RETRY, "no thread for the claims of an inbox");
	}
	claimer_destroy(claimer);
	return NULL;
}

void claimer_destroy(struct claimer *claimer)
{
	if (!claimer)
		return;

	pthread_mutex_lock(&claimer->mutex);
	claimer->over = true;
	pthread_cond_signal(&claimer->work);
	pthread_mutex_unlock(&claimer->mutex);
	if (claimer->runs)
		pthread_join(claimer->thread, NULL);

	/* None are left, unless the loop has failed. */
	struct item_list rest = claimer_withdraw(claimer);
	for (struct item *item; (item = item_list_take(&rest));)
		item_destroy(item);

	/* Also ends the claims that were released since the last request. */
	outbox_claims_close(claimer->claims);
	claims_spec_finish(&claimer->spec);
	pthread_cond_destroy(&claimer->work);
	pthread_cond_destroy(&claimer->rest);
	pthread_mutex_destroy(&claimer->mutex);
	free(claimer->released);
	free(claimer);
}
