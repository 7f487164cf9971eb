/*
 * Threads that run handlers. The loop offers ready items and collects ended ones; [starting
 * handlers] is the work of a thread, [the loop's side] and [ends] are the calls of the loop.
 */
#include "worker_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "claimer.h"
#include "clock.h"
#include "fault.h"
#include "text.h"

/* A ticket is the number of a try, and in its lowest bits the slot of the message. */
enum { SLOT_BITS = 20 };

struct slot {
	struct item *item; /* NULL: free */
	int next_free;
};

struct worker_pool {
	struct worker_pool_settings settings;
	pthread_mutex_t mutex;
	pthread_cond_t work; /* a handler may start, or the pool ends */
	pthread_t *threads;
	int thread_count, idle; /* idle: number of threads that wait */
	bool over, resting;
	int64_t until_ms;
	struct item_list ready, ended;
	struct item_list gone; /* abandoned items that were finished, kept while `keeps` */
	bool keeps;
	struct slot *slots;
	int first_free, in_progress;
	uint64_t tries;
};

/* --- starting handlers ---------------------------------------------------------------------- */

/* Gives a message a ticket in a free slot. */
static uint64_t take_slot(struct worker_pool *pool, struct item *item)
{
	int number = pool->first_free;
	pool->first_free = pool->slots[number].next_free;
	pool->slots[number].item = item;
	pool->in_progress++;
	return ++pool->tries << SLOT_BITS | (uint64_t)number;
}

static void free_slot(struct worker_pool *pool, int number)
{
	pool->slots[number] = (struct slot){NULL, pool->first_free};
	pool->first_free = number;
	pool->in_progress--;
}

static bool may_start_handler(const struct worker_pool *pool)
{
	return pool->ready.first && pool->in_progress < pool->settings.most &&
	       clock_ms() < pool->until_ms;
}

static size_t take_batch(struct worker_pool *pool, const struct outbox_inbox_message **ret_messages)
{
	size_t count = 0;
	while (pool->ready.first && pool->in_progress < pool->settings.most &&
	       count < (size_t)pool->settings.batch) {
		struct item *item = item_list_take(&pool->ready);
		/* It was paused since, or the server of the claims was away for long. */
		if (!claimer_holds(item)) {
			claimer_claim_again(item);
			continue;
		}
		item_move(item, ITEM_IN_PROGRESS);
		item->public.ticket = take_slot(pool, item);
		ret_messages[count++] = &item->public;
	}
	return count;
}

static void *run_handler(void *context)
{
	struct worker_pool *pool = context;
	const struct outbox_inbox_message **messages =
	    xcalloc((size_t)pool->settings.batch, sizeof *messages);

	pthread_setname_np(pthread_self(), "inbox-handler");
	pthread_mutex_lock(&pool->mutex);
	while (!pool->over) {
		if (!may_start_handler(pool)) {
			pool->idle++;
			pthread_cond_wait(&pool->work, &pool->mutex);
			pool->idle--;
			continue;
		}
		size_t count = take_batch(pool, messages);
		if (count == 0)
			continue;
		pthread_mutex_unlock(&pool->mutex);
		pool->settings.handle(
		    pool->settings.context, pool->settings.inbox, messages, count);
		pthread_mutex_lock(&pool->mutex);
	}
	pthread_mutex_unlock(&pool->mutex);
	free(messages);
	return NULL;
}

/* Starts as many handlers as there is work for. */
static void signal_idle_threads(struct worker_pool *pool)
{
	size_t batch = (size_t)pool->settings.batch;
	size_t wanted = (pool->ready.count + batch - 1) / batch;
	for (size_t i = 0; i < wanted && i < (size_t)pool->idle; i++)
		pthread_cond_signal(&pool->work);
}

/* --- the loop's side ------------------------------------------------------------------------ */

void worker_pool_offer(struct worker_pool *pool, struct item_list *ready)
{
	pthread_mutex_lock(&pool->mutex);
	item_list_join(&pool->ready, ready);
	signal_idle_threads(pool);
	pthread_mutex_unlock(&pool->mutex);
}

void worker_pool_hold_until(struct worker_pool *pool, int64_t until_ms)
{
	pthread_mutex_lock(&pool->mutex);
	bool held = clock_ms() >= pool->until_ms;
	pool->until_ms = until_ms;
	if (held)
		signal_idle_threads(pool);
	pthread_mutex_unlock(&pool->mutex);
}

static struct item_list move_list(struct item_list *list)
{
	struct item_list taken = *list;
	*list = (struct item_list){0};
	return taken;
}

struct item_list worker_pool_ended(struct worker_pool *pool, bool rest)
{
	pthread_mutex_lock(&pool->mutex);
	struct item_list ended = move_list(&pool->ended);
	pool->resting = rest && !ended.first;
	pthread_mutex_unlock(&pool->mutex);
	return ended;
}

struct item_list worker_pool_withdraw(struct worker_pool *pool)
{
	pthread_mutex_lock(&pool->mutex);
	struct item_list ready = move_list(&pool->ready);
	pthread_mutex_unlock(&pool->mutex);
	return ready;
}

int worker_pool_abandon(struct worker_pool *pool)
{
	int count = 0;
	pthread_mutex_lock(&pool->mutex);
	pool->keeps = true;
	for (int i = 0; i < pool->settings.most; i++)
		if (pool->slots[i].item && pool->slots[i].item->assigned) {
			pool->slots[i].item->assigned = NULL;
			count++;
		}
	pthread_mutex_unlock(&pool->mutex);
	return count;
}

void worker_pool_forget(struct worker_pool *pool)
{
	pthread_mutex_lock(&pool->mutex);
	struct item_list gone = move_list(&pool->gone);
	pool->keeps = false;
	pthread_mutex_unlock(&pool->mutex);
	for (struct item *item; (item = item_list_take(&gone));)
		item_destroy(item);
}

int worker_pool_in_progress(struct worker_pool *pool)
{
	pthread_mutex_lock(&pool->mutex);
	int count = pool->in_progress;
	pthread_mutex_unlock(&pool->mutex);
	return count;
}

/* --- ends ----------------------------------------------------------------------------------- */

static struct item *find_ticket(const struct worker_pool *pool, uint64_t ticket)
{
	uint64_t number = ticket & ((1U << SLOT_BITS) - 1);
	struct item *item =
	    number < (uint64_t)pool->settings.most ? pool->slots[number].item : NULL;
	return item && item->public.ticket == ticket ? item : NULL;
}

static void end_item(
    struct worker_pool *pool, struct item *item, const struct outbox_inbox_end *end)
{
	free_slot(pool, (int)(item->public.ticket & ((1U << SLOT_BITS) - 1)));
	item->result = end->result;
	item->after_ms = end->after_ms;
	if (item->reason || end->reason) {
		free(item->reason);
		item->reason = end->reason ? xstrdup(end->reason) : NULL;
	}

	if (item->assigned) {
		item_move(item, ITEM_ENDED);
		item_list_add(&pool->ended, item);
	} else if (pool->keeps)
		item_list_add(&pool->gone, item);
	else
		item_destroy(item);
}

struct counts {
	size_t strange, wrong, gone;
};

static void end_ticket(
    struct worker_pool *pool, const struct outbox_inbox_end *one, struct counts *counts)
{
	struct item *item = find_ticket(pool, one->ticket);
	if (!item)
		counts->strange++;
	else if (one->result < 0 || one->result >= OUTBOX_INBOX_RESULTS)
		counts->wrong++;
	else {
		counts->gone += !item->assigned;
		end_item(pool, item, one);
	}
}

static bool judge_ends(const struct counts *counts, size_t count, struct err *err)
{
	if (counts->strange)
		return err_set(err, ERR_REJECT,
		    "%zu of %zu tickets are of no message that is being handled: finish each "
		    "message of this inbox once",
		    counts->strange, count);
	if (counts->wrong)
		return err_set(err, ERR_REJECT,
		    "%zu of %zu results are none: say one of enum outbox_inbox_result",
		    counts->wrong, count);
	return counts->gone == 0 ||
	       err_set(err, ERR_FENCED,
		   "the partitions of %zu of %zu messages were taken away while they were being "
		   "handled: who has them now handles them again",
		   counts->gone, count);
}

bool worker_pool_holds(struct worker_pool *pool, uint64_t ticket)
{
	pthread_mutex_lock(&pool->mutex);
	const struct item *item = find_ticket(pool, ticket);
	bool holds = item && item->assigned && clock_ms() < pool->until_ms && claimer_holds(item);
	pthread_mutex_unlock(&pool->mutex);
	return holds;
}

bool worker_pool_finish(
    struct worker_pool *pool, const struct outbox_inbox_end *ends, size_t count, struct err *err)
{
	struct counts counts = {0};

	pthread_mutex_lock(&pool->mutex);
	for (size_t i = 0; i < count; i++)
		end_ticket(pool, &ends[i], &counts);
	bool wake = pool->resting;
	pool->resting = false;
	if (pool->in_progress + (int)count >= pool->settings.most)
		signal_idle_threads(pool);
	pthread_mutex_unlock(&pool->mutex);
	if (wake)
		(void)!write(pool->settings.wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	return judge_ends(&counts, count, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static bool start_handler_threads(struct worker_pool *pool, struct err *err)
{
	pool->threads = xcalloc((size_t)pool->settings.threads, sizeof *pool->threads);
	for (; pool->thread_count < pool->settings.threads; pool->thread_count++) {
		int code =
		    pthread_create(&pool->threads[pool->thread_count], NULL, run_handler, pool);
		if (code)
			return err_set(err, ERR_RETRY,
			    "the system gives %d of %d threads (%s): ask for less concurrency",
			    pool->thread_count, pool->settings.threads, strerror(code));
	}
	return true;
}

struct worker_pool *worker_pool_create(const struct worker_pool_settings *settings, struct err *err)
{
	struct worker_pool *pool = xcalloc(1, sizeof *pool);
	pool->settings = *settings;
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->work, NULL);
	pool->slots = xcalloc((size_t)settings->most, sizeof *pool->slots);
	for (int i = 0; i < settings->most; i++)
		pool->slots[i].next_free = i + 1;
	if (start_handler_threads(pool, err))
		return pool;
	worker_pool_destroy(pool);
	return NULL;
}

static void free_all(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item_destroy(item);
}

void worker_pool_destroy(struct worker_pool *pool)
{
	if (!pool)
		return;

	pthread_mutex_lock(&pool->mutex);
	pool->over = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->mutex);
	for (int i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i], NULL);
	for (int i = 0; i < pool->settings.most; i++)
		if (pool->slots[i].item)
			item_destroy(pool->slots[i].item);
	free_all(&pool->ready);
	free_all(&pool->ended);
	free_all(&pool->gone);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->mutex);
	free(pool->slots);
	free(pool->threads);
	free(pool);
}
