/* Records come in while there is room for them, and go to their lanes; pauses. */
#include "loop_private.h"

#include "clock.h"
#include "subscription.h"
#include "text.h"

enum {
	READS = 1000,  /* records in one turn */
	FULL_MS = 500, /* so long nothing is read while memory is full; then partitions rest */
};

/* --- reading -------------------------------------------------------------------------------- */

struct share *loop_find_share(const struct loop *loop, const char *topic, int32_t partition)
{
	for (int i = 0; i < loop->share_count; i++)
		if (loop->shares[i]->partition == partition &&
		    text_equal(loop->shares[i]->topic, topic))
			return loop->shares[i];
	return NULL;
}

static bool is_full(const struct loop *loop)
{
	return loop->items >= loop->settings->given.most_messages ||
	       loop->bytes >= loop->settings->given.most_bytes;
}

/*
 * It has its part of the memory. One of several partitions leaves as much as it has, however many
 * do not get on: so that others go on beside them.
 */
static bool has_part(const struct loop *loop, const struct share *share, int64_t parts)
{
	const struct outbox_inbox_settings *given = &loop->settings->given;
	return loop->share_count > 1 &&
	       (share->items * parts >= given->most_messages - loop->items ||
		   share->bytes * parts >= given->most_bytes - loop->bytes);
}

/* Nothing more of it has room, or it waits for its store, or for one that is not finished. */
static bool is_crowded(const struct loop *loop, const struct share *share)
{
	return has_part(loop, share, 1) || share->arrived.first;
}

static void set_stop(struct share *share, enum share_stop stop, bool on)
{
	share->stops = on ? share->stops | stop : share->stops & ~(unsigned)stop;
}

void loop_apply_stops(struct loop *loop)
{
	struct err err;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		const struct subscription_place place = {share->topic, share->partition, 0, NULL};
		bool pause = share->stops != 0;
		if (pause == share->paused)
			continue;
		if (subscription_pause(loop->subscription, &place, pause, &err))
			share->paused = pause;
		else
			loop_tell(loop, "inbox_waits", &err);
	}
}

static bool may_take(const struct loop *loop)
{
	return !is_full(loop) && !(loop->recent && has_part(loop, loop->recent, 1));
}

static void arrive(struct loop *loop, const struct consumer_record *record)
{
	struct share *share = loop->recent;
	if (!share || share->partition != record->partition ||
	    !text_equal(share->topic, record->topic))
		share = loop->recent = loop_find_share(loop, record->topic, record->partition);
	if (!share)
		return;
	struct item *item = item_create(&loop->pool, record);
	item->arrived_ms = loop->now_ms;
	int64_t bytes = (int64_t)item->bytes;
	if (!share_arrive(share, loop->settings, item))
		return;
	loop->items++;
	loop->bytes += bytes;
}

static bool see(void *context, const struct consumer_record *record)
{
	struct loop *loop = context;
	arrive(loop, record);
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
	loop_judge_reading(
	    loop, subscription_read(loop->subscription, see, loop, &count, &err), &err);
	loop->busy = loop->busy || count > 0;
}

void loop_read_events(struct loop *loop)
{
	struct err err;
	loop_judge_reading(loop, subscription_step(loop->subscription, &err), &err);
}

/*
 * A partition that rests loses what librdkafka has read ahead of it, so it rests only when its
 * memory was full for long; for a shorter time nothing at all is read. Then other partitions are
 * read on.
 */
bool loop_may_read(struct loop *loop)
{
	bool full = is_full(loop), stuck = full;
	for (int i = 0; i < loop->share_count; i++)
		stuck |= !loop->shares[i]->paused && is_crowded(loop, loop->shares[i]);
	if (!stuck)
		loop->full_since = 0;
	else if (!loop->full_since)
		loop->full_since = loop->now_ms;
	bool rests = stuck && loop->now_ms - loop->full_since > FULL_MS;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		set_stop(share, STOP_FULL, full && rests);
		if (rests && is_crowded(loop, share))
			share->stops |= STOP_ITEMS;
		else if (!has_part(loop, share, 2) && !share->arrived.first)
			share->stops &= ~(unsigned)STOP_ITEMS;
	}
	return !stuck;
}

void loop_admit(struct loop *loop)
{
	struct err err;
	for (int i = 0; i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		struct item_list admitted = {0};
		if (!share->arrived.first || loop_is_in_trouble(share))
			continue;
		bool well = share_admit(share, loop->settings, &admitted, &err);
		for (struct item *item; (item = item_list_take(&admitted));)
			loop_enter(loop, item);
		if (!well)
			loop_trouble(loop, share->store, &err);
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

/* What stands still is tried once more when its topic goes on; where there was no offset it is
 * asked for. */
static void wake_standing(struct loop *loop, struct share *share)
{
	if (share->stops & STOP_UNSET && !loop->again_at)
		loop->again_at = clock_ms();
	share->stops &= ~(unsigned)STOP_STANDING;
	for (struct item *item = lanes_first(&loop->lanes); item;
	     item = lanes_after(&loop->lanes, item))
		if (item->share == share && item->state == ITEM_STANDING) {
			item->tries = 0;
			item->public.attempt++;
			loop_rest(loop, item, 0);
		}
}

void loop_apply_pauses(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	bool resumed = loop->resumed;
	for (int i = 0; loop->pauses_changed && i < loop->share_count; i++) {
		struct share *share = loop->shares[i];
		set_stop(share, STOP_PAUSED, is_paused(loop, share->topic));
	}
	loop->pauses_changed = loop->resumed = false;
	pthread_mutex_unlock(&loop->mutex);
	for (int i = 0; resumed && i < loop->share_count; i++)
		if (!(loop->shares[i]->stops & STOP_PAUSED))
			wake_standing(loop, loop->shares[i]);
}

void loop_look_at_pauses(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	loop->pauses_changed = true;
	pthread_mutex_unlock(&loop->mutex);
}
