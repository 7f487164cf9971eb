#include "worker_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "clock.h"
#include "fault.h"
#include "text.h"

/* A ticket is the number of a try, and below it the slot in which it is in hand. */
enum { SLOT_BITS = 20 };

struct slot {
	struct item *item; /* NULL: free */
	int next_free;
};

struct hands {
	struct hands_settings settings;
	pthread_mutex_t mutex;
	pthread_cond_t work; /* something may be handed out, or it is over */
	pthread_t *threads;
	int thread_count, idle; /* idle: those that wait */
	bool over, resting;
	int64_t until_ms;
	struct item_list ready, ended;
	struct item_list gone; /* finished though abandoned, while `keeps` */
	bool keeps;
	struct slot *slots;
	int first_free, in_hand;
	uint64_t tries;
};

/* --- handing out ---------------------------------------------------------------------------- */

/* An id of its own, in place of one that is free. */
static uint64_t take_slot(struct hands *hands, struct item *item)
{
	int number = hands->first_free;
	hands->first_free = hands->slots[number].next_free;
	hands->slots[number].item = item;
	hands->in_hand++;
	return ++hands->tries << SLOT_BITS | (uint64_t)number;
}

static void free_slot(struct hands *hands, int number)
{
	hands->slots[number] = (struct slot){NULL, hands->first_free};
	hands->first_free = number;
	hands->in_hand--;
}

static bool may_hand_out(const struct hands *hands)
{
	return hands->ready.first && hands->in_hand < hands->settings.most &&
	       clock_ms() < hands->until_ms;
}

static size_t hand_out(struct hands *hands, const struct outbox_inbox_message **ret_messages)
{
	size_t count = 0;
	while (hands->ready.first && hands->in_hand < hands->settings.most &&
	       count < (size_t)hands->settings.batch) {
		struct item *item = item_list_take(&hands->ready);
		item_move(item, ITEM_IN_HAND);
		item->public.ticket = take_slot(hands, item);
		ret_messages[count++] = &item->public;
	}
	return count;
}

static void *run(void *context)
{
	struct hands *hands = context;
	const struct outbox_inbox_message **messages =
	    xcalloc((size_t)hands->settings.batch, sizeof *messages);
	pthread_setname_np(pthread_self(), "inbox-handler");
	pthread_mutex_lock(&hands->mutex);
	while (!hands->over) {
		if (!may_hand_out(hands)) {
			hands->idle++;
			pthread_cond_wait(&hands->work, &hands->mutex);
			hands->idle--;
			continue;
		}
		size_t count = hand_out(hands, messages);
		pthread_mutex_unlock(&hands->mutex);
		hands->settings.handle(
		    hands->settings.context, hands->settings.inbox, messages, count);
		pthread_mutex_lock(&hands->mutex);
	}
	pthread_mutex_unlock(&hands->mutex);
	free(messages);
	return NULL;
}

/* As many as there is work for. */
static void call(struct hands *hands)
{
	size_t batch = (size_t)hands->settings.batch;
	size_t wanted = (hands->ready.count + batch - 1) / batch;
	for (size_t i = 0; i < wanted && i < (size_t)hands->idle; i++)
		pthread_cond_signal(&hands->work);
}

/* --- the loop's side ------------------------------------------------------------------------ */

void hands_offer(struct hands *hands, struct item_list *ready)
{
	pthread_mutex_lock(&hands->mutex);
	item_list_join(&hands->ready, ready);
	call(hands);
	pthread_mutex_unlock(&hands->mutex);
}

void hands_hold_until(struct hands *hands, int64_t until_ms)
{
	pthread_mutex_lock(&hands->mutex);
	bool held = clock_ms() >= hands->until_ms;
	hands->until_ms = until_ms;
	if (held)
		call(hands);
	pthread_mutex_unlock(&hands->mutex);
}

static struct item_list move_list(struct item_list *list)
{
	struct item_list taken = *list;
	*list = (struct item_list){0};
	return taken;
}

struct item_list hands_ended(struct hands *hands, bool rest)
{
	pthread_mutex_lock(&hands->mutex);
	struct item_list ended = move_list(&hands->ended);
	hands->resting = rest && !ended.first;
	pthread_mutex_unlock(&hands->mutex);
	return ended;
}

struct item_list hands_withdraw(struct hands *hands)
{
	pthread_mutex_lock(&hands->mutex);
	struct item_list ready = move_list(&hands->ready);
	pthread_mutex_unlock(&hands->mutex);
	return ready;
}

int hands_abandon(struct hands *hands)
{
	int count = 0;
	pthread_mutex_lock(&hands->mutex);
	hands->keeps = true;
	for (int i = 0; i < hands->settings.most; i++)
		if (hands->slots[i].item && hands->slots[i].item->assigned) {
			hands->slots[i].item->assigned = NULL;
			count++;
		}
	pthread_mutex_unlock(&hands->mutex);
	return count;
}

void hands_forget(struct hands *hands)
{
	pthread_mutex_lock(&hands->mutex);
	struct item_list gone = move_list(&hands->gone);
	hands->keeps = false;
	pthread_mutex_unlock(&hands->mutex);
	for (struct item *item; (item = item_list_take(&gone));)
		item_destroy(item);
}

int hands_in_hand(struct hands *hands)
{
	pthread_mutex_lock(&hands->mutex);
	int count = hands->in_hand;
	pthread_mutex_unlock(&hands->mutex);
	return count;
}

/* --- ends ----------------------------------------------------------------------------------- */

static struct item *find(const struct hands *hands, uint64_t ticket)
{
	uint64_t number = ticket & ((1U << SLOT_BITS) - 1);
	struct item *item =
	    number < (uint64_t)hands->settings.most ? hands->slots[number].item : NULL;
	return item && item->public.ticket == ticket ? item : NULL;
}

static void end(struct hands *hands, struct item *item, const struct outbox_inbox_end *end)
{
	free_slot(hands, (int)(item->public.ticket & ((1U << SLOT_BITS) - 1)));
	item->result = end->result;
	item->after_ms = end->after_ms;
	free(item->reason);
	item->reason = end->reason ? xstrdup(end->reason) : NULL;
	if (item->assigned) {
		item_move(item, ITEM_ENDED);
		item_list_add(&hands->ended, item);
	} else if (hands->keeps)
		item_list_add(&hands->gone, item);
	else
		item_destroy(item);
}

struct counts {
	size_t strange, wrong, gone;
};

static void end_one(struct hands *hands, const struct outbox_inbox_end *one, struct counts *counts)
{
	struct item *item = find(hands, one->ticket);
	if (!item)
		counts->strange++;
	else if (one->result < 0 || one->result >= OUTBOX_INBOX_RESULTS)
		counts->wrong++;
	else {
		counts->gone += !item->assigned;
		end(hands, item, one);
	}
}

static bool judge(const struct counts *counts, size_t count, struct err *err)
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

bool hands_holds(struct hands *hands, uint64_t ticket)
{
	pthread_mutex_lock(&hands->mutex);
	const struct item *item = find(hands, ticket);
	bool holds = item && item->assigned && clock_ms() < hands->until_ms;
	pthread_mutex_unlock(&hands->mutex);
	return holds;
}

bool hands_finish(
    struct hands *hands, const struct outbox_inbox_end *ends, size_t count, struct err *err)
{
	struct counts counts = {0};
	pthread_mutex_lock(&hands->mutex);
	for (size_t i = 0; i < count; i++)
		end_one(hands, &ends[i], &counts);
	bool wake = hands->resting;
	hands->resting = false;
	if (hands->in_hand + (int)count >= hands->settings.most)
		call(hands);
	pthread_mutex_unlock(&hands->mutex);
	if (wake)
		(void)!write(hands->settings.wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	return judge(&counts, count, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static bool start_threads(struct hands *hands, struct err *err)
{
	hands->threads = xcalloc((size_t)hands->settings.threads, sizeof *hands->threads);
	for (; hands->thread_count < hands->settings.threads; hands->thread_count++) {
		int code = pthread_create(&hands->threads[hands->thread_count], NULL, run, hands);
		if (code)
			return err_set(err, ERR_RETRY,
			    "the system gives %d of %d threads (%s): ask for less concurrency",
			    hands->thread_count, hands->settings.threads, strerror(code));
	}
	return true;
}

struct hands *hands_create(const struct hands_settings *settings, struct err *err)
{
	struct hands *hands = xcalloc(1, sizeof *hands);
	hands->settings = *settings;
	pthread_mutex_init(&hands->mutex, NULL);
	pthread_cond_init(&hands->work, NULL);
	hands->slots = xcalloc((size_t)settings->most, sizeof *hands->slots);
	for (int i = 0; i < settings->most; i++)
		hands->slots[i].next_free = i + 1;
	if (start_threads(hands, err))
		return hands;
	hands_destroy(hands);
	return NULL;
}

static void free_all(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item_destroy(item);
}

void hands_destroy(struct hands *hands)
{
	if (!hands)
		return;
	pthread_mutex_lock(&hands->mutex);
	hands->over = true;
	pthread_cond_broadcast(&hands->work);
	pthread_mutex_unlock(&hands->mutex);
	for (int i = 0; i < hands->thread_count; i++)
		pthread_join(hands->threads[i], NULL);
	for (int i = 0; i < hands->settings.most; i++)
		if (hands->slots[i].item)
			item_destroy(hands->slots[i].item);
	free_all(&hands->ready);
	free_all(&hands->ended);
	free_all(&hands->gone);
	pthread_cond_destroy(&hands->work);
	pthread_mutex_destroy(&hands->mutex);
	free(hands->slots);
	free(hands->threads);
	free(hands);
}
