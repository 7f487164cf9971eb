/*
 * Partitions come and go. A partition is opened from its commit, put off while its leader is away,
 * drained and released. After a failure all partitions are opened again. The last part handles
 * offsets and topics that do not exist.
 */
#include "loop_private.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "claimer.h"
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "outbox_error.h"
#include "redelivery.h"
#include "subscription.h"
#include "text.h"
#include "worker_pool.h"

enum {
	GIVEN_BACK = 256,  /* ids in one request */
	MISSING_MS = 2000, /* after a topic was deleted: pause before it is requested again */
	/*
	 * Minimum time between checks of partitions whose leader is away, as a multiple of the
	 * duration of the last check.
	 */
	LATE_PACE = 4,
};

/* --- rebalances ----------------------------------------------------------------------------- */

static void free_late(struct late *late)
{
	free(late->topic);
	free(late->text);
}

static void close_partitions(struct loop *loop)
{
	for (int i = 0; i < loop->partition_count; i++)
		inbox_partition_close(loop->partitions[i]);
	free(loop->partitions);
	loop->partitions = NULL;
	loop->recent = NULL;
	loop->partition_count = 0;

	for (int i = 0; i < loop->late_count; i++)
		free_late(&loop->late[i]);
	free(loop->late);
	loop->late = NULL;
	loop->late_count = 0;

	outbox_dedup_close(loop->common.dedup);
	loop->common = (struct inbox_partition_store){0};
	outbox_rules_close(loop->common_rules.open);
	loop->common_rules = (struct inbox_partition_rules){0};
}

static bool open_common_rules(struct loop *loop, struct err *err)
{
	const struct inbox_settings *settings = loop->settings;

	return settings->rule_count == 0 || !settings->given.rules_store ||
	       inbox_partition_open_rules(settings, NULL, &loop->common_rules, err);
}

static bool open_common_store(struct loop *loop, struct err *err)
{
	const struct inbox_settings *settings = loop->settings;
	struct outbox_error error;
	bool wanted = settings->given.dedup && !settings->given.take && !settings->local &&
		      !settings->by_position;
	if (!wanted)
		return true;
	loop->common.dedup = outbox_dedup_open(settings->given.dedup, &error);
	return loop->common.dedup || outbox_error_take(&error, err);
}

static struct inbox_partition *open_one(
    struct loop *loop, struct subscription_place *place, struct err *err)
{
	const struct inbox_partition_common common = {loop->common.dedup ? &loop->common : NULL,
	    loop->common_rules.open ? &loop->common_rules : NULL};
	struct inbox_partition *assigned =
	    inbox_partition_open(loop->settings, common, loop->subscription, place, err);
	if (assigned)
		loop->partitions[loop->partition_count++] = assigned;
	return assigned;
}

/* Treated like a partition whose leader is away: it is read later, and others meanwhile. */
static void put_off_partition(struct loop *loop, struct subscription_place *place)
{
	struct late *late = &loop->late[loop->late_count++];
	late->topic = xstrdup(place->topic);
	late->text = xstrdup(place->text);
	late->place =
	    (struct subscription_place){late->topic, place->partition, place->offset, late->text};
	place->offset = SUBSCRIPTION_NONE;
}

static bool open_partitions(
    struct loop *loop, struct subscription_place *places, int count, struct err *err)
{
	loop->partitions = xcalloc((size_t)count + 1, sizeof *loop->partitions);
	loop->late = xcalloc((size_t)count + 1, sizeof *loop->late);
	loop->late_at = 0;
	if (!open_common_store(loop, err) || !open_common_rules(loop, err))
		return false;

	int away = -1; /* the first that is away; the later ones are tried before it */
	for (int i = 0; i < count; i++) {
		struct subscription_place place = places[i];
		if (away >= 0)
			put_off_partition(loop, &places[i]);
		else if (open_one(loop, &place, err))
			places[i].offset = place.offset;
		else if (err->kind == ERR_CONFIG || err->kind == ERR_FATAL)
			return false;
		else
			away = i;
	}
	if (away < 0)
		return true;

	loop_tell(loop, "inbox_waits", err);
	put_off_partition(loop, &places[away]);
	return true;
}

/* When the late partitions are tried again: most of the time is left for the others. */
static void pace_late(struct loop *loop, int64_t began_ms)
{
	int64_t now = clock_ms(), took = LATE_PACE * (now - began_ms);
	loop->late_at = now + (took > AGAIN_MS ? took : AGAIN_MS);
}

/* Tries the first of the late partitions; if it cannot be opened, it moves to the end. */
static bool open_late(struct loop *loop, struct err *err)
{
	struct late late = loop->late[0];
	struct subscription_place place = late.place;
	bool open = open_one(loop, &place, err);
	loop->late_count--;
	memmove(loop->late, loop->late + 1, (size_t)loop->late_count * sizeof *loop->late);
	if (open) {
		free_late(&late);
		loop_look_at_pauses(loop);
	} else
		loop->late[loop->late_count++] = late;
	return open;
}

/* A local store keeps its ids for each partition, so that `ids` plans only a part of the memory. */
static void log_dedup_memory(const struct loop *loop, int partitions)
{
	uint64_t each = loop->settings->local ? loop->settings->spec.planned_bytes : 0;

	if (each > 0 && partitions > 0)
		log_info("inbox_dedup_memory", {"group", LOG_TEXT(loop->settings->given.group)},
		    {"partitions", LOG_INT(partitions)}, {"partition_bytes", LOG_INT(each)},
		    {"total_bytes", LOG_INT(each * (uint64_t)partitions)});
}

bool loop_on_assigned(void *context, struct subscription_place *places, int count, struct err *err)
{
	struct loop *loop = context;

	close_partitions(loop);
	/* All or none: a part of the assignment would leave the rest unread. */
	if (!open_partitions(loop, places, count, err)) {
		close_partitions(loop);
		return false;
	}
	loop->stats.rebalances++;
	loop_look_at_pauses(loop);
	log_info("inbox_assigned", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"partitions", LOG_INT(count)});
	log_dedup_memory(loop, count);
	return true;
}

/* Waits for the messages in progress, and records those that ended; starts no message. */
static void drain_handlers(struct loop *loop, int64_t until_ms)
{
	struct pollfd fd = {loop->wake_fd, POLLIN, 0};

	for (;;) {
		uint64_t count;
		bool in_progress =
		    worker_pool_in_progress(loop->workers) > 0; /* otherwise all ends were taken */
		loop_take_ends(loop);
		loop_take_redelivered(loop);
		loop_log_done(loop);
		if (clock_ms() >= until_ms ||
		    (!in_progress && redelivery_count(loop->redelivery) == 0 &&
			!loop_is_logging(loop)))
			return;
		struct item_list ended = worker_pool_ended(loop->workers, true);
		for (struct item *item; (item = item_list_take(&ended));)
			loop_take_end(loop, item);
		poll(&fd, 1, 20);
		(void)!read(loop->wake_fd, &count, sizeof count);
	}
}

static bool release_ids(
    struct loop *loop, const struct outbox_dedup_id *ids, size_t count, struct err *err)
{
	struct outbox_error error;
	return outbox_dedup_release(loop->common.dedup, ids, count, &error) ||
	       outbox_error_take(&error, err);
}

/* Messages that no handler has begun. */
static bool give_back_queued(struct loop *loop, struct err *err)
{
	struct outbox_dedup_id ids[GIVEN_BACK];
	size_t count = 0;

	for (struct item *first = key_queues_first(&loop->key_queues); first;
	     first = key_queues_after(&loop->key_queues, first))
		for (struct item *item = first; item; item = item->behind) {
			/* a running handler may have its effect already, and keeps its claim */
			if (!item->pending || item->out || item->state == ITEM_LOGGING)
				continue;
			ids[count++] = inbox_partition_id(item);
			if (count < GIVEN_BACK)
				continue;
			if (!release_ids(loop, ids, count, err))
				return false;
			count = 0;
		}
	return count == 0 || release_ids(loop, ids, count, err);
}

/*
 * In a store of several consumers an id stays pending for the next owner of the partition until its
 * lease ends. An id that cannot be given back waits for that end.
 */
static void give_back_ids(struct loop *loop)
{
	struct err err;
	if (loop->common.dedup && !give_back_queued(loop, &err))
		loop_tell(loop, "inbox_not_given_back", &err);
}

/* Frees all queued messages, except those of the worker pool and those that are to be logged. */
static void forget_queued(struct loop *loop)
{
	struct item *next, *behind;
	for (struct item *first = key_queues_clear(&loop->key_queues); first; first = next) {
		next = first->chain;
		for (struct item *item = first; item; item = behind) {
			behind = item->behind;
			if (!item->out && item->state != ITEM_LOGGING)
				item_destroy(item);
		}
	}
}

static void destroy_listed_items(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item_destroy(item);
}

static void take_back_ready(struct item_list *list)
{
	for (struct item *item; (item = item_list_take(list));)
		item->out = false;
}

/* After the worker pool, which gives messages back to the claimer. */
static void take_back_claiming(struct loop *loop)
{
	if (!loop->claimer)
		return;
	struct item_list items = claimer_withdraw(loop->claimer);
	take_back_ready(&items);
	take_back_ready(&loop->claiming);
}

static void abandon_in_progress(struct loop *loop)
{
	loop->stats.abandoned += (uint64_t)worker_pool_abandon(loop->workers);
}

void loop_forget(struct loop *loop)
{
	redelivery_drop(loop->redelivery);
	timers_finish(&loop->timers);
	give_back_ids(loop);
	forget_queued(loop);
	abandon_in_progress(loop);
	struct item_list ended = worker_pool_ended(loop->workers, false);
	destroy_listed_items(&ended);
	worker_pool_forget(loop->workers);
	close_partitions(loop);
	loop->items = loop->bytes = 0;
}

static void let_partitions_go(struct loop *loop, bool lost)
{
	struct item_list ready = worker_pool_withdraw(loop->workers);

	loop->closing = true;
	take_back_ready(&ready);
	take_back_ready(&loop->ready);
	take_back_claiming(loop);
	worker_pool_hold_until(loop->workers, 0);
	drain_handlers(loop, clock_ms() + (lost ? 0 : loop->settings->given.drain_ms));
	abandon_in_progress(loop);
	loop_take_ends(loop); /* no further ends come after that */
	loop_log_done(loop);
	if (!lost)
		loop_commit(loop, true);
	loop_forget(loop);
	loop->closing = false;
}

void loop_on_revoked(void *context, bool lost)
{
	struct loop *loop = context;
	log_info("inbox_revoked", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"partitions", LOG_INT(loop->partition_count)}, {"lost", LOG_INT(lost)});
	let_partitions_go(loop, lost);
}

void loop_begin_again(struct loop *loop)
{
	struct err err;
	if (!loop->again_at || clock_ms() < loop->again_at)
		return;
	loop->again_at = 0;
	let_partitions_go(loop, false);
	if (!subscription_again(loop->subscription, &err))
		loop_fail(loop, &err);
}

/* --- offsets and topics that are not there -------------------------------------------------- */

/* Records were deleted before they were read: a gap. */
static void skip_deleted(struct inbox_partition *assigned, int64_t to)
{
	assigned->read = to;
	if (!offsets_reaches(&assigned->offsets, to)) /* the record there waits until it is */
		return;
	offsets_skip(&assigned->offsets, to);
	assigned->changed = true;
}

/*
 * The topic was created again: commits the offset where reading of the new log begins, so that the
 * old commit is no longer valid. Only the mark of `sequence` is kept from its text.
 */
static bool commit_new_log(
    struct loop *loop, struct inbox_partition *assigned, int64_t at, struct err *err)
{
	char text[COMMIT_TEXT_SIZE];
	owned_text char *copy = xstrdup(assigned->text);
	const char *finished, *mark;
	struct offsets none;
	(void)commit_text_parse(copy, &finished, &mark);
	offsets_init(&none, at, "");
	commit_text_write(&none, mark, text);
	const struct subscription_place place = {assigned->topic, assigned->partition, at, text};
	inbox_partition_move(assigned, ASSIGNED_MISSING);
	loop->again_at = clock_ms();
	return subscription_commit(loop->subscription, &place, 1, true, err);
}

/* Moves the partition to the offset that the settings choose. */
static bool move_on(struct loop *loop, struct inbox_partition *assigned, struct err *err)
{
	int64_t low, high;
	if (!subscription_range(
		loop->subscription, assigned->topic, assigned->partition, &low, &high, err))
		return false;
	int64_t at = loop->settings->given.start == OUTBOX_INBOX_EARLIEST ? low : high;
	if (assigned->read >= low)
		return commit_new_log(loop, assigned, at, err);
	skip_deleted(assigned, at);
	inbox_partition_move(assigned, ASSIGNED_READING);
	return true;
}

/* Opens all assigned partitions again, each from its own offset. */
static bool begin_reading(struct loop *loop, struct err *err)
{
	struct subscription_place *places =
	    xcalloc((size_t)loop->partition_count + 1, sizeof *places);
	for (int i = 0; i < loop->partition_count; i++) {
		struct inbox_partition *assigned = loop->partitions[i];
		assigned->paused = false;
		places[i] = (struct subscription_place){
		    assigned->topic, assigned->partition, assigned->read, NULL};
	}
	bool begun = subscription_begin(loop->subscription, places, loop->partition_count, err);
	free(places);
	return begun;
}

void loop_on_out_of_range(void *context, const char *topic, int32_t partition)
{
	struct loop *loop = context;
	struct inbox_partition *assigned = loop_find_partition(loop, topic, partition);
	if (!assigned || assigned->state != ASSIGNED_READING)
		return;
	inbox_partition_log_gone(assigned, assigned->read);
	if (loop->settings->given.start == OUTBOX_INBOX_BLOCK)
		inbox_partition_stop_unset(assigned);
	else
		inbox_partition_move(assigned, ASSIGNED_SKIPPING);
}

void loop_see_to_late(struct loop *loop)
{
	struct err err;
	int64_t began_ms = clock_ms();
	bool well = true, moved = false;

	if (began_ms < loop->late_at || loop->again_at)
		return;

	for (int i = 0; well && i < loop->partition_count; i++)
		if (loop->partitions[i]->state == ASSIGNED_SKIPPING) {
			well = move_on(loop, loop->partitions[i], &err);
			moved |= well;
		}
	while (well && loop->late_count) {
		well = open_late(loop, &err);
		moved |= well;
	}
	if (!well) {
		loop_judge_reading(loop, false, &err);
		pace_late(loop, began_ms);
	}
	if (moved && !loop->again_at && !begin_reading(loop, &err))
		loop->again_at = clock_ms() + AGAIN_MS;
}

/* The topic was deleted: Kafka forgot its commits, and none of them may be written again. */
void loop_on_missing(void *context, const char *topic, int32_t partition)
{
	struct loop *loop = context;
	struct inbox_partition *assigned = loop_find_partition(loop, topic, partition);
	struct err err;

	err_set(&err, ERR_RETRY, "topic %s does not exist: make it, or leave it out", topic);
	if (!assigned)
		loop_tell(loop, "inbox_waits", &err);
	if (!assigned || !inbox_partition_commits(assigned))
		return;

	log_error("inbox_topic_missing", {"topic", LOG_TEXT(topic)},
	    {"partition", LOG_INT(partition)}, {"offset", LOG_INT(assigned->offsets.done)},
	    {"consequence",
		LOG_TEXT("handlers end what they have of it; when it is made anew, it is "
			 "read as the settings say for a group without an offset")});
	inbox_partition_move(assigned, ASSIGNED_MISSING);
	loop->again_at = clock_ms() + MISSING_MS;
}
