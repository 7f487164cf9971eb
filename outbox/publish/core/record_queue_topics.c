/*
 * Destinations: a topic's state follows from the log, the broker and the records. Memory holds only
 * topics in use: those that are open in the log, and those with records. At the first record of any
 * other topic the owner reads the topic from the log (LOG_WANTED), and its records wait for the
 * answer.
 *
 * A committed log row, which carries the partition count, opens a topic before the first record is
 * sent to it. A changed count takes effect with a new epoch once no record is in flight: until then
 * no record goes out. A log row closes a topic that was not used for a while, once all of its
 * records are covered, and the topic is forgotten. If the broker does not have the topic for as
 * long, it is removed from the log.
 *
 * Read set_topic_state and record_queue_topic_settle first; the sections follow the life of a
 * topic.
 */
#include <stdlib.h>
#include <string.h>

#include "record_queue_private.h"

enum {
	PARTITIONS_MAX = 1 << 20, /* maximum in a log row; Kafka's own limit is far lower */
	LOAD_NAMES = 200,
	VISITS_A_TURN = 64,
	VISITS = 4, /* visits of an idle topic until it is closed */
};

/* --- the table ------------------------------------------------------------------------------ */

static struct topic *known_topic(struct record_queue *queue, const char *name, size_t length)
{
	struct topic *topic;
	if (queue->last_topic && strlen(queue->last_topic->name) == length &&
	    memcmp(queue->last_topic->name, name, length) == 0)
		return queue->last_topic;
	HASH_FIND(hh, queue->topics, name, length, topic);
	return topic;
}

struct topic *record_queue_topic_find(struct record_queue *queue, const char *name, size_t length)
{
	struct topic *topic = known_topic(queue, name, length);
	if (!topic) {
		topic = xcalloc(1, sizeof *topic);
		topic->name = xmalloc(length + 1);
		memcpy(topic->name, name, length); /* the hash compares `length` bytes */
		topic->name[length] = '\0';

		if (queue->parking.policy)
			topic->policy = queue->parking.policy(queue->parking.context, topic->name);
		if (queue->parking.refused_topic)
			topic->refusal_reason =
			    queue->parking.refused_topic(queue->parking.context, topic->name);
		/* A message of another program must not hold back the look-back's of its key. */
		if (topic->refusal_reason)
			topic->policy = STREAM_PASS;
		if (queue->paused)
			record_queue_pause_new_topic(queue, topic);
		HASH_ADD_KEYPTR(hh, queue->topics, topic->name, length, topic);
	}
	queue->last_topic = topic;
	return topic;
}

struct partition_queue *record_queue_partition(
    struct record_queue *queue, const char *name, int32_t partition)
{
	struct topic *topic = known_topic(queue, name, strlen(name));
	return topic && partition >= 0 && partition < topic->partition_queue_count
		   ? topic->partition_queues[partition]
		   : NULL;
}

static void make_partition_queues(struct record_queue *queue, struct topic *topic, int32_t count)
{
	int32_t before = topic->partition_queue_count;
	if (count <= before)
		return;

	topic->partition_queues =
	    xrealloc(topic->partition_queues, (size_t)count * sizeof *topic->partition_queues);
	topic->partition_queue_count = count;
	for (int32_t p = before; p < count; p++) {
		topic->partition_queues[p] = xcalloc(1, sizeof **topic->partition_queues);
		*topic->partition_queues[p] = (struct partition_queue){.topic = topic,
		    .number = p,
		    .fresh = {true, true},
		    .offset = OFFSET_NONE,
		    .logging_offset = OFFSET_NONE,
		    .logged_offset = OFFSET_NONE,
		    .known_offset = OFFSET_NONE,
		    .state = PARTITION_OPEN,
		    .first_tail = true};
	}
	record_queue_tails_begin(queue, topic, before);
}

/* Keeps the state of the partitions that existed before. */
void record_queue_topic_count(struct record_queue *queue, struct topic *topic, int32_t count)
{
	topic->count = count;
	make_partition_queues(queue, topic, count);
	/* No log row mentions partitions beyond the count: with another count they begin again. */
	record_queue_tails_begin(queue, topic, count);
	for (int32_t p = 0; p < count; p++) {
		record_queue_tail_want(queue, topic->partition_queues[p]);
		record_queue_partition_changes(queue, topic->partition_queues[p]);
	}
}

/* --- states --------------------------------------------------------------------------------- */

static void set_topic_state(struct record_queue *queue, struct topic *topic, enum topic_state state)
{
	bool was_away = topic->state == TOPIC_ASKED;
	queue->news += (state == TOPIC_NEW) - (topic->state == TOPIC_NEW);
	queue->changes += (state == TOPIC_CHANGED) - (topic->state == TOPIC_CHANGED);
	topic->state = state;

	if (was_away && state != TOPIC_ASKED) {
		topic->wait.since = 0;
		TOPIC_UNLIST(queue, topic, waiting);
		record_queue_tails_begin(queue, topic, 0);
	}
	if (state == TOPIC_NEW || state == TOPIC_CHANGED)
		TOPIC_LIST(queue, topic, changed);
	if (TOPIC_IS_LISTED(topic, round) && !topic->checks && state != TOPIC_READY &&
	    state != TOPIC_CLOSING) {
		queue->unready_count += !TOPIC_IS_LISTED(topic, unready);
		TOPIC_LIST(queue, topic, unready);
	} else {
		queue->unready_count -= TOPIC_IS_LISTED(topic, unready);
		TOPIC_UNLIST(queue, topic, unready);
	}

	if (state == TOPIC_READY) {
		record_queue_topic_recovers(queue, topic);
		record_queue_release_held(queue, topic);
	}
}

void record_queue_topic_settle(struct record_queue *queue, struct topic *topic)
{
	if (topic->reported_count == 0 || topic->log != LOG_LOADED)
		set_topic_state(queue, topic, TOPIC_ASKED);
	else if (topic->count && topic->count != topic->reported_count)
		set_topic_state(queue, topic, TOPIC_CHANGED);
	else if (!topic->open)
		set_topic_state(queue, topic, TOPIC_NEW);
	else
		set_topic_state(queue, topic, TOPIC_READY);
}

void record_queue_topic_waits(struct record_queue *queue, struct topic *topic)
{
	if (topic->state == TOPIC_ASKED)
		TOPIC_LIST(queue, topic, waiting);
}

static int64_t visit_interval(const struct record_queue *queue)
{
	int64_t idle = queue->idle_ms / VISITS;
	return idle && idle < queue->move_ms ? idle : queue->move_ms;
}

/* From now on the topic is looked up at the broker. */
static void begin_topic_rounds(struct record_queue *queue, struct topic *topic)
{
	if (TOPIC_IS_LISTED(topic, round))
		return;
	queue->round_count++;
	TOPIC_LIST(queue, topic, round);
	topic->used_at = topic->moved_at = queue->now;
	topic->visit_at = queue->now + visit_interval(queue);
	TOPIC_LIST(queue, topic, visits);
}

void record_queue_topic_use(struct record_queue *queue, struct topic *topic)
{
	topic->used = true;
	if (topic->log != LOG_UNASKED)
		return;
	topic->log = LOG_WANTED;
	topic->checks = false;
	TOPIC_LIST(queue, topic, unloaded);
	begin_topic_rounds(queue, topic);
	record_queue_topic_settle(queue, topic);
}

/* --- forgetting ----------------------------------------------------------------------------- */

/* Forgets the topic's destination, so that it must be read from the log again. */
static void unload_topic(struct record_queue *queue, struct topic *topic)
{
	record_queue_denial_forget(queue, topic);
	for (int32_t p = 0; p < topic->partition_queue_count; p++) {
		record_queue_tail_close(queue, topic->partition_queues[p]);
		free(topic->partition_queues[p]);
	}
	free(topic->partition_queues);

	topic->partition_queues = NULL;
	topic->changed_first = topic->changed_last = NULL;
	topic->partition_queue_count = topic->count = topic->logging = 0;
	topic->log = LOG_UNASKED;
	topic->open = topic->closes = topic->ends_asked = false;
	TOPIC_UNLIST(queue, topic, unloaded);
	record_queue_topic_settle(queue, topic);
	TOPIC_UNLIST(queue, topic, changed);
}

static void leave_topic_lists(struct record_queue *queue, struct topic *topic)
{
	queue->round_count -= TOPIC_IS_LISTED(topic, round);
	queue->unready_count -= TOPIC_IS_LISTED(topic, unready);
	TOPIC_UNLIST(queue, topic, round);
	TOPIC_UNLIST(queue, topic, unready);
	TOPIC_UNLIST(queue, topic, visits);
	TOPIC_UNLIST(queue, topic, waiting);
}

static void forget_topic(struct record_queue *queue, struct topic *topic)
{
	leave_topic_lists(queue, topic);
	unload_topic(queue, topic);
	leave_topic_lists(queue, topic);
	if (queue->last_topic == topic)
		queue->last_topic = NULL;
	HASH_DEL(queue->topics, topic);
	free(topic->refusal_reason);
	free(topic->name);
	free(topic);
}

void record_queue_topic_drop(struct record_queue *queue, struct topic *topic)
{
	struct closed_topic *closed;
	bool used = topic->uses || topic->held.head;
	if (used) {
		unload_topic(queue, topic);
		record_queue_topic_use(queue, topic);
		return;
	}
	closed = xcalloc(1, sizeof *closed + strlen(topic->name) + 1);
	memcpy(closed->name, topic->name, strlen(topic->name));
	LL_PREPEND(queue->closed, closed);
	forget_topic(queue, topic);
}

struct closed_topic *record_queue_closed_topic(struct record_queue *queue)
{
	struct closed_topic *closed = queue->closed;
	if (closed)
		LL_DELETE(queue->closed, closed);
	return closed;
}

void record_queue_topics_forget(struct record_queue *queue)
{
	struct topic *topic, *next;
	struct closed_topic *closed;
	record_queue_rows_forget(queue);
	queue->changing = queue->recreated = false;
	HASH_ITER(hh, queue->topics, topic, next)
	{
		forget_topic(queue, topic);
	}
	while ((closed = record_queue_closed_topic(queue)))
		free(closed);
}

void record_queue_topics_destroy(struct record_queue *queue)
{
	record_queue_topics_forget(queue);
}

/* --- answers of the log --------------------------------------------------------------------- */

void record_queue_taken(struct record_queue *queue, int64_t now, int64_t n)
{
	queue->now = now;
	queue->taken_n = queue->folded_n = n;
	queue->unfolded = queue->unfolded_cost = 0;
}

static void load_offsets(
    struct record_queue *queue, struct topic *topic, const struct stream_destination *destination)
{
	int32_t count = destination->count < PARTITIONS_MAX ? destination->count : PARTITIONS_MAX;
	make_partition_queues(queue, topic, count);
	for (int32_t p = 0; p < count; p++) {
		struct partition_queue *partition = topic->partition_queues[p];
		int64_t offset = destination->offsets[p];
		if (offset < -1)
			continue;
		partition->offset = partition->logging_offset = partition->logged_offset =
		    partition->known_offset = offset;

		/* A later row than the take-over: this owner closed the topic, and so knows all
		   records that other owners wrote before. */
		partition->first_tail = destination->n <= queue->taken_n;
		partition->awaited = queue->resumes && partition->first_tail && destination->open &&
				     p < destination->partitions;
		topic->awaited_count += partition->awaited;
		queue->awaited_count += partition->awaited && !topic->missing;
	}
}

static void set_topic_loaded(struct record_queue *queue, struct topic *topic)
{
	topic->log = LOG_LOADED;
	TOPIC_UNLIST(queue, topic, unloaded);
	begin_topic_rounds(queue, topic);
	record_queue_topic_settle(queue, topic);
}

void record_queue_destination(
    struct record_queue *queue, const struct stream_destination *destination)
{
	const char *name = destination->topic;
	struct topic *topic = record_queue_topic_find(queue, name, strlen(name));
	if (topic->log == LOG_LOADED)
		return;
	topic->open = destination->open;
	load_offsets(queue, topic, destination);
	if (destination->partitions > 0 && destination->partitions <= PARTITIONS_MAX)
		record_queue_topic_count(queue, topic, destination->partitions);
	set_topic_loaded(queue, topic);
}

void record_queue_check_topic(struct record_queue *queue, const char *name)
{
	struct topic *topic = record_queue_topic_find(queue, name, strlen(name));
	if (TOPIC_IS_LISTED(topic, round) || topic->log != LOG_UNASKED)
		return;
	topic->checks = true;
	begin_topic_rounds(queue, topic);
}

bool record_queue_wants_destinations(const struct record_queue *queue)
{
	return queue->unloaded != NULL;
}

void record_queue_load(struct record_queue *queue, struct pg_array *ret_names)
{
	int count = 0;
	struct topic *topic;
	DL_FOREACH2(queue->unloaded, topic, in_unloaded.next)
	{
		if (count++ == LOAD_NAMES)
			return;
		topic->log = LOG_LOADING;
		pg_array_add_text(ret_names, topic->name);
	}
}

/* The table has no row of the topics that got no answer. */
void record_queue_load_ended(struct record_queue *queue, bool answered)
{
	struct topic *topic, *next;
	DL_FOREACH_SAFE2(queue->unloaded, topic, next, in_unloaded.next)
	{
		if (topic->log != LOG_LOADING)
			return;
		if (answered)
			set_topic_loaded(queue, topic);
		else
			topic->log = LOG_WANTED;
	}
}

/* --- answers of the broker ------------------------------------------------------------------ */

void record_queue_topic(struct record_queue *queue, const char *name, int32_t partitions)
{
	struct topic *topic = record_queue_topic_find(queue, name, strlen(name));
	bool missing = partitions == 0;

	if (missing && !topic->missing)
		topic->missing_since = queue->now;
	topic->missing_seen = queue->now;
	if (topic->reported_count == partitions && (topic->missing || partitions))
		return;

	queue->awaited_count += (topic->missing - missing) * topic->awaited_count;
	topic->reported_count = partitions;
	topic->missing = missing;
	if (topic->state != TOPIC_CLOSING)
		record_queue_topic_settle(queue, topic);
}

static const char *answer_topic(struct topic *topic, bool *ret_ready, int32_t *ret_partitions)
{
	*ret_ready = topic->state == TOPIC_READY;
	*ret_partitions = topic->count;
	return topic->name;
}

const char *record_queue_next_topic(
    struct record_queue *queue, bool unready, bool *ret_ready, int32_t *ret_partitions)
{
	struct topic *topic = unready ? queue->unready : queue->round;
	if (!topic)
		return NULL;
	if (unready) {
		TOPIC_UNLIST(queue, topic, unready);
		TOPIC_LIST(queue, topic, unready);
	} else {
		TOPIC_UNLIST(queue, topic, round);
		TOPIC_LIST(queue, topic, round);
	}
	return answer_topic(topic, ret_ready, ret_partitions);
}

int record_queue_topics(const struct record_queue *queue, bool unready)
{
	return unready ? queue->unready_count : queue->round_count;
}

const char *record_queue_missing_topic(const struct record_queue *queue)
{
	const struct topic *topic;
	DL_FOREACH2(queue->waiting, topic, in_waiting.next)
	{
		if (topic->held.head || topic->wait.stall != STALL_NONE)
			return topic->name;
	}
	return NULL;
}

bool record_queue_has_new_topics(const struct record_queue *queue)
{
	return queue->news > 0;
}

bool record_queue_has_changed_topics(const struct record_queue *queue)
{
	return queue->changes > 0;
}

/* --- unused topics -------------------------------------------------------------------------- */

/* One answer may be wrong, and the tails of an owner that died may not be read yet. */
static bool is_topic_gone(const struct record_queue *queue, const struct topic *topic)
{
	return topic->missing && topic->missing_seen - topic->missing_since >= queue->idle_ms;
}

/* All of the topic's records are covered, and nothing waits for it. */
static bool is_topic_settled(const struct record_queue *queue, const struct topic *topic)
{
	bool away = is_topic_gone(queue, topic) || !topic->open;
	/* logging: the row that is being written names it, also if nothing uses it since */
	if (topic->uses || topic->used || topic->logging || topic->held.head ||
	    topic->wait.stall != STALL_NONE || topic->log == LOG_WANTED ||
	    topic->log == LOG_LOADING)
		return false;
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		if (!record_queue_tail_rests(topic->partition_queues[p], away))
			return false;
	return away || topic->state == TOPIC_READY;
}

static void move_offsets(struct record_queue *queue, struct topic *topic, bool all)
{
	topic->moved_at = queue->now;
	for (int32_t p = 0; p < topic->count && topic->state != TOPIC_ASKED; p++) {
		struct partition_queue *partition = topic->partition_queues[p];
		if (!partition->used || all)
			record_queue_tail_move(queue, partition);
		partition->used = false;
	}
}

/* True: the topic is forgotten. */
static bool close_topic(struct record_queue *queue, struct topic *topic)
{
	bool logged = topic->open || (topic->missing && (topic->count || topic->checks));
	if (!is_topic_settled(queue, topic)) {
		topic->ends_asked = false;
		return false;
	}
	if (!logged) {
		record_queue_topic_drop(queue, topic);
		return true;
	}

	/* Other programs may have written to it: the next owner need not read their records. */
	if (!topic->ends_asked && !topic->missing) {
		topic->ends_asked = true;
		move_offsets(queue, topic, true);
	} else {
		topic->closes = true;
		TOPIC_LIST(queue, topic, changed);
	}
	return false;
}

bool record_queue_topic_closes(const struct record_queue *queue, struct topic *topic)
{
	topic->closes &= is_topic_settled(queue, topic);
	return topic->closes;
}

static bool visit_topic(struct record_queue *queue, struct topic *topic)
{
	if (topic->used) {
		topic->used_at = queue->now;
		topic->ends_asked = false;
	}
	topic->used = false;
	if (queue->now - topic->moved_at >= queue->move_ms)
		move_offsets(queue, topic, false);
	return queue->idle_ms && queue->now - topic->used_at >= queue->idle_ms &&
	       topic->state != TOPIC_CLOSING && close_topic(queue, topic);
}

void record_queue_visit_topics(struct record_queue *queue, int64_t now)
{
	struct topic *topic;
	queue->now = now;
	for (int i = 0; i < VISITS_A_TURN; i++) {
		topic = queue->visits;
		if (!topic || topic->visit_at > now)
			return;
		if (visit_topic(queue, topic))
			continue;

		TOPIC_UNLIST(queue, topic, visits);
		topic->visit_at = now + visit_interval(queue);
		TOPIC_LIST(queue, topic, visits);
	}
}
