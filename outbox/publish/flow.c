/*
 * Records are numbered as they are read, in the order of publication. A ring holds those from the
 * first unacknowledged one on. A record goes through the partition queue of its topic and
 * partition:
 *
 *   PENDING -> SENT -> ACKED            the plain way
 *   PENDING -> SENT -> WRITTEN -> ACKED with transactions, all that were written at once
 *   PENDING -> HELD -> SENT             a record goes alone, the tail is not read yet, or the topic
 *                                       is not ready
 *   PENDING -> ACKED                    Kafka has it already (flow_tails.c)
 *   SENT, WRITTEN -> PENDING            the producer was lost: everything again, in order
 *   SENT -> PARKING -> PARKED           refused while alone on its partition; later records of its
 *                                       key follow (flow_parks.c)
 *   SENT -> REFUSED                     the same, and the publisher stops; later records of its
 *                                       key are BLOCKED
 *   PENDING -> PARKING -> PARKED        it has a time of its own
 *
 * Records that go alone. Nothing of a key may pass a refused record. The producer is gapless, so
 * that the followers of a refused batch fail with it; but a broker accepts any first sequence
 * number from a producer it does not know, so on a fresh producer followers of a refused first
 * batch could be written. Hence the first record of each partition goes alone until it is
 * acknowledged, and again after a long silence, when the broker may have forgotten the producer.
 * And a refused batch is not a refused record: every record of it is a suspect, and suspects go
 * alone. Only what is refused alone is at fault. In a transaction, alone means that no other record
 * of its partition is in it: with the refusal it would be lost, and come behind what it was in
 * front of.
 */
#include "flow.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow_private.h"
#include "partitioner.h"

/* What librdkafka and we need for a record beside its bytes: message struct, headers, queue links.
 */
enum { RECORD_OVERHEAD = 640 };

/* Brokers forget a producer that was silent for producer.id.expiration.ms, a day by default. */
enum { REMEMBERED_MS = 3600 * 1000 };

/* Partitions that nothing was sent to move their noted offsets up so often. */
enum { MOVE_LEASES = 12 };

struct flow *flow_create(const struct stream_settings *settings)
{
	struct flow *flow = xcalloc(1, sizeof *flow);
	flow->max_in_flight = stream_most_uncovered(settings);
	flow->resumes = settings->resumes;
	flow->transactions = settings->transactions;
	flow->parking = settings->parking;
	flow->idle_ms = settings->topic_idle_ms;
	flow->move_ms = MOVE_LEASES * settings->lease_ms;
	flow->memory = settings->memory;
	flow->tail_memory = settings->tail_memory;
	flow->capacity = 1024;
	flow->ring = xcalloc(flow->capacity, sizeof *flow->ring);
	flow->covered = flow->acked = flow->next = flow->end = flow->highest_sent = 1;
	flow->looked = 1;
	return flow;
}

struct record *flow_record(const struct flow *flow, uint64_t sequence)
{
	return &flow->ring[sequence & (flow->capacity - 1)];
}

void flow_release(struct flow *flow, struct record *record)
{
	flow->bytes -= record->message.bytes + RECORD_OVERHEAD;
	message_release(&record->message);
}

static void reset_partition(struct partition_queue *partition)
{
	partition->under_way = partition->written = 0;
	partition->solo = partition->listed = false;
	partition->fresh = true;
	partition->alone_until = 0;
	partition->held = (struct record_list){0};
	partition->next_ready = NULL;
}

void flow_reset_partitions(struct flow *flow)
{
	for (struct topic *topic = flow->topics; topic; topic = topic->hh.next) {
		topic->held = (struct record_list){0};
		for (int32_t p = 0; p < topic->partition_queue_count; p++)
			reset_partition(topic->partition_queues[p]);
	}
	flow->ready_first = flow->ready_last = NULL;
	flow->under_way = flow->held = flow->unreported = flow->written = 0;
}

/* --- partition queues ----------------------------------------------------------------------- */

static struct record_list take_list(struct record_list *list)
{
	struct record_list taken = *list;
	*list = (struct record_list){0};
	return taken;
}

static void push_record(struct flow *flow, struct record_list *list, uint64_t sequence)
{
	flow_record(flow, sequence)->next_held = 0;
	if (list->head)
		flow_record(flow, list->tail)->next_held = sequence;
	else
		list->head = sequence;
	list->tail = sequence;
}

static uint64_t pop_record(struct flow *flow, struct record_list *list)
{
	uint64_t sequence = list->head;
	list->head = flow_record(flow, sequence)->next_held;
	return sequence;
}

void flow_list_ready(struct flow *flow, struct partition_queue *partition)
{
	if (partition->listed || !partition->held.head)
		return;
	partition->listed = true;
	partition->next_ready = NULL;
	if (flow->ready_first)
		flow->ready_last->next_ready = partition;
	else
		flow->ready_first = partition;
	flow->ready_last = partition;
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

/* The record's partition queue; NULL when it names a partition that its topic does not have. */
static struct partition_queue *partition_queue_of(struct flow *flow, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	struct topic *topic = record->topic;
	record->partition = place(&record->message, topic->count);
	return record->partition < topic->count ? topic->partition_queues[record->partition] : NULL;
}

static void hold_on(struct flow *flow, struct partition_queue *partition, uint64_t sequence)
{
	flow_record(flow, sequence)->state = HELD;
	push_record(flow, &partition->held, sequence);
	flow->held++;
	flow_partition_waits(flow, partition);
}

static void move_to_partition_queue(struct flow *flow, uint64_t sequence)
{
	struct partition_queue *partition = partition_queue_of(flow, sequence);
	if (!partition) {
		flow_record(flow, sequence)->state = PENDING;
		if (flow->next > sequence)
			flow->next = sequence;
		return;
	}
	hold_on(flow, partition, sequence);
	flow_list_ready(flow, partition);
}

/* Up to one of which it is not known whether its key is parked. */
static void park_held(struct flow *flow, struct topic *topic)
{
	while (topic->held.head && flow_record(flow, topic->held.head)->known) {
		uint64_t sequence = pop_record(flow, &topic->held);
		if (flow_record(flow, sequence)->stands)
			flow_stands(flow, sequence);
		else
			flow_park_stalled(flow, sequence);
	}
}

void flow_release_held(struct flow *flow, struct topic *topic)
{
	if (topic->wait.stalled) {
		park_held(flow, topic);
		return;
	}
	/* records on its partitions may have become known while it was away */
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		flow_list_ready(flow, topic->partition_queues[p]);
	struct record_list held = take_list(&topic->held);
	while (held.head)
		move_to_partition_queue(flow, pop_record(flow, &held));
}

void flow_becomes_known(struct flow *flow, uint64_t sequence)
{
	const struct record *record = flow_record(flow, sequence);
	struct topic *topic = record->topic;
	if (record->state != HELD)
		return;
	if (topic->state == TOPIC_READY)
		flow_list_ready(flow, topic->partition_queues[record->partition]);
	else if (topic->wait.stalled)
		park_held(flow, topic);
}

void flow_forget(struct flow *flow)
{
	for (uint64_t s = flow->acked; s < flow->end; s++) {
		struct record *record = flow_record(flow, s);
		if (record->state != ACKED && record->state != PARKED)
			flow_release(flow, record);
	}
	assert(flow->bytes == 0);
	flow->last_topic = NULL;
	flow->covered = flow->acked = flow->next = flow->highest_sent = flow->looked = flow->end;
	flow_parks_forget(flow);
	flow_reset_partitions(flow);
	flow_topics_forget(flow);
}

void flow_destroy(struct flow *flow)
{
	if (!flow)
		return;
	flow_forget(flow);
	flow_topics_destroy(flow);
	free(flow->ring);
	free(flow);
}

/* --- records -------------------------------------------------------------------------------- */

static void grow(struct flow *flow)
{
	uint64_t capacity = flow->capacity * 2;
	struct record *ring = xcalloc(capacity, sizeof *ring);
	for (uint64_t s = flow->acked; s < flow->end; s++)
		ring[s & (capacity - 1)] = *flow_record(flow, s);
	free(flow->ring);
	flow->ring = ring;
	flow->capacity = capacity;
}

/*
 * Written by the look-back itself: the constraint of the headers lets nobody else begin them so,
 * and this is how jsonb prints them (outbox.headers_valid).
 */
static bool is_of_lookback(const struct message *message)
{
	static const char mark[] = "[[\"outbox-lookback\", ";

	return message->headers && (size_t)message->headers_length >= strlen(mark) &&
	       memcmp(message->headers, mark, strlen(mark)) == 0;
}

void flow_add(
    struct flow *flow, int64_t tick, bool listed, bool convicted, const struct message *message)
{
	struct topic *topic = flow_topic_find(flow, message->topic, (size_t)message->topic_length);
	bool refused = topic->refused && !is_of_lookback(message);
	if (flow->end - flow->acked == flow->capacity)
		grow(flow);
	topic->uses++;
	*flow_record(flow, flow->end) = (struct record){
	    .message = *message,
	    .topic = topic,
	    .tick = tick,
	    .state = PENDING,
	    .listed = listed && !message->scheduled,
	    .later = !listed && message->scheduled,
	    .convicted = convicted || refused,
	    .topic_refused = refused && !convicted,
	};
	flow_key_added(flow, flow_record(flow, flow->end));
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

static void pass_on_partition(struct flow *flow, const struct record *record)
{
	struct partition_queue *partition = record->topic->partition_queues[record->partition];
	if (partition->unpassed > 0)
		partition->unpassed--;
	if (record->offset > partition->offset)
		partition->offset = record->offset;
	if (record->found)
		flow_tail_passed(flow, partition, record->found);
	flow_partition_changes(flow, partition);
}

/*
 * A sequence that went back gives one id to two rows, and both may lie in one window. Progress is
 * noted by id: it says nothing of the first of them before the last is published as well. They come
 * with one page (page.sql), so the next row is in memory.
 */
static bool meets_next(const struct flow *flow)
{
	const struct record *record = flow_record(flow, flow->acked), *next;
	if (flow->acked + 1 >= flow->end)
		return false;
	next = flow_record(flow, flow->acked + 1);
	return next->tick == record->tick && next->message.id == record->message.id;
}

bool flow_pass(struct flow *flow, int64_t *ret_tick, int64_t *ret_id)
{
	const struct record *record = flow_record(flow, flow->acked);
	if (flow->acked == flow->end || (record->state != ACKED && record->state != PARKED))
		return false;
	*ret_tick = record->tick;
	*ret_id = record->message.id - meets_next(flow);
	if (record->state == ACKED)
		pass_on_partition(flow, record);
	record->topic->uses--;
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

int64_t flow_unreported(const struct flow *flow)
{
	return flow->unreported;
}

int64_t flow_written(const struct flow *flow)
{
	return flow->written;
}

int64_t flow_in_flight(const struct flow *flow)
{
	return (int64_t)(flow->highest_sent - flow->covered);
}

const struct message *flow_message(const struct flow *flow, uint64_t sequence)
{
	if (sequence < flow->acked || sequence >= flow->end ||
	    flow_record(flow, sequence)->state == ACKED ||
	    flow_record(flow, sequence)->state == PARKED)
		return NULL;
	return &flow_record(flow, sequence)->message;
}

const struct message *flow_oldest(const struct flow *flow)
{
	for (uint64_t s = flow->acked; s < flow->end; s++)
		if (flow_message(flow, s))
			return flow_message(flow, s);
	return NULL;
}

/* --- sending -------------------------------------------------------------------------------- */

static bool goes_alone(const struct partition_queue *partition, uint64_t sequence)
{
	return partition->fresh || sequence <= partition->alone_until;
}

static bool is_open(
    const struct flow *flow, const struct partition_queue *partition, uint64_t sequence)
{
	return flow_tail_lets(flow, partition, sequence) && !partition->solo &&
	       !partition->barred && !partition->unnoted && !partition->topic->unnoted &&
	       (!goes_alone(partition, sequence) || partition->under_way + partition->written == 0);
}

static void acknowledge(
    struct flow *flow, struct record *record, struct partition_queue *partition, int64_t offset)
{
	record->state = ACKED;
	record->offset = offset;
	partition->unpassed++;
	partition->wait.since = 0;
	if (offset > partition->known)
		partition->known = offset;
	flow_release(flow, record);
}

static void write_down(
    struct flow *flow, struct record *record, struct partition_queue *partition, int64_t offset)
{
	if (!flow->transactions) {
		acknowledge(flow, record, partition, offset);
		return;
	}
	record->state = WRITTEN;
	record->offset = offset;
	partition->written++;
	flow->written++;
}

void flow_committed(struct flow *flow)
{
	for (uint64_t s = flow->acked; flow->written; s++) {
		struct record *record = flow_record(flow, s);
		if (record->state != WRITTEN)
			continue;
		struct partition_queue *partition =
		    record->topic->partition_queues[record->partition];
		partition->written--;
		flow->written--;
		acknowledge(flow, record, partition, record->offset);
		flow_list_ready(flow, partition);
	}
}

/* What a tail showed is not sent again. */
static bool is_there_already(
    struct flow *flow, struct partition_queue *partition, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	record->found = flow_tail_found(flow, partition, sequence);
	if (!record->found)
		return false;
	acknowledge(flow, record, partition, record->found->offset);
	if (flow->highest_sent <= sequence)
		flow->highest_sent = sequence + 1;
	return true;
}

static void send_on_partition(struct flow *flow, int64_t now, struct partition_queue *partition,
    uint64_t sequence, struct stream_record *ret_record)
{
	struct record *record = flow_record(flow, sequence);
	if (partition->under_way == 0 && now - partition->acked_at > REMEMBERED_MS)
		partition->fresh = true;
	record->state = SENT;
	partition->used = true;
	if (!partition->wait.since)
		partition->wait.since = now;
	flow_partition_waits(flow, partition);
	partition->solo = goes_alone(partition, sequence);
	partition->under_way++;
	flow->under_way++;
	flow->unreported++;
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

/* The owner that died last may have sent the record. If Kafka has it, it is not parked. */
static void convict(struct flow *flow, struct partition_queue *partition, uint64_t sequence)
{
	if (!partition || !is_there_already(flow, partition, sequence))
		flow_park_convicted(flow, sequence);
}

/* The partition's first record, if it is known; false: it goes, or waits, like any other. */
static bool settle_held(struct flow *flow, struct partition_queue *partition, uint64_t sequence)
{
	const struct record *record = flow_record(flow, sequence);
	bool convicted = record->convicted &&
			 (partition->wait.stalled || flow_found_decides(flow, partition, sequence));
	if (!partition->wait.stalled && !record->stands && !convicted)
		return false;
	pop_record(flow, &partition->held);
	flow->held--;
	if (record->stands)
		flow_stands(flow, sequence);
	else if (convicted)
		convict(flow, partition, sequence);
	else
		flow_park_stalled(flow, sequence);
	return true;
}

/* From the partitions whose held records may go now. */
static bool send_held(
    struct flow *flow, int64_t now, uint64_t end, struct stream_record *ret_record)
{
	while (flow->ready_first) {
		struct partition_queue *partition = flow->ready_first;
		uint64_t sequence = partition->held.head;
		bool known = sequence && flow_record(flow, sequence)->known;
		if (known && settle_held(flow, partition, sequence))
			continue;
		if (known && sequence < end && is_open(flow, partition, sequence)) {
			pop_record(flow, &partition->held);
			flow->held--;
			if (is_there_already(flow, partition, sequence) ||
			    flow_park_behind(flow, sequence))
				continue;
			send_on_partition(flow, now, partition, sequence, ret_record);
			return true;
		}
		flow->ready_first = partition->next_ready;
		partition->listed = false;
		if (known && sequence < end && partition->under_way + partition->written == 0)
			flow_tail_seek(flow, partition, sequence);
	}
	return false;
}

static void refuse_place(struct flow *flow, uint64_t sequence)
{
	const struct record *record = flow_record(flow, sequence);
	char error[128];
	if (flow_park_behind(flow, sequence))
		return;
	snprintf(error, sizeof error, "the row wants partition %d, the topic has %d",
	    record->partition, record->topic->count);
	flow_park_refused(flow, sequence, error);
}

/*
 * It has no partition to wait on, and records of its key may be under way on any. Or it has none
 * while it is not known whether its key is parked.
 */
static bool must_wait(const struct flow *flow, uint64_t sequence)
{
	const struct record *record = flow_record(flow, sequence);
	if (record->state != PENDING)
		return false;
	bool astray = record->message.partition >= record->topic->count &&
		      record->topic->state == TOPIC_READY;
	return (astray && sequence > flow->acked) ||
	       (!record->known && (astray || record->convicted));
}

/* It waits on its partition only until it is known whether Kafka has it. */
static void convict_or_hold(struct flow *flow, uint64_t sequence)
{
	struct partition_queue *partition =
	    flow_record(flow, sequence)->topic->count ? partition_queue_of(flow, sequence) : NULL;
	if (!partition || flow_found_decides(flow, partition, sequence)) {
		convict(flow, partition, sequence);
		return;
	}
	hold_on(flow, partition, sequence);
	flow_list_ready(flow, partition);
}

/* Decided without a look at its partition; false: it is not. */
static bool settle(struct flow *flow, uint64_t sequence)
{
	const struct record *record = flow_record(flow, sequence);
	if (record->later)
		flow_schedule(flow, sequence);
	else if (record->stands)
		flow_stands(flow, sequence);
	else if (record->convicted)
		convict_or_hold(flow, sequence);
	else
		return false;
	return true;
}

/* It waits for its topic; where that is missing for too long, only for its look-up. */
static void wait_for_topic(struct flow *flow, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	record->state = HELD;
	push_record(flow, &record->topic->held, sequence);
	flow_topic_waits(flow, record->topic);
	if (record->topic->wait.stalled)
		park_held(flow, record->topic);
}

/* The next record in order: true when it goes out now. */
static bool consider(
    struct flow *flow, int64_t now, uint64_t sequence, struct stream_record *ret_record)
{
	struct record *record = flow_record(flow, sequence);
	if (record->state != PENDING)
		return false;
	if (settle(flow, sequence))
		return false;
	flow_topic_use(flow, record->topic);
	if (record->topic->wait.stalled || record->topic->state != TOPIC_READY) {
		wait_for_topic(flow, sequence);
		return false;
	}
	struct partition_queue *partition = partition_queue_of(flow, sequence);
	if (!partition) {
		refuse_place(flow, sequence);
		return false;
	}
	bool waits = partition->held.head || !record->known;
	bool stalled =
	    partition->wait.stalled || (partition->barred && flow_denial_parks(flow, partition));
	if (stalled && !waits) {
		flow_park_stalled(flow, sequence);
		return false;
	}
	if (waits || stalled || !is_open(flow, partition, sequence)) {
		if (!partition->wait.since && record->known)
			partition->wait.since = now;
		hold_on(flow, partition, sequence);
		if (stalled || partition->tail == TAIL_CUT)
			flow_list_ready(flow, partition);
		return false;
	}
	if (is_there_already(flow, partition, sequence) || flow_park_behind(flow, sequence))
		return false;
	send_on_partition(flow, now, partition, sequence, ret_record);
	return true;
}

bool flow_send(struct flow *flow, int64_t now, bool gaps_only, struct stream_record *ret_record)
{
	uint64_t end = gaps_only ? flow->highest_sent : flow->end;
	if (flow->changing || flow_has_changed_topics(flow))
		return false;
	if (send_held(flow, now, end, ret_record))
		return true;
	while (flow->next < end && !flow_is_full(flow) && !must_wait(flow, flow->next))
		if (consider(flow, now, flow->next++, ret_record))
			return true;
	/* records that were held just now: some are parked, or looked for in a tail */
	return send_held(flow, now, end, ret_record);
}

static bool is_barred(const struct record *record)
{
	const struct topic *topic = record->topic;
	return record->partition >= 0 && record->partition < topic->partition_queue_count &&
	       topic->partition_queues[record->partition]->barred;
}

bool flow_has_gap(const struct flow *flow)
{
	for (uint64_t s = flow->acked; s < flow->highest_sent; s++) {
		const struct record *record = flow_record(flow, s);
		bool waits = record->state == PENDING || record->state == HELD;
		if (waits && record->topic->state != TOPIC_ASKED && !is_barred(record))
			return true;
	}
	return false;
}

/* Refused before it was sent: looked at again when nothing is under way on its partition. */
static void wait_alone(struct flow *flow, struct partition_queue *partition, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	record->state = HELD;
	record->next_held = partition->held.head;
	if (!partition->held.head)
		partition->held.tail = sequence;
	partition->held.head = sequence;
	partition->alone_until = sequence;
	flow->held++;
}

bool flow_report(struct flow *flow, int64_t now, uint64_t sequence, enum stream_delivery delivery,
    int64_t offset, const char *error, bool *ret_wants_producer)
{
	*ret_wants_producer = false;
	if (sequence < flow->acked || sequence >= flow->end ||
	    flow_record(flow, sequence)->state != SENT)
		return false;
	struct record *record = flow_record(flow, sequence);
	struct partition_queue *partition = record->topic->partition_queues[record->partition];
	flow->unreported--;
	if (delivery == STREAM_WRITTEN)
		flow_hear(flow, now);
	bool denied = delivery == STREAM_DENIED || delivery == STREAM_FAILED;
	bool convicts = denied && flow_deny(flow, now, sequence, delivery == STREAM_DENIED, error);
	if (delivery == STREAM_AGAIN || (denied && !convicts) ||
	    (delivery == STREAM_REFUSED && !partition->solo)) {
		/* stays SENT and under way until flow_producer_lost makes it go again */
		record->suspect |= delivery == STREAM_REFUSED || delivery == STREAM_FAILED;
		*ret_wants_producer = true;
		return true;
	}
	if (delivery == STREAM_WRITTEN) {
		write_down(flow, record, partition, offset);
		partition->fresh = false;
		partition->acked_at = now;
		if (record->topic->denial)
			flow_admit(flow, partition);
	} else if (partition->solo || partition->under_way + partition->written == 1) {
		flow_park_refused(flow, sequence, error);
	} else {
		wait_alone(flow, partition, sequence);
	}
	*ret_wants_producer = delivery == STREAM_REFUSED || denied;
	partition->solo = false;
	partition->under_way--;
	flow->under_way--;
	flow_list_ready(flow, partition);
	return true;
}

/* Everything that is not acknowledged goes again, in order; suspects alone. */
void flow_producer_lost(struct flow *flow)
{
	flow_tails_lost(flow);
	flow_reset_partitions(flow);
	for (uint64_t s = flow->acked; s < flow->end; s++) {
		struct record *record = flow_record(flow, s);
		if (record->state > WRITTEN)
			continue;
		record->state = PENDING;
		if (record->suspect && record->partition < record->topic->count)
			record->topic->partition_queues[record->partition]->alone_until = s;
	}
	flow->next = flow->acked;
}
