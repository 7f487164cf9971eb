/*
 * Records are numbered as they are read, in the order of publication. A ring holds those from the
 * first unacknowledged one on. A record travels on the lane of its (topic, partition):
 *
 *   PENDING -> SENT -> ACKED            the plain way
 *   PENDING -> HELD -> SENT             the lane is careful, or its topic is not ready
 *   SENT -> PENDING                     the producer was lost: everything again, in order
 *   SENT -> REFUSED, others -> BLOCKED  refused while alone on its lane; later ones of its key wait
 *
 * Careful lanes. Nothing of a key may pass a refused record. The producer is gapless, so that the
 * followers of a refused batch fail with it; but a broker accepts any first sequence number from a
 * producer it does not know, so on a fresh producer followers of a refused first batch could be
 * written. Hence the first record of each lane goes alone until it is acknowledged, and again after
 * a long silence, when the broker may have forgotten the producer. And a refused
 * batch is not a refused record: every record of it is a suspect, and suspects go alone. Only what
 * is refused alone is at fault.
 *
 * A topic's partition count must stand in the log before the first record flows to it, and a
 * changed count takes effect with a new epoch once nothing is under way: until then no record goes
 * out.
 */
#include "flow.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "partitioner.h"

/* What librdkafka and we need for a record beside its bytes: message struct, headers, queue links.
 */
enum { RECORD_OVERHEAD = 640 };

/* Brokers forget a producer that was silent for producer.id.expiration.ms, a day by default. */
enum { REMEMBERED_MS = 3600 * 1000 };

enum record_state { PENDING, HELD, SENT, ACKED, REFUSED, BLOCKED };

struct record {
	struct message message;
	struct topic *topic;
	int64_t tick;
	uint64_t next_held; /* the one behind it in the queue it is held in; 0: last */
	int32_t partition;
	uint8_t state;
	bool suspect; /* was in a refused batch */
};

struct queue {
	uint64_t head, tail; /* sequence numbers; 0: empty */
};

struct lane {
	struct topic *topic;
	int32_t partition;
	int32_t under_way;
	bool fresh;             /* this producer has no acknowledgement on it yet */
	int64_t acked_at;       /* the last one, unless fresh */
	bool solo;              /* a record is alone on it */
	bool listed;            /* is in flow.ready */
	uint64_t careful_until; /* records up to here go alone */
	int64_t offset, logging_offset, logged_offset; /* last acknowledged; -1: none */
	struct queue held;
	struct lane *next_ready;
};

enum topic_state {
	TOPIC_ASKED,   /* the broker has not said that it exists */
	TOPIC_NEW,     /* exists; its count is to be logged */
	TOPIC_READY,   /* records flow */
	TOPIC_CHANGED, /* exists with another count than the logged one */
};

struct topic {
	char *name;
	enum topic_state state;
	int32_t logging; /* the count that the row under way carries; 0: none */
	int32_t count;   /* logged; 0: none yet */
	int32_t known;   /* what the broker says; 0: missing */
	struct lane *lanes;
	struct queue held;
	int index;
	UT_hash_handle hh;
};

/* Goes no further than the refused record; what came before that still does. */
struct blocked_key {
	struct topic *topic;
	uint64_t refused;
	int32_t length;
	char key[];
};

struct flow {
	int64_t max_in_flight;
	struct record *ring;
	uint64_t capacity; /* a power of two */
	uint64_t covered, acked, next, end, highest_sent;
	int64_t bytes, under_way, held; /* held: on lanes */
	struct topic *topics;           /* by name */
	struct topic **topic_list;
	int topic_count;
	struct topic *last_topic; /* the one of the record before: most tables have few */
	int unready;              /* topics NEW or CHANGED */
	bool changing;            /* the row under way carries a changed count */
	struct lane *ready_first, *ready_last; /* lanes whose held records may go now */
	struct blocked_key **blocked;
	int blocked_count;
	bool refused;
	struct flow_refusal refusal;
};

struct flow *flow_create(int64_t max_in_flight)
{
	struct flow *flow = xcalloc(1, sizeof *flow);
	flow->max_in_flight = max_in_flight;
	flow->capacity = 1024;
	flow->ring = xcalloc(flow->capacity, sizeof *flow->ring);
	flow->covered = flow->acked = flow->next = flow->end = flow->highest_sent = 1;
	return flow;
}

static struct record *record_at(const struct flow *flow, uint64_t sequence)
{
	return &flow->ring[sequence & (flow->capacity - 1)];
}

static void release(struct flow *flow, struct record *record)
{
	flow->bytes -= record->message.bytes + RECORD_OVERHEAD;
	message_release(&record->message);
}

static void forget_lane(struct lane *lane)
{
	lane->under_way = 0;
	lane->solo = lane->listed = false;
	lane->fresh = true;
	lane->careful_until = 0;
	lane->held = (struct queue){0};
	lane->next_ready = NULL;
}

/* Every lane as a fresh producer finds it; no record is held anywhere. */
static void forget_lanes(struct flow *flow)
{
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		topic->held = (struct queue){0};
		for (int32_t p = 0; p < topic->count; p++)
			forget_lane(&topic->lanes[p]);
	}
	flow->ready_first = flow->ready_last = NULL;
	flow->under_way = flow->held = 0;
}

/* --- destinations ------------------------------------------------------------------------- */

static struct topic *topic_find(struct flow *flow, const char *name, size_t length)
{
	struct topic *topic;
	if (flow->last_topic && strlen(flow->last_topic->name) == length &&
	    memcmp(flow->last_topic->name, name, length) == 0)
		return flow->last_topic;
	HASH_FIND(hh, flow->topics, name, length, topic);
	if (!topic) {
		topic = xcalloc(1, sizeof *topic);
		topic->name = xformat("%.*s", (int)length, name);
		topic->index = flow->topic_count;
		HASH_ADD_KEYPTR(hh, flow->topics, topic->name, length, topic);
		flow->topic_list = xrealloc(
		    flow->topic_list, (size_t)(flow->topic_count + 1) * sizeof *flow->topic_list);
		flow->topic_list[flow->topic_count++] = topic;
	}
	flow->last_topic = topic;
	return topic;
}

static void set_count(struct topic *topic, int32_t count)
{
	free(topic->lanes);
	topic->lanes = xcalloc((size_t)count, sizeof *topic->lanes);
	topic->count = count;
	for (int32_t p = 0; p < count; p++)
		topic->lanes[p] = (struct lane){.topic = topic,
		    .partition = p,
		    .fresh = true,
		    .offset = -1,
		    .logging_offset = -1,
		    .logged_offset = -1};
}

static struct queue take_queue(struct queue *queue)
{
	struct queue taken = *queue;
	*queue = (struct queue){0};
	return taken;
}

static void queue_push(struct flow *flow, struct queue *queue, uint64_t sequence)
{
	record_at(flow, sequence)->next_held = 0;
	if (queue->head)
		record_at(flow, queue->tail)->next_held = sequence;
	else
		queue->head = sequence;
	queue->tail = sequence;
}

static uint64_t queue_pop(struct flow *flow, struct queue *queue)
{
	uint64_t sequence = queue->head;
	queue->head = record_at(flow, sequence)->next_held;
	return sequence;
}

static void list_ready(struct flow *flow, struct lane *lane)
{
	if (lane->listed || !lane->held.head)
		return;
	lane->listed = true;
	lane->next_ready = NULL;
	if (flow->ready_first)
		flow->ready_last->next_ready = lane;
	else
		flow->ready_first = lane;
	flow->ready_last = lane;
}

static bool is_blocked(const struct flow *flow, uint64_t sequence)
{
	const struct record *record = record_at(flow, sequence);
	if (!record->message.key)
		return false;
	for (int i = 0; i < flow->blocked_count; i++) {
		const struct blocked_key *blocked = flow->blocked[i];
		if (blocked->topic == record->topic && blocked->refused < sequence &&
		    blocked->length == record->message.key_length &&
		    memcmp(blocked->key, record->message.key, (size_t)blocked->length) == 0)
			return true;
	}
	return false;
}

/* The record is at fault: the first is remembered, its key goes no further. */
static void blame(struct flow *flow, uint64_t sequence, const char *error)
{
	struct record *record = record_at(flow, sequence);
	const struct message *message = &record->message;
	record->state = REFUSED;
	if (!flow->refused) {
		flow->refused = true;
		flow->refusal.tick = record->tick;
		flow->refusal.id = message->id;
		text_copy(flow->refusal.topic, sizeof flow->refusal.topic, record->topic->name);
		text_copy(flow->refusal.error, sizeof flow->refusal.error, error);
	}
	if (!message->key || is_blocked(flow, sequence))
		return;
	struct blocked_key *blocked = xmalloc(sizeof *blocked + (size_t)message->key_length);
	blocked->topic = record->topic;
	blocked->refused = sequence;
	blocked->length = message->key_length;
	memcpy(blocked->key, message->key, (size_t)message->key_length);
	flow->blocked =
	    xrealloc(flow->blocked, (size_t)(flow->blocked_count + 1) * sizeof *flow->blocked);
	flow->blocked[flow->blocked_count++] = blocked;
}

/* A null key has no order: any partition, but the same one whenever the row is read again. */
static int32_t place(const struct message *message, int32_t count)
{
	if (message->partition >= 0)
		return message->partition;
	if (message->key)
		return partitioner_of_key(message->key, (size_t)message->key_length, count);
	return partitioner_of_key(&message->id, sizeof message->id, count);
}

/* The record's lane; NULL when it names a partition that its topic has not: then it is at fault. */
static struct lane *lane_of(struct flow *flow, uint64_t sequence)
{
	struct record *record = record_at(flow, sequence);
	struct topic *topic = record->topic;
	record->partition = place(&record->message, topic->count);
	if (record->partition < topic->count)
		return &topic->lanes[record->partition];
	char error[128];
	snprintf(error, sizeof error, "the row wants partition %d, the topic has %d",
	    record->partition, topic->count);
	blame(flow, sequence, error);
	return NULL;
}

static void hold_on(struct flow *flow, struct lane *lane, uint64_t sequence)
{
	record_at(flow, sequence)->state = HELD;
	queue_push(flow, &lane->held, sequence);
	flow->held++;
}

static void hold_on_lane(struct flow *flow, uint64_t sequence)
{
	struct lane *lane = lane_of(flow, sequence);
	if (!lane)
		return;
	hold_on(flow, lane, sequence);
	list_ready(flow, lane);
}

static void topic_becomes(struct flow *flow, struct topic *topic, enum topic_state state)
{
	flow->unready += (state == TOPIC_NEW || state == TOPIC_CHANGED) -
			 (topic->state == TOPIC_NEW || topic->state == TOPIC_CHANGED);
	topic->state = state;
	if (state != TOPIC_READY)
		return;
	struct queue held = take_queue(&topic->held);
	while (held.head)
		hold_on_lane(flow, queue_pop(flow, &held));
}

/* What follows from the logged and the known count. */
static void topic_settle(struct flow *flow, struct topic *topic)
{
	if (topic->known == 0)
		topic_becomes(flow, topic, TOPIC_ASKED);
	else if (topic->count == 0)
		topic_becomes(flow, topic, TOPIC_NEW);
	else if (topic->count != topic->known)
		topic_becomes(flow, topic, TOPIC_CHANGED);
	else
		topic_becomes(flow, topic, TOPIC_READY);
}

void flow_forget(struct flow *flow)
{
	for (uint64_t s = flow->acked; s < flow->end; s++) {
		struct record *record = record_at(flow, s);
		if (record->state != ACKED)
			release(flow, record);
	}
	assert(flow->bytes == 0);
	flow->covered = flow->acked = flow->next = flow->highest_sent = flow->end;
	for (int i = 0; i < flow->blocked_count; i++)
		free(flow->blocked[i]);
	flow->blocked_count = 0;
	flow->refused = flow->changing = false;
	/* what the log says of destinations is read again by who takes the shard */
	forget_lanes(flow);
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		free(topic->lanes);
		topic->lanes = NULL;
		topic->count = topic->logging = 0;
		topic_settle(flow, topic);
	}
}

void flow_destroy(struct flow *flow)
{
	if (!flow)
		return;
	flow_forget(flow);
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		HASH_DEL(flow->topics, topic);
		free(topic->name);
		free(topic);
	}
	free(flow->topic_list);
	free(flow->blocked);
	free(flow->ring);
	free(flow);
}

void flow_destination(struct flow *flow, const char *name, int32_t partitions)
{
	struct topic *topic = topic_find(flow, name, strlen(name));
	if (partitions > 0)
		set_count(topic, partitions);
	topic_settle(flow, topic);
}

void flow_destination_offset(struct flow *flow, const char *name, int32_t partition, int64_t offset)
{
	struct topic *topic = topic_find(flow, name, strlen(name));
	if (partition < 0 || partition >= topic->count)
		return;
	struct lane *lane = &topic->lanes[partition];
	lane->offset = lane->logging_offset = lane->logged_offset = offset;
}

void flow_topic(struct flow *flow, const char *name, int32_t partitions)
{
	struct topic *topic = topic_find(flow, name, strlen(name));
	if (topic->known == partitions && topic->state != TOPIC_ASKED)
		return;
	topic->known = partitions;
	topic_settle(flow, topic);
}

const char *flow_topic_name(
    const struct flow *flow, int index, bool *ret_ready, int32_t *ret_partitions)
{
	if (index >= flow->topic_count)
		return NULL;
	*ret_ready = flow->topic_list[index]->state == TOPIC_READY;
	*ret_partitions = flow->topic_list[index]->count;
	return flow->topic_list[index]->name;
}

const char *flow_missing_topic(const struct flow *flow)
{
	for (int i = 0; i < flow->topic_count; i++)
		if (flow->topic_list[i]->state == TOPIC_ASKED && flow->topic_list[i]->held.head)
			return flow->topic_list[i]->name;
	return NULL;
}

static bool has_topic(const struct flow *flow, enum topic_state state)
{
	for (int i = 0; flow->unready && i < flow->topic_count; i++)
		if (flow->topic_list[i]->state == state)
			return true;
	return false;
}

bool flow_has_new_topics(const struct flow *flow)
{
	return has_topic(flow, TOPIC_NEW);
}

bool flow_has_changed_topics(const struct flow *flow)
{
	return has_topic(flow, TOPIC_CHANGED);
}

/* Topic names hold only letters, digits, dots, dashes and underscores: nothing to escape. */
static void topic_json(struct topic *topic, struct text *json)
{
	bool begun = topic->logging;
	int32_t count = topic->logging ? topic->logging : topic->count;
	if (topic->logging)
		text_addf(json, "%s\"%s\":[%d,{", json->length > 1 ? "," : "", topic->name, count);
	bool first = true;
	for (int32_t p = 0; p < topic->count && topic->count == count; p++) {
		struct lane *lane = &topic->lanes[p];
		if (lane->offset == lane->logged_offset)
			continue;
		if (!begun)
			text_addf(json, "%s\"%s\":[%d,{", json->length > 1 ? "," : "", topic->name,
			    count);
		begun = true;
		text_addf(json, "%s\"%d\":%lld", first ? "" : ",", p, (long long)lane->offset);
		lane->logging_offset = lane->offset;
		first = false;
	}
	if (begun)
		text_add(json, "}]");
}

void flow_destinations(struct flow *flow, bool changed, struct text *ret_json)
{
	text_add(ret_json, "{");
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		bool counts =
		    topic->state == TOPIC_NEW || (changed && topic->state == TOPIC_CHANGED);
		topic->logging = counts ? topic->known : 0;
		flow->changing |= topic->logging && topic->count;
		topic_json(topic, ret_json);
	}
	text_add(ret_json, "}");
}

void flow_logged(struct flow *flow, bool written)
{
	flow->changing = false;
	for (int i = 0; i < flow->topic_count; i++) {
		struct topic *topic = flow->topic_list[i];
		int32_t count = written ? topic->logging : 0;
		topic->logging = 0;
		for (int32_t p = 0; p < topic->count; p++) {
			struct lane *lane = &topic->lanes[p];
			if (written)
				lane->logged_offset = lane->logging_offset;
			else
				lane->logging_offset = lane->logged_offset;
		}
		if (count == 0)
			continue;
		if (topic->count) /* nothing is under way: what is held finds its new lane */
			flow_producer_lost(flow);
		set_count(topic, count);
		topic_settle(flow, topic);
	}
}

/* --- records -------------------------------------------------------------------------------- */

static void grow(struct flow *flow)
{
	uint64_t capacity = flow->capacity * 2;
	struct record *ring = xcalloc(capacity, sizeof *ring);
	for (uint64_t s = flow->acked; s < flow->end; s++)
		ring[s & (capacity - 1)] = *record_at(flow, s);
	free(flow->ring);
	flow->ring = ring;
	flow->capacity = capacity;
}

void flow_add(struct flow *flow, int64_t tick, const struct message *message)
{
	if (flow->end - flow->acked == flow->capacity)
		grow(flow);
	*record_at(flow, flow->end) = (struct record){
	    .message = *message,
	    .topic = topic_find(flow, message->topic, (size_t)message->topic_length),
	    .tick = tick,
	    .state = PENDING,
	};
	flow->end++;
	flow->bytes += message->bytes + RECORD_OVERHEAD;
}

uint64_t flow_end(const struct flow *flow)
{
	return flow->end;
}

uint64_t flow_acked(const struct flow *flow)
{
	return flow->acked;
}

uint64_t flow_covered(const struct flow *flow)
{
	return flow->covered;
}

void flow_cover(struct flow *flow, uint64_t sequence)
{
	flow->covered = sequence;
}

bool flow_pass(struct flow *flow, int64_t *ret_tick, int64_t *ret_id)
{
	if (flow->acked == flow->end || record_at(flow, flow->acked)->state != ACKED)
		return false;
	*ret_tick = record_at(flow, flow->acked)->tick;
	*ret_id = record_at(flow, flow->acked)->message.id;
	flow->acked++;
	if (flow->next < flow->acked)
		flow->next = flow->acked;
	return true;
}

bool flow_is_full(const struct flow *flow)
{
	return (int64_t)(flow->next - flow->covered) >= flow->max_in_flight;
}

int64_t flow_records(const struct flow *flow)
{
	return (int64_t)(flow->end - flow->acked);
}

int64_t flow_bytes(const struct flow *flow)
{
	return flow->bytes;
}

int64_t flow_under_way(const struct flow *flow)
{
	return flow->under_way;
}

bool flow_waits_for_reports(const struct flow *flow)
{
	return flow->held > 0 || flow->next < flow->end;
}

int64_t flow_in_flight(const struct flow *flow)
{
	return (int64_t)(flow->highest_sent - flow->covered);
}

const struct message *flow_message(const struct flow *flow, uint64_t sequence)
{
	if (sequence < flow->acked || sequence >= flow->end ||
	    record_at(flow, sequence)->state == ACKED)
		return NULL;
	return &record_at(flow, sequence)->message;
}

const struct message *flow_oldest(const struct flow *flow)
{
	return flow->acked < flow->end ? &record_at(flow, flow->acked)->message : NULL;
}

/* --- sending -------------------------------------------------------------------------------- */

static bool is_careful(const struct lane *lane, uint64_t sequence)
{
	return lane->fresh || sequence <= lane->careful_until;
}

static bool is_open(const struct lane *lane, uint64_t sequence)
{
	return !lane->solo && (!is_careful(lane, sequence) || lane->under_way == 0);
}

static void put_on_lane(struct flow *flow, int64_t now, struct lane *lane, uint64_t sequence,
    struct stream_record *ret_record)
{
	struct record *record = record_at(flow, sequence);
	if (lane->under_way == 0 && now - lane->acked_at > REMEMBERED_MS)
		lane->fresh = true;
	record->state = SENT;
	lane->solo = is_careful(lane, sequence);
	lane->under_way++;
	flow->under_way++;
	if (flow->highest_sent <= sequence)
		flow->highest_sent = sequence + 1;
	*ret_record = (struct stream_record){
	    .sequence = sequence,
	    .tick = record->tick,
	    .id = record->message.id,
	    .message = &record->message,
	    .topic = record->topic->name,
	    .partition = record->partition,
	};
}

/* From the lanes whose held records may go now. */
static bool send_held(
    struct flow *flow, int64_t now, uint64_t end, struct stream_record *ret_record)
{
	while (flow->ready_first) {
		struct lane *lane = flow->ready_first;
		uint64_t sequence = lane->held.head;
		if (sequence && sequence < end && is_open(lane, sequence)) {
			queue_pop(flow, &lane->held);
			flow->held--;
			if (is_blocked(flow, sequence)) {
				record_at(flow, sequence)->state = BLOCKED;
				continue;
			}
			put_on_lane(flow, now, lane, sequence, ret_record);
			return true;
		}
		flow->ready_first = lane->next_ready;
		lane->listed = false;
	}
	return false;
}

/* The next record in order: true when it goes out now. */
static bool consider(
    struct flow *flow, int64_t now, uint64_t sequence, struct stream_record *ret_record)
{
	struct record *record = record_at(flow, sequence);
	if (record->state != PENDING)
		return false;
	if (flow->blocked_count && is_blocked(flow, sequence)) {
		record->state = BLOCKED;
		return false;
	}
	if (record->topic->state != TOPIC_READY) {
		record->state = HELD;
		queue_push(flow, &record->topic->held, sequence);
		return false;
	}
	struct lane *lane = lane_of(flow, sequence);
	if (!lane)
		return false;
	if (lane->held.head || !is_open(lane, sequence)) {
		hold_on(flow, lane, sequence);
		return false;
	}
	put_on_lane(flow, now, lane, sequence, ret_record);
	return true;
}

bool flow_send(struct flow *flow, int64_t now, bool gaps_only, struct stream_record *ret_record)
{
	uint64_t end = gaps_only ? flow->highest_sent : flow->end;
	if (flow->changing || flow_has_changed_topics(flow))
		return false;
	if (send_held(flow, now, end, ret_record))
		return true;
	while (flow->next < end && !flow_is_full(flow))
		if (consider(flow, now, flow->next++, ret_record))
			return true;
	return false;
}

bool flow_has_gap(const struct flow *flow)
{
	for (uint64_t s = flow->acked; s < flow->highest_sent; s++) {
		const struct record *record = record_at(flow, s);
		bool waits = record->state == PENDING || record->state == HELD;
		if (waits && record->topic->state != TOPIC_ASKED && !is_blocked(flow, s))
			return true;
	}
	return false;
}

static void acknowledge(
    struct flow *flow, int64_t now, struct record *record, struct lane *lane, int64_t offset)
{
	record->state = ACKED;
	lane->fresh = false;
	lane->acked_at = now;
	if (offset > lane->offset)
		lane->offset = offset;
	release(flow, record);
}

bool flow_report(struct flow *flow, int64_t now, uint64_t sequence, enum stream_delivery delivery,
    int64_t offset, const char *error, bool *ret_wants_producer)
{
	*ret_wants_producer = false;
	if (sequence < flow->acked || sequence >= flow->end ||
	    record_at(flow, sequence)->state != SENT)
		return false;
	struct record *record = record_at(flow, sequence);
	struct lane *lane = &record->topic->lanes[record->partition];
	if (delivery == STREAM_AGAIN || (delivery == STREAM_REFUSED && !lane->solo)) {
		/* stays SENT and under way until flow_producer_lost makes it go again */
		record->suspect |= delivery == STREAM_REFUSED;
		*ret_wants_producer = true;
		return true;
	}
	if (delivery == STREAM_WRITTEN)
		acknowledge(flow, now, record, lane, offset);
	else
		blame(flow, sequence, error);
	*ret_wants_producer = delivery == STREAM_REFUSED;
	lane->solo = false;
	lane->under_way--;
	flow->under_way--;
	list_ready(flow, lane);
	return true;
}

/* Everything that is not acknowledged goes again, in order; suspects alone. */
void flow_producer_lost(struct flow *flow)
{
	forget_lanes(flow);
	for (uint64_t s = flow->acked; s < flow->end; s++) {
		struct record *record = record_at(flow, s);
		if (record->state != SENT && record->state != HELD && record->state != PENDING)
			continue;
		record->state = PENDING;
		if (record->suspect && record->partition < record->topic->count)
			record->topic->lanes[record->partition].careful_until = s;
	}
	flow->next = flow->acked;
}

const struct flow_refusal *flow_refused(const struct flow *flow)
{
	return flow->refused ? &flow->refusal : NULL;
}
