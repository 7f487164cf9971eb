/* Makes finished messages durable and commits them; keeps the figures. */
#include "loop_private.h"

#include <stdlib.h>
#include "clock.h"
#include "fault.h"
#include "subscription.h"
#include "text.h"
#include "worker_pool.h"

enum {
	FLUSH_MS = 10,   /* between two writes of the stores' logs */
	COMMIT_PACE = 5, /* least time between commits, in durations of the last one */
};

/* --- commits -------------------------------------------------------------------------------- */

static void change_all(struct loop *loop)
{
	for (int i = 0; i < loop->partition_count; i++)
		loop->partitions[i]->changed = true;
}

static void send_commit(
    struct loop *loop, const struct subscription_place *places, int count, bool wait)
{
	struct err err;
	fault_point("inbox_to_commit");
	if (subscription_commit(loop->subscription, places, count, wait, &err))
		loop->stats.commits++;
	else {
		loop->stats.failed_commits++;
		loop_tell(loop, "inbox_not_committed", &err);
		change_all(loop);
	}
	fault_point("inbox_committed");
}

void loop_commit(struct loop *loop, bool wait)
{
	struct subscription_place *places =
	    xcalloc((size_t)loop->partition_count + 1, sizeof *places);
	int count = 0;
	struct err err;

	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		/* an unchanged commit would only cost a request */
		if (!assigned->changed || !inbox_partition_commits(assigned))
			continue;
		/* the others commit: they have stores of their own */
		if (!inbox_partition_checkpoint(assigned, loop->settings, &err)) {
			loop_trouble(loop, assigned->store, &err);
			continue;
		}
		assigned->changed = false;
		places[count++] = (struct subscription_place){
		    assigned->topic, assigned->partition, assigned->offsets.done, assigned->text};
	}
	if (count)
		send_commit(loop, places, count, wait);
	free(places);
}

/* Commits the same offsets once more, so that the coordinator confirms that the partitions are
 * still ours. */
void loop_ask_coordinator(struct loop *loop)
{
	struct err err;

	if (!subscription_is_to_ask(loop->subscription))
		return;

	for (int i = 0; i < loop->partition_count; i++) {
		const struct inbox_partition *assigned = loop->partitions[i];
		const struct subscription_place place = {
		    assigned->topic, assigned->partition, assigned->committed, assigned->text};
		if (!inbox_partition_commits(assigned))
			continue;
		if (!subscription_commit(loop->subscription, &place, 1, false, &err))
			loop_tell(loop, "inbox_not_committed", &err);
		return;
	}
}

void loop_on_not_committed(void *context, const struct err *err)
{
	struct loop *loop = context;
	loop->stats.failed_commits++;
	loop_tell(loop, "inbox_not_committed", err);
	change_all(loop);
}

/* --- figures -------------------------------------------------------------------------------- */

static int64_t oldest_item_age(const struct loop *loop)
{
	int64_t oldest = INT64_MAX;
	for (const struct item *item = key_queues_first(&loop->key_queues); item;
	     item = key_queues_after(&loop->key_queues, item))
		oldest = item->arrived_ms < oldest ? item->arrived_ms : oldest;
	return oldest == INT64_MAX ? 0 : clock_ms() - oldest;
}

static void note_figures(struct loop *loop)
{
	struct outbox_inbox_stats *stats = &loop->stats;

	stats->partitions = loop->partition_count + loop->late_count;
	stats->blocked = 0;
	stats->filter_hits = stats->false_hits = 0;
	stats->dedup_memory_bytes = stats->dedup_disk_bytes = 0;
	stats->observed_rate = 0;
	stats->sub_slices = stats->dedup_alarms = 0;
	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		stats->blocked +=
		    assigned->stops & STOP_BLOCKED || assigned->state == ASSIGNED_UNSET;
		loop_note_store(loop, &assigned->own, assigned);
	}
	loop_note_store(loop, &loop->common, NULL);
	stats->oldest_ms = oldest_item_age(loop);
}

void loop_show_figures(struct loop *loop)
{
	struct outbox_inbox_stats *stats = &loop->stats;
	stats->messages = (uint64_t)loop->items;
	stats->bytes = (uint64_t)loop->bytes;
	stats->in_progress = (uint64_t)worker_pool_in_progress(loop->workers);
	pthread_mutex_lock(&loop->mutex);
	stats->paused = loop->paused_count > 0;
	loop->shown = *stats;
	pthread_mutex_unlock(&loop->mutex);
}

/* --- in their time -------------------------------------------------------------------------- */

/* Then a killed process repeats the effects of this short time only. */
void loop_flush_in_time(struct loop *loop)
{
	struct err err;
	if (loop->now_ms < loop->flush_at)
		return;
	loop->flush_at = loop->now_ms + FLUSH_MS;
	for (int i = 0; i < loop->partition_count; i++)
		if (!loop_is_in_trouble(loop->partitions[i]) &&
		    !inbox_partition_flush(loop->partitions[i], &err))
			loop_trouble(loop, loop->partitions[i]->store, &err);
}

void loop_commit_in_time(struct loop *loop)
{
	int64_t begin = clock_ms();
	if (begin < loop->commit_at)
		return;
	loop_commit(loop, false);
	note_figures(loop);
	int64_t end = clock_ms(), took = end - begin;
	int64_t every = loop->settings->given.commit_every_ms;
	loop->commit_at = end + (every > COMMIT_PACE * took ? every : COMMIT_PACE * took);
}
