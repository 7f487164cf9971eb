/*
 * Makes finished messages durable and commits them; keeps the figures. Begin at loop_commit: it
 * prepares a commit for each partition that has changed, and sends it. With settings.report a
 * prepared commit waits until the reporter has reported its messages; loop_commit_in_time looks at
 * that in each turn, and no other commit is prepared meanwhile.
 */
#include "loop_private.h"

#include <stdlib.h>
#include "clock.h"
#include "fault.h"
#include "hex.h"
#include "reporter.h"
#include "subscription.h"
#include "text.h"
#include "worker_pool.h"

enum {
	FLUSH_MS = 10,            /* between two writes of the stores' logs */
	COMMIT_PACE = 5,          /* least time between commits, in durations of the last one */
	REPORT_EARLY = 20000,     /* a commit comes before its time with so many ids to report */
	UNREPORTED_MOST = 100000, /* ids in memory; 16 bytes each */
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

/* The ids of the partition's handled messages are reported before the prepared commit is sent. */
static void report_handled(struct loop *loop, struct inbox_partition *assigned)
{
	struct text *handled = &assigned->handled;
	if (!loop->reporter)
		return;
	loop->report_mark =
	    reporter_add(loop->reporter, handled->data, handled->length / UUID_BYTES);
	text_clear(handled);
}

static void prepare_commits(struct loop *loop)
{
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
		report_handled(loop, assigned);
	}
}

static bool has_prepared(const struct loop *loop)
{
	for (int i = 0; i < loop->partition_count; i++)
		if (loop->partitions[i]->prepared)
			return true;
	return false;
}

static void send_prepared(struct loop *loop, bool wait)
{
	struct subscription_place *places =
	    xcalloc((size_t)loop->partition_count + 1, sizeof *places);
	int count = 0;
	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		if (assigned->prepared && inbox_partition_commits(assigned))
			places[count++] = inbox_partition_take_commit(assigned);
	}
	if (count)
		send_commit(loop, places, count, wait);
	free(places);
}

/* --- reports -------------------------------------------------------------------------------- */

void loop_note_handled(struct loop *loop, const struct item *item)
{
	const struct outbox_rules_header *id;
	unsigned char uuid[UUID_BYTES];
	if (!loop->reporter)
		return;
	id = item_header(item, "outbox-id");
	if (id && uuid_read(id->value, id->length, uuid))
		text_append(&item->assigned->handled, (const char *)uuid, sizeof uuid);
}

/* Without those that the reporter has. */
static size_t count_handled(const struct loop *loop)
{
	size_t bytes = 0;
	for (int i = 0; i < loop->partition_count; i++)
		bytes += loop->partitions[i]->handled.length;
	return bytes / UUID_BYTES;
}

bool loop_is_unreported(const struct loop *loop)
{
	return loop->reporter && count_handled(loop) >= UNREPORTED_MOST;
}

static bool are_reported(struct loop *loop)
{
	return !loop->reporter || reporter_reported(loop->reporter) >= loop->report_mark;
}

static void tell_of_reports(struct loop *loop)
{
	struct err err;
	if (!loop->reporter || !reporter_failed(loop->reporter, &err))
		return;
	err_prefix(&err, "handled messages cannot be reported as done, and their offsets are not "
			 "committed before that");
	loop_tell(loop, "inbox_reports_wait", &err);
}

/* Sends the commits whose reports have succeeded since they were prepared. */
static void send_reported(struct loop *loop)
{
	if (!loop->reporter)
		return;
	tell_of_reports(loop);
	if (has_prepared(loop) && are_reported(loop))
		send_prepared(loop, false);
	loop->stats.reported = reporter_reported(loop->reporter);
	loop->stats.unreported = count_handled(loop) + loop->report_mark - loop->stats.reported;
}

void loop_commit(struct loop *loop, bool wait)
{
	/* The next commit has ids of its own, and would only delay the one that waits for its
	 * reports. */
	if (!wait && !are_reported(loop))
		return;
	prepare_commits(loop);

	if (wait && loop->reporter)
		(void)reporter_wait(
		    loop->reporter, loop->report_mark, clock_ms() + loop->settings->given.drain_ms);
	tell_of_reports(loop);

	/* Otherwise the offsets stay uncommitted: their messages come again as copies, and are
	 * reported then. */
	if (are_reported(loop))
		send_prepared(loop, wait);
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
	stats->paused = loop->pauses;
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
	send_reported(loop);
	bool early = loop->reporter && count_handled(loop) >= REPORT_EARLY && are_reported(loop);
	if (begin < loop->commit_at && !early)
		return;
	loop_commit(loop, false);
	note_figures(loop);
	int64_t end = clock_ms(), took = end - begin;
	int64_t every = loop->settings->given.commit_every_ms;
	loop->commit_at = end + (every > COMMIT_PACE * took ? every : COMMIT_PACE * took);
}
