/*
 * The way of a message from its key queue to its end, with its handlers and its redelivery. Begin
 * at advance_item, which decides by the item's fate; loop_take_end receives the result of a
 * handler.
 */
#include "loop_private.h"

#include <stdlib.h>
#include <string.h>
#include "backoff.h"
#include "clock.h"
#include "logging.h"
#include "redelivery.h"
#include "text.h"
#include "worker_pool.h"

enum { COPY_MS = 100 /* interval at which a copy asks whether the first one is done */ };

/* --- the way of an item --------------------------------------------------------------------- */

static void advance_item(struct loop *loop, struct item *item);

/* Ends the item and frees its memory. */
static void complete_item(struct loop *loop, struct item *item)
{
	struct inbox_partition *assigned = item->assigned;
	bool in_queue = !item->known;

	loop->items--;
	loop->bytes -= (int64_t)item->bytes;
	assigned->items--;
	assigned->bytes -= (int64_t)item->bytes;
	assigned->known -= item->known;
	/* An item that was known as finished is in no queue, and its offset is set already. */
	if (item->handled)
		loop_note_handled(loop, item);
	if (in_queue) {
		offsets_finished(&assigned->offsets, item->public.offset);
		assigned->changed = true;
		struct item *next = key_queues_leave(&loop->key_queues, item);
		if (next)
			advance_item(loop, next);
	}
	item_recycle(&loop->pool, item);
}

/* Finishes the item; its id is remembered first if necessary. */
static void finish_item(struct loop *loop, struct item *item)
{
	if (!item->pending) {
		complete_item(loop, item);
		return;
	}
	item_move(item, ITEM_LOGGING);
	key_queues_prefetch(&loop->key_queues, item);
	item_list_add(&item->assigned->logging, item);
}

void loop_rest(struct loop *loop, struct item *item, int64_t wait_ms)
{
	item_move(item, ITEM_RESTING);
	item->due_ms = clock_ms() + wait_ms;
	timers_add(&loop->timers, item);
}

static void stop_at_item(struct loop *loop, struct item *item)
{
	struct inbox_partition *assigned = item->assigned;
	(void)loop;
	item_move(item, ITEM_BLOCKED);
	assigned->stops |= STOP_BLOCKED;
	log_error("inbox_blocked", {"topic", LOG_TEXT(assigned->topic)},
	    {"partition", LOG_INT(assigned->partition)}, {"offset", LOG_INT(item->public.offset)},
	    {"reason", LOG_TEXT(item->reason)},
	    {"consequence", LOG_TEXT("nothing new of the partition is handled, until it is "
				     "resumed or its consumer begins anew")});
}

static void send_dead(struct loop *loop, struct item *item)
{
	const char *topic = loop->settings->given.dead_letters;
	/* Without a dead-letter topic the message may not be skipped: its partition waits. */
	if (!topic) {
		stop_at_item(loop, item);
		return;
	}

	log_warn("inbox_dead_letter", {"topic", LOG_TEXT(item->assigned->topic)},
	    {"partition", LOG_INT(item->assigned->partition)},
	    {"offset", LOG_INT(item->public.offset)}, {"reason", LOG_TEXT(item->reason)},
	    {"consequence", LOG_TEXT("the message goes to the dead-letter topic, and the next "
				     "message of its key follows")});

	item_move(item, ITEM_SENDING);
	item->fate = FATE_DEAD;
	redelivery_send(loop->redelivery, item, topic, REDELIVERY_DEAD_LETTER);
}

/* The message has used up its tries in its own topic. */
static void send_on(struct loop *loop, struct item *item)
{
	const struct inbox_settings *settings = loop->settings;
	int next = item->assigned->retry + 1;
	if (next >= settings->retry_count) {
		send_dead(loop, item);
		return;
	}
	const struct outbox_inbox_retry_topic *retry = &settings->given.retry_topics[next];
	item_move(item, ITEM_SENDING);
	redelivery_send(loop->redelivery, item, retry->topic, retry->delay_ms);
}

static void ask_store_again(struct loop *loop, struct item *item)
{
	struct err err;
	if (!inbox_partition_ask_again(item->assigned, item, &err)) {
		loop_trouble(loop, item->assigned->store, &err);
		loop_rest(loop, item, AGAIN_MS);
	} else if (item->fate == FATE_ASK)
		loop_rest(loop, item, COPY_MS);
	else
		advance_item(loop, item);
}

/*
 * The message waited for another one of its id, or for a consumer that has crashed: nobody may have
 * judged it.
 */
static void judge_late_item(struct loop *loop, struct item *item)
{
	struct inbox_partition *assigned = item->assigned;
	struct err err;

	/* one question that waits for a timeout is enough: others may wait here */
	if (loop_cannot_admit(assigned))
		loop_rest(loop, item, AGAIN_MS);
	else if (inbox_partition_judge(assigned, item, &err))
		advance_item(loop, item);
	else {
		loop_trouble_until(loop, &assigned->rules->trouble_until, &err);
		loop_rest(loop, item, AGAIN_MS);
	}
}

/* For a message of a retry topic: the partition gives no further messages until this one is due.
 * -1: it is due. */
static int64_t wait_of(const struct item *item)
{
	const struct outbox_rules_header *header;
	char text[24];
	int64_t at;

	/* Only a retry topic delays, and only the first attempt. */
	if (item->assigned->retry < 0 || item->tries > 0)
		return -1;

	header = item_header(item, "outbox-retry-at");
	if (!header || header->length >= sizeof text)
		return -1;

	memcpy(text, header->value, header->length);
	text[header->length] = '\0';
	if (!text_to_int64(text, 0, INT64_MAX, &at))
		return -1;
	return at - clock_wall_us() / 1000;
}

static void make_item_ready(struct loop *loop, struct item *item)
{
	int64_t wait = wait_of(item);
	if (wait > 0) {
		item->assigned->stops |= STOP_DUE;
		loop_rest(loop, item, wait);
		return;
	}

	if (loop->claimer && item->public.id) {
		loop_claim(loop, item);
		return;
	}
	item_move(item, ITEM_READY);
	item->out = true;
	item_list_add(&loop->ready, item);
}

/* The message is the first of its key queue. */
static void advance_item(struct loop *loop, struct item *item)
{
	/* While the inbox closes, no handler begins: the message stays uncommitted. */
	if (loop->closing)
		return;

	switch (item->fate) {
	case FATE_HANDLE:
		if (inbox_partition_must_judge(item->assigned, item))
			judge_late_item(loop, item);
		else
			make_item_ready(loop, item);
		break;
	case FATE_ASK:
		ask_store_again(loop, item);
		break;
	case FATE_COPY:
		loop->stats.duplicates++;
		item->handled = true;
		finish_item(loop, item);
		break;
	case FATE_DROP:
		loop->stats.refused++;
		/* otherwise it was redelivered for another group, which has yet to handle it */
		item->handled = item->judged;
		finish_item(loop, item);
		break;
	case FATE_DEAD:
		send_dead(loop, item);
		break;
	case FATE_BLOCK:
		stop_at_item(loop, item);
	}
}

void loop_enter(struct loop *loop, struct item *item)
{
	if (item->known) {
		if (item->pending)
			finish_item(loop, item);
		else
			complete_item(loop, item);
	} else if (key_queues_add(&loop->key_queues, item))
		advance_item(loop, item);
	else
		item_move(item, ITEM_QUEUED);
}

/* --- what comes back ------------------------------------------------------------------------ */

static int64_t pause_before(struct loop *loop, const struct item *item)
{
	struct backoff backoff = {.first_ms = loop->settings->given.retry_first_ms,
	    .cap_ms = loop->settings->given.retry_most_ms,
	    .jitter = 0.2,
	    .attempts = item->tries - 1,
	    .seed = loop->seed++};
	int64_t wait = backoff_next_ms(&backoff);
	return item->after_ms > wait ? item->after_ms : wait;
}

static void try_again(struct loop *loop, struct item *item)
{
	int attempts = loop->settings->given.attempts;
	loop->stats.retries++;
	item->tries++;
	if (attempts && item->tries >= attempts) {
		send_on(loop, item);
		return;
	}
	item->public.attempt++;
	loop_rest(loop, item, pause_before(loop, item));
}

void loop_take_end(struct loop *loop, struct item *item)
{
	int64_t first_ms = loop->settings->given.retry_first_ms;

	item->out = false;
	loop_end_claim(loop, item);
	switch (item->result) {
	case OUTBOX_INBOX_DONE:
		loop->stats.handled++;
		item->handled = true;
		finish_item(loop, item);
		break;
	case OUTBOX_INBOX_DUPLICATE:
		loop->stats.duplicates++;
		item->handled = true;
		finish_item(loop, item);
		break;
	case OUTBOX_INBOX_WAIT:
		loop->stats.retries++;
		loop_rest(loop, item, item->after_ms > 0 ? item->after_ms : first_ms);
		break;
	case OUTBOX_INBOX_DEAD:
		send_dead(loop, item);
		break;
	default:
		try_again(loop, item);
	}
}

void loop_take_ends(struct loop *loop)
{
	struct item_list ended = worker_pool_ended(loop->workers, false);
	for (struct item *item; (item = item_list_take(&ended));) {
		loop->busy = true;
		loop_take_end(loop, item);
	}
}

void loop_take_redelivered(struct loop *loop)
{
	struct err why;
	bool refused;

	redelivery_step(loop->redelivery, clock_ms());
	for (struct item *item; (item = redelivery_take(loop->redelivery, &refused, &why));) {
		loop->busy = true;
		/* the message itself may not be lost, so it blocks its partition */
		if (refused) {
			free(item->reason);
			item->reason = xformat(
			    "Kafka refuses its record for the retry or dead-letter topic: %s",
			    why.message);
			stop_at_item(loop, item);
			continue;
		}
		if (item->fate == FATE_DEAD)
			loop->stats.dead_letters++;
		else
			loop->stats.retry_records++;
		finish_item(loop, item);
	}
}

void loop_take_timers(struct loop *loop)
{
	int64_t now = clock_ms();
	for (struct item *item; (item = timers_take(&loop->timers, now));) {
		loop->busy = true;
		item->assigned->stops &= ~(unsigned)STOP_DUE;
		advance_item(loop, item);
	}
}

void loop_log_done(struct loop *loop)
{
	struct err err;

	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		/* a store in trouble is tried again later, and its items stay */
		while (assigned->logging.first && !loop_is_in_trouble(assigned)) {
			struct item_list logged = {0};
			if (!inbox_partition_log(assigned, &logged, &err)) {
				loop_trouble(loop, assigned->store, &err);
				break;
			}
			loop->busy = true;
			for (struct item *item; (item = item_list_take(&logged));)
				complete_item(loop, item);
		}
	}
}

bool loop_is_logging(const struct loop *loop)
{
	for (int i = 0; i < loop->partition_count; i++)
		if (loop->partitions[i]->logging.first)
			return true;
	return false;
}
