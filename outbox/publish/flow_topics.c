/*
 * Destinations: the states of topics by the log, the broker and the records. Memory holds only
 * topics in use: those that are open in the log, and those with records. The first record of any
 * other topic makes the owner ask the log (LOG_WANTED), and the topic's records wait for the
 * answer.
 *
 * A topic is opened by a committed log row, which carries its partition count, before the first
 * record flows to it; a changed count takes effect with a new epoch once nothing is under way:
 * until then no record goes out. A topic that is not used for a while is closed by a log row, once
 * nothing of it is uncovered, and forgotten; one that the broker does not have for so long leaves
 * the log.
 */
#include <stdlib.h>
#include <string.h>

#include "flow_private.h"

enum {
	PARTITIONS_MAX = 1 << 20, /* maximum in a log row; Kafka's own limit is far lower */
	LOAD_NAMES = 200,
	VISITS_A_TURN = 64,
	VISITS = 4, /* while a topic is idle, until it is closed */
};

/* --- the table ------------------------------------------------------------------------------ */

static struct topic *known_topic(struct flow *flow, const char *name, size_t length)
{
	struct topic *topic;
	if (flow->last_topic && strlen(flow->last_topic->name) == length &&
	    memcmp(flow->last_topic->name, name, length) == 0)
		return flow->last_topic;
	HASH_FIND(hh, flow->topics, name, length, topic);
	return topic;
}

struct topic *flow_topic_find(struct flow *flow, const char *name, size_t length)
{
	struct topic *topic = known_topic(flow, name, length);
	if (!topic) {
		topic = xcalloc(1, sizeof *topic);
		topic->name = xmalloc(length + 1);
		memcpy(topic->name, name, length); /* the hash compares so many bytes of it */
		topic->name[length] = '\0';
		if (flow->parking.policy)
			topic->policy = flow->parking.policy(flow->parking.context, topic->name);
		if (flow->parking.refused_topic)
			topic->refused =
			    flow->parking.refused_topic(flow->parking.context, topic->name);
		/* a strange message of a key must not hold back those of the look-back behind it */
		if (topic->refused)
			topic->policy = STREAM_PASS;
		HASH_ADD_KEYPTR(hh, flow->topics, topic->name, length, topic);
	}
	flow->last_topic = topic;
	return topic;
}

struct partition_queue *flow_partition(struct flow *flow, const char *name, int32_t partition)
{
	struct topic *topic = known_topic(flow, name, strlen(name));
	return topic && partition >= 0 && partition < topic->partition_queue_count
		   ? topic->partition_queues[partition]
		   : NULL;
}

static void make_partition_queues(struct flow *flow, struct topic *topic, int32_t count)
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
		    .fresh = true,
		    .offset = OFFSET_NONE,
		    .logging_offset = OFFSET_NONE,
		    .logged_offset = OFFSET_NONE,
		    .known = OFFSET_NONE,
		    .tail = TAIL_OPEN,
		    .first_tail = true};
	}
	flow_tails_begin(flow, topic, before);
}

/* What is known of the partitions that were there before stays. */
void flow_topic_count(struct flow *flow, struct topic *topic, int32_t count)
{
	topic->count = count;
	make_partition_queues(flow, topic, count);
	/* no row says anything of those beyond: they begin anew when there is another count */
	flow_tails_begin(flow, topic, count);
	for (int32_t p = 0; p < count; p++) {
		flow_tail_want(flow, topic->partition_queues[p]);
		flow_partition_changes(flow, topic->partition_queues[p]);
	}
}

/* --- states --------------------------------------------------------------------------------- */

static void topic_becomes(struct flow *flow, struct topic *topic, enum topic_state state)
{
	bool was_away = topic->state == TOPIC_ASKED;
	flow->news += (state == TOPIC_NEW) - (topic->state == TOPIC_NEW);
	flow->changes += (state == TOPIC_CHANGED) - (topic->state == TOPIC_CHANGED);
	topic->state = state;
	if (was_away && state != TOPIC_ASKED) {
		topic->wait.since = 0;
		TOPIC_UNLIST(flow, topic, waiting);
		flow_tails_begin(flow, topic, 0);
	}
	if (state == TOPIC_NEW || state == TOPIC_CHANGED)
		TOPIC_LIST(flow, topic, changed);
	if (topic->in_round.listed && !topic->checks && state != TOPIC_READY &&
	    state != TOPIC_CLOSING) {
		flow->unready_count += !topic->in_unready.listed;
		TOPIC_LIST(flow, topic, unready);
	} else {
		flow->unready_count -= topic->in_unready.listed;
		TOPIC_UNLIST(flow, topic, unready);
	}
	if (state == TOPIC_READY) {
		flow_topic_recovers(flow, topic);
		flow_release_held(flow, topic);
	}
}

void flow_topic_settle(struct flow *flow, struct topic *topic)
{
	if (topic->known == 0 || topic->log != LOG_LOADED)
		topic_becomes(flow, topic, TOPIC_ASKED);
	else if (topic->count && topic->count != topic->known)
		topic_becomes(flow, topic, TOPIC_CHANGED);
	else if (!topic->open)
		topic_becomes(flow, topic, TOPIC_NEW);
	else
		topic_becomes(flow, topic, TOPIC_READY);
}

void flow_topic_waits(struct flow *flow, struct topic *topic)
{
	if (topic->state == TOPIC_ASKED)
		TOPIC_LIST(flow, topic, waiting);
}

static int64_t visit_interval(const struct flow *flow)
{
	int64_t idle = flow->idle_ms / VISITS;
	return idle && idle < flow->move_ms ? idle : flow->move_ms;
}

/* From here on the broker is asked for it. */
static void topic_begins(struct flow *flow, struct topic *topic)
{
	if (topic->in_round.listed)
		return;
	flow->round_count++;
	TOPIC_LIST(flow, topic, round);
	topic->used_at = topic->moved_at = flow->now;
	topic->visit_at = flow->now + visit_interval(flow);
	TOPIC_LIST(flow, topic, visits);
}

void flow_topic_use(struct flow *flow, struct topic *topic)
{
	topic->used = true;
	if (topic->log != LOG_UNASKED)
		return;
	topic->log = LOG_WANTED;
	topic->checks = false;
	TOPIC_LIST(flow, topic, unloaded);
	topic_begins(flow, topic);
	flow_topic_settle(flow, topic);
}

/* --- what goes ------------------------------------------------------------------------------ */

/* Forgets the topic's destination, so that it is read from the log again. */
static void unload(struct flow *flow, struct topic *topic)
{
	flow_denial_forget(flow, topic);
	for (int32_t p = 0; p < topic->partition_queue_count; p++) {
		flow_tail_close(flow, topic->partition_queues[p]);
		free(topic->partition_queues[p]);
	}
	free(topic->partition_queues);
	topic->partition_queues = NULL;
	topic->changed = topic->changed_last = NULL;
	topic->partition_queue_count = topic->count = topic->logging = 0;
	topic->log = LOG_UNASKED;
	topic->open = topic->closes = topic->ends_asked = false;
	TOPIC_UNLIST(flow, topic, unloaded);
	flow_topic_settle(flow, topic);
	TOPIC_UNLIST(flow, topic, changed);
}

static void leave_lists(struct flow *flow, struct topic *topic)
{
	flow->round_count -= topic->in_round.listed;
	flow->unready_count -= topic->in_unready.listed;
	TOPIC_UNLIST(flow, topic, round);
	TOPIC_UNLIST(flow, topic, unready);
	TOPIC_UNLIST(flow, topic, visits);
	TOPIC_UNLIST(flow, topic, waiting);
}

static void forget_topic(struct flow *flow, struct topic *topic)
{
	leave_lists(flow, topic);
	unload(flow, topic);
	leave_lists(flow, topic);
	if (flow->last_topic == topic)
		flow->last_topic = NULL;
	HASH_DEL(flow->topics, topic);
	free(topic->refused);
	free(topic->name);
	free(topic);
}

void flow_topic_drop(struct flow *flow, struct topic *topic)
{
	struct closed_topic *closed;
	bool used = topic->uses || topic->held.head;
	if (used) {
		unload(flow, topic);
		flow_topic_use(flow, topic);
		return;
	}
	closed = xcalloc(1, sizeof *closed + strlen(topic->name) + 1);
	memcpy(closed->name, topic->name, strlen(topic->name));
	LL_PREPEND(flow->closed, closed);
	forget_topic(flow, topic);
}

struct closed_topic *flow_closed_topic(struct flow *flow)
{
	struct closed_topic *closed = flow->closed;
	if (closed)
		LL_DELETE(flow->closed, closed);
	return closed;
}

void flow_topics_forget(struct flow *flow)
{
	struct topic *topic, *next;
	struct closed_topic *closed;
	flow_rows_forget(flow);
	flow->changing = flow->recreated = false;
	HASH_ITER(hh, flow->topics, topic, next)
	{
		forget_topic(flow, topic);
	}
	while ((closed = flow_closed_topic(flow)))
		free(closed);
}

void flow_topics_destroy(struct flow *flow)
{
	flow_topics_forget(flow);
}

/* --- what the log says ---------------------------------------------------------------------- */

void flow_taken(struct flow *flow, int64_t now, int64_t n)
{
	flow->now = now;
	flow->taken_n = flow->folded_n = n;
	flow->unfolded = flow->unfolded_cost = 0;
}

static void load_offsets(
    struct flow *flow, struct topic *topic, const struct stream_destination *destination)
{
	int32_t count = destination->count < PARTITIONS_MAX ? destination->count : PARTITIONS_MAX;
	make_partition_queues(flow, topic, count);
	for (int32_t p = 0; p < count; p++) {
		struct partition_queue *partition = topic->partition_queues[p];
		int64_t offset = destination->offsets[p];
		if (offset < -1)
			continue;
		partition->offset = partition->logging_offset = partition->logged_offset =
		    partition->known = offset;
		/* this owner closed it, and so knows all records that other owners wrote before */
		partition->first_tail = destination->n <= flow->taken_n;
		partition->awaited = flow->resumes && partition->first_tail && destination->open &&
				     p < destination->partitions;
		topic->awaited += partition->awaited;
		flow->awaited += partition->awaited && !topic->missing;
	}
}

static void topic_loaded(struct flow *flow, struct topic *topic)
{
	topic->log = LOG_LOADED;
	TOPIC_UNLIST(flow, topic, unloaded);
	topic_begins(flow, topic);
	flow_topic_settle(flow, topic);
}

void flow_destination(struct flow *flow, const struct stream_destination *destination)
{
	const char *name = destination->topic;
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	if (topic->log == LOG_LOADED)
		return;
	topic->open = destination->open;
	load_offsets(flow, topic, destination);
	if (destination->partitions > 0 && destination->partitions <= PARTITIONS_MAX)
		flow_topic_count(flow, topic, destination->partitions);
	topic_loaded(flow, topic);
}

void flow_check_topic(struct flow *flow, const char *name)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	if (topic->in_round.listed || topic->log != LOG_UNASKED)
		return;
	topic->checks = true;
	topic_begins(flow, topic);
}

bool flow_wants_destinations(const struct flow *flow)
{
	return flow->unloaded != NULL;
}

void flow_load(struct flow *flow, struct pg_array *ret_names)
{
	int count = 0;
	struct topic *topic;
	DL_FOREACH2(flow->unloaded, topic, in_unloaded.next)
	{
		if (count++ == LOAD_NAMES)
			return;
		topic->log = LOG_LOADING;
		pg_array_add_text(ret_names, topic->name);
	}
}

/* Those without an answer are in no row of the table. */
void flow_load_ended(struct flow *flow, bool answered)
{
	struct topic *topic, *next;
	DL_FOREACH_SAFE2(flow->unloaded, topic, next, in_unloaded.next)
	{
		if (topic->log != LOG_LOADING)
			return;
		if (answered)
			topic_loaded(flow, topic);
		else
			topic->log = LOG_WANTED;
	}
}

/* --- what the broker says ------------------------------------------------------------------- */

void flow_topic(struct flow *flow, const char *name, int32_t partitions)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	if (topic->known == partitions && (topic->missing || partitions))
		return;
	bool missing = partitions == 0;
	flow->awaited += (topic->missing - missing) * topic->awaited;
	topic->known = partitions;
	topic->missing = missing;
	if (topic->state != TOPIC_CLOSING)
		flow_topic_settle(flow, topic);
}

static const char *tell_topic(struct topic *topic, bool *ret_ready, int32_t *ret_partitions)
{
	*ret_ready = topic->state == TOPIC_READY;
	*ret_partitions = topic->count;
	return topic->name;
}

const char *flow_next_topic(
    struct flow *flow, bool unready, bool *ret_ready, int32_t *ret_partitions)
{
	struct topic *topic = unready ? flow->unready : flow->round;
	if (!topic)
		return NULL;
	if (unready) {
		TOPIC_UNLIST(flow, topic, unready);
		TOPIC_LIST(flow, topic, unready);
	} else {
		TOPIC_UNLIST(flow, topic, round);
		TOPIC_LIST(flow, topic, round);
	}
	return tell_topic(topic, ret_ready, ret_partitions);
}

int flow_topics(const struct flow *flow, bool unready)
{
	return unready ? flow->unready_count : flow->round_count;
}

const char *flow_missing_topic(const struct flow *flow)
{
	const struct topic *topic;
	DL_FOREACH2(flow->waiting, topic, in_waiting.next)
	{
		if (topic->held.head || topic->wait.owed)
			return topic->name;
	}
	return NULL;
}

bool flow_has_new_topics(const struct flow *flow)
{
	return flow->news > 0;
}

bool flow_has_changed_topics(const struct flow *flow)
{
	return flow->changes > 0;
}

/* --- unused topics -------------------------------------------------------------------------- */

/* Nothing of it is uncovered, and nothing waits for it. */
static bool is_settled(const struct topic *topic)
{
	bool away = topic->missing || !topic->open;
	if (topic->uses || topic->used || topic->held.head || topic->wait.owed ||
	    topic->log == LOG_WANTED || topic->log == LOG_LOADING)
		return false;
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		if (!flow_tail_rests(topic->partition_queues[p], away))
			return false;
	return away || topic->state == TOPIC_READY;
}

static void move_offsets(struct flow *flow, struct topic *topic, bool all)
{
	topic->moved_at = flow->now;
	for (int32_t p = 0; p < topic->count && topic->state != TOPIC_ASKED; p++) {
		struct partition_queue *partition = topic->partition_queues[p];
		if (!partition->used || all)
			flow_tail_move(flow, partition);
		partition->used = false;
	}
}

/* True: it is forgotten. */
static bool close_topic(struct flow *flow, struct topic *topic)
{
	bool logged = topic->open || (topic->missing && (topic->count || topic->checks));
	if (!is_settled(topic)) {
		topic->ends_asked = false;
		return false;
	}
	if (!logged) {
		flow_topic_drop(flow, topic);
		return true;
	}
	/* other programs wrote to it meanwhile: the next owner need not read those records */
	if (!topic->ends_asked && !topic->missing) {
		topic->ends_asked = true;
		move_offsets(flow, topic, true);
	} else {
		topic->closes = true;
		TOPIC_LIST(flow, topic, changed);
	}
	return false;
}

bool flow_topic_closes(struct topic *topic)
{
	topic->closes &= is_settled(topic);
	return topic->closes;
}

static bool visit(struct flow *flow, struct topic *topic)
{
	if (topic->used) {
		topic->used_at = flow->now;
		topic->ends_asked = false;
	}
	topic->used = false;
	if (flow->now - topic->moved_at >= flow->move_ms)
		move_offsets(flow, topic, false);
	return flow->idle_ms && flow->now - topic->used_at >= flow->idle_ms &&
	       topic->state != TOPIC_CLOSING && close_topic(flow, topic);
}

void flow_visit_topics(struct flow *flow, int64_t now)
{
	struct topic *topic;
	flow->now = now;
	for (int i = 0; i < VISITS_A_TURN; i++) {
		topic = flow->visits;
		if (!topic || topic->visit_at > now)
			return;
		if (visit(flow, topic))
			continue;
		TOPIC_UNLIST(flow, topic, visits);
		topic->visit_at = now + visit_interval(flow);
		TOPIC_LIST(flow, topic, visits);
	}
}
