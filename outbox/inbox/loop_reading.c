/* Reads records while there is room for them, and puts them into their key queues; pauses. */
#include "loop_private.h"

#include "clock.h"
#include "subscription.h"
#include "text.h"

enum {
	READS = 400,   /* records in one turn: their items fit into the cache of a core */
	FULL_MS = 500, /* how long reading stops while memory is full; then partitions are paused */
};

/* --- reading -------------------------------------------------------------------------------- */

struct inbox_partition *loop_find_partition(
    const struct loop *loop, const char *topic, int32_t partition)
{
	for (int i = 0; i < loop->partition_count; i++)
		if (loop->partitions[i]->partition == partition &&
		    text_equal(loop->partitions[i]->topic, topic))
			return loop->partitions[i];
	return NULL;
}

static bool memory_is_full(const struct loop *loop)
{
	return loop->items >= loop->settings->given.most_messages ||
	       loop->bytes >= loop->settings->given.most_bytes;
}

/*
 * Does the partition use its part of the memory? One of several partitions leaves as much memory as
 * it uses, so that the others go on, however many are stuck.
 */
static bool has_part(const struct loop *loop, const struct inbox_partition *assigned, int64_t parts)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;
	return loop->partition_count > 1 &&
	       (assigned->items * parts >= given->most_messages - loop->items ||
		   assigned->bytes * parts >= given->most_bytes - loop->bytes);
}

/* The partition has no room for another record, or it waits for its store or for an unfinished
 * message. */
static bool is_crowded(const struct loop *loop, const struct inbox_partition *assigned)
{
	return has_part(loop, assigned, 1) || assigned->arrived.first;
}

static void set_stop(struct inbox_partition *assigned, enum inbox_partition_stop stop, bool on)
{
	assigned->stops = on ? assigned->stops | stop : assigned->stops & ~(unsigned)stop;
}

void loop_apply_stops(struct loop *loop)
{
	struct err err;

	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		const struct subscription_place place = {
		    assigned->topic, assigned->partition, 0, NULL};
		bool pause = assigned->stops != 0 || assigned->state == ASSIGNED_UNSET;
		if (pause == assigned->paused)
			continue;
		if (subscription_pause(loop->subscription, &place, pause, &err))
			assigned->paused = pause;
		else
			loop_tell(loop, "inbox_waits", &err);
	}
}

static bool may_take(const struct loop *loop)
{
	return !memory_is_full(loop) && !(loop->recent && has_part(loop, loop->recent, 1));
}

static void take_inbox_record(struct loop *loop, const struct consumer_record *record)
{
	struct inbox_partition *assigned = loop->recent;

	if (!assigned || assigned->partition != record->partition ||
	    !text_equal(assigned->topic, record->topic))
		assigned = loop->recent =
		    loop_find_partition(loop, record->topic, record->partition);
	if (!assigned)
		return;

	struct item *item = item_create(&loop->pool, record);
	item->arrived_ms = loop->now_ms;
	int64_t bytes = (int64_t)item->bytes;
	if (!inbox_partition_arrive(assigned, loop->settings, item))
		return;

	key_queues_prefetch(&loop->key_queues, item);
	loop->items++;
	loop->bytes += bytes;
}

static bool see_inbox_record(void *context, const struct consumer_record *record)
{
	struct loop *loop = context;
	take_inbox_record(loop, record);
	return --loop->to_read > 0 && may_take(loop);
}

void loop_judge_reading(struct loop *loop, bool well, const struct err *err)
{
	if (well)
		return;
	if (err->kind == ERR_CONFIG || err->kind == ERR_FATAL)
		loop_fail(loop, err);
	else
		loop_tell(loop, "inbox_waits", err);
}

void loop_read_records(struct loop *loop)
{
	struct err err;
	int count;
	loop->to_read = READS;
	loop_judge_reading(loop,
	    subscription_read(loop->subscription, see_inbox_record, loop, &count, &err), &err);
	loop->busy = loop->busy || count > 0;
}

void loop_read_events(struct loop *loop)
{
	struct err err;
	loop_judge_reading(loop, subscription_step(loop->subscription, &err), &err);
}

/*
 * A paused partition loses the records that librdkafka has read ahead, so it is paused only after
 * its memory was full for long; for a shorter time nothing at all is read. While it is paused,
 * other partitions are read.
 */
bool loop_may_read(struct loop *loop)
{
	bool full = memory_is_full(loop) || loop_is_unreported(loop), stuck = full;

	for (int i = 0; i < loop->partition_count; i++)
		stuck |= !loop->partitions[i]->paused && is_crowded(loop, loop->partitions[i]);
	if (!stuck)
		loop->full_since = 0;
	else if (!loop->full_since)
		loop->full_since = loop->now_ms;
	bool rests = stuck && loop->now_ms - loop->full_since > FULL_MS;
	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		set_stop(assigned, STOP_FULL, full && rests);
		if (rests && is_crowded(loop, assigned))
			assigned->stops |= STOP_ITEMS;
		else if (!has_part(loop, assigned, 2) && !assigned->arrived.first)
			assigned->stops &= ~(unsigned)STOP_ITEMS;
	}
	return !stuck;
}

void loop_admit(struct loop *loop)
{
	struct err err;

	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		struct item_list admitted = {0};
		int64_t *trouble;
		if (!assigned->arrived.first || loop_cannot_admit(assigned))
			continue;
		bool well =
		    inbox_partition_admit(assigned, loop->settings, &admitted, &trouble, &err);
		for (struct item *item; (item = item_list_take(&admitted));)
			loop_enter(loop, item);
		if (!well)
			loop_trouble_until(loop, trouble, &err);
	}
}

/* --- pauses --------------------------------------------------------------------------------- */

static bool is_paused(const struct loop *loop, const char *topic)
{
	for (size_t i = 0; i < loop->paused_count; i++)
		if (!loop->paused[i][0] || text_equal(loop->paused[i], topic))
			return true;
	return false;
}

/* When a topic is resumed, its blocked partitions are tried once more; a missing offset is
 * requested again. */
static void wake_blocked(struct loop *loop, struct inbox_partition *assigned)
{
	if (assigned->state == ASSIGNED_UNSET && !loop->again_at)
		loop->again_at = clock_ms();
	assigned->stops &= ~(unsigned)STOP_BLOCKED;
	for (struct item *item = key_queues_first(&loop->key_queues); item;
	     item = key_queues_after(&loop->key_queues, item))
		if (item->assigned == assigned && item->state == ITEM_BLOCKED) {
			item->tries = 0;
			item->public.attempt++;
			loop_rest(loop, item, 0);
		}
}

void loop_apply_pauses(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	bool resumed = loop->resumed;

	for (int i = 0; loop->pauses_changed && i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		set_stop(assigned, STOP_PAUSED, is_paused(loop, assigned->topic));
	}
	loop->pauses = loop->paused_count > 0;
	loop->pauses_changed = loop->resumed = false;
	pthread_mutex_unlock(&loop->mutex);

	for (int i = 0; resumed && i < loop->partition_count; i++)
		if (!(loop->partitions[i]->stops & STOP_PAUSED))
			wake_blocked(loop, loop->partitions[i]);
}

void loop_look_at_pauses(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	loop->pauses_changed = true;
	pthread_mutex_unlock(&loop->mutex);
}
