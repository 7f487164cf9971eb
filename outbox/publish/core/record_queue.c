/*
 * Records are numbered as they are read, in the order of publication. A ring holds the records from
 * the first unacknowledged one on. A record goes through the partition queue of its topic and
 * partition; record_queue_states.c has its states, and docs/reference/states.md draws them.
 *
 * The usual states are pending, sent, acked. A record is held while another one goes alone, while
 * the tail is not read yet, or while its topic is not ready. After the loss of a producer all
 * records that are not acknowledged are sent again, in order.
 *
 * Records that go alone: no record of a key may pass a refused one. The producer is gapless, so
 * the followers of a refused batch fail with it. But a broker accepts any first sequence number
 * from a producer that it does not know, so with a fresh producer the followers of a refused first
 * batch could be written. Hence the first record of each partition goes alone until it is
 * acknowledged, and again after a long silence, when the broker may have forgotten the producer.
 * And a refused batch is not a refused record: every record of the batch is a suspect, and suspects
 * go alone. Only a record that is refused alone is the cause. In a transaction, alone means that
 * the transaction has no other record of the partition: the refusal would abort that record as
 * well, and it would come again behind records that it was in front of.
 *
 * Read record_queue_send and consider_record for the way out, record_queue_report and
 * record_queue_producer_lost for the way back. Topics, tails, parks, keys, stalls and denials have
 * files of their own (record_queue_private.h).
 */
#include "record_queue.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner.h"
#include "record_queue_private.h"

/* Memory per record in addition to its bytes: librdkafka's message, headers, links of queues. */
enum { RECORD_OVERHEAD = 640 };

/* Brokers forget a producer that was silent for producer.id.expiration.ms (default: one day). */
enum { REMEMBERED_MS = 3600 * 1000 };

/* Interval, in leases, at which the noted offsets of silent partitions move up. */
enum { MOVE_LEASES = 12 };

struct record_queue *record_queue_create(const struct stream_settings *settings)
{
	struct record_queue *queue = xcalloc(1, sizeof *queue);

	queue->max_in_flight = stream_most_uncovered(settings);
	queue->resumes = settings->resumes;
	queue->transactions = settings->transactions;
	queue->parking = settings->parking;
	queue->idle_ms = settings->topic_idle_ms;
	queue->move_ms = MOVE_LEASES * settings->lease_ms;
	queue->memory = settings->memory;
	queue->tail_memory = settings->tail_memory;
	queue->capacity = 1024;
	queue->ring = xcalloc(queue->capacity, sizeof *queue->ring);
	queue->covered = queue->acked = queue->next = queue->end = queue->highest_sent = 1;
	queue->looked = 1;
	return queue;
}

struct record *record_queue_at(const struct record_queue *queue, uint64_t sequence)
{
	return &queue->ring[sequence & (queue->capacity - 1)];
}

void record_queue_release(struct record_queue *queue, struct record *record)
{
	queue->bytes -= record->message.bytes + RECORD_OVERHEAD;
	message_release(&record->message);
}

static void reset_partition(struct partition_queue *partition)
{
	partition->under_way = partition->written = 0;
	partition->solo = partition->in_ready = false;
	partition->fresh[0] = partition->fresh[1] = true;
	partition->alone_until = 0;
	partition->held = (struct record_list){0};
	partition->next_ready = NULL;
}

void record_queue_reset_partitions(struct record_queue *queue)
{
	for (struct topic *topic = queue->topics; topic; topic = topic->hh.next) {
		topic->held = (struct record_list){0};
		for (int32_t p = 0; p < topic->partition_queue_count; p++)
			reset_partition(topic->partition_queues[p]);
	}
	queue->ready_first = queue->ready_last = NULL;
	queue->under_way = queue->held_count = queue->unreported = queue->written =
	    queue->committing = 0;
}

/* --- partition queues ----------------------------------------------------------------------- */

static struct record_list take_record_list(struct record_list *list)
{
	struct record_list taken = *list;
	*list = (struct record_list){0};
	return taken;
}

static void push_record(struct record_queue *queue, struct record_list *list, uint64_t sequence)
{
	record_queue_at(queue, sequence)->next_held = 0;
	if (list->head)
		record_queue_at(queue, list->tail)->next_held = sequence;
	else
		list->head = sequence;
	list->tail = sequence;
}

static uint64_t pop_record(struct record_queue *queue, struct record_list *list)
{
	uint64_t sequence = list->head;
	list->head = record_queue_at(queue, sequence)->next_held;
	return sequence;
}

void record_queue_list_ready(struct record_queue *queue, struct partition_queue *partition)
{
	if (partition->in_ready || !partition->held.head)
		return;
	partition->in_ready = true;
	partition->next_ready = NULL;
	if (queue->ready_first)
		queue->ready_last->next_ready = partition;
	else
		queue->ready_first = partition;
	queue->ready_last = partition;
}

/* Records with a null key have no order: any partition, but the same one after each read. */
static int32_t choose_partition(const struct message *message, int32_t count)
{
	if (message->partition >= 0)
		return message->partition;
	if (message->key)
		return partitioner_of_key(message->key, (size_t)message->key_length, count);
	return partitioner_of_key(&message->id, sizeof message->id, count);
}

/* The record's partition queue; NULL if the row names a partition that its topic does not have. */
static struct partition_queue *partition_queue_of(struct record_queue *queue, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	struct topic *topic = record->topic;
	record->partition = choose_partition(&record->message, topic->count);
	return record->partition < topic->count ? topic->partition_queues[record->partition] : NULL;
}

static void hold_record(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	record_move(queue, record_queue_at(queue, sequence), RECORD_HELD);
	push_record(queue, &partition->held, sequence);
	queue->held_count++;
	record_queue_partition_waits(queue, partition);
}

static void move_to_partition_queue(struct record_queue *queue, uint64_t sequence)
{
	struct partition_queue *partition = partition_queue_of(queue, sequence);
	if (!partition) {
		record_move(queue, record_queue_at(queue, sequence), RECORD_PENDING);
		if (queue->next > sequence)
			queue->next = sequence;
		return;
	}
	hold_record(queue, partition, sequence);
	record_queue_list_ready(queue, partition);
}

/* Parks the records that the topic holds, up to the first one whose key is not known. */
static void park_topic_held(struct record_queue *queue, struct topic *topic)
{
	while (topic->held.head && record_queue_at(queue, topic->held.head)->key_known) {
		uint64_t sequence = pop_record(queue, &topic->held);
		if (record_queue_at(queue, sequence)->is_parked)
			record_queue_stands(queue, sequence);
		else
			record_queue_park_stalled(queue, sequence);
	}
}

void record_queue_release_held(struct record_queue *queue, struct topic *topic)
{
	if (topic->wait.stall == STALL_PARKS) {
		park_topic_held(queue, topic);
		return;
	}
	/* Records on its partitions may have become known while the topic was away. */
	for (int32_t p = 0; p < topic->partition_queue_count; p++)
		record_queue_list_ready(queue, topic->partition_queues[p]);
	struct record_list held = take_record_list(&topic->held);
	while (held.head)
		move_to_partition_queue(queue, pop_record(queue, &held));
}

void record_queue_becomes_known(struct record_queue *queue, uint64_t sequence)
{
	const struct record *record = record_queue_at(queue, sequence);
	struct topic *topic = record->topic;
	if (record->state != RECORD_HELD)
		return;
	if (topic->state == TOPIC_READY)
		record_queue_list_ready(queue, topic->partition_queues[record->partition]);
	else if (topic->wait.stall == STALL_PARKS)
		park_topic_held(queue, topic);
}

void record_queue_forget(struct record_queue *queue)
{
	for (uint64_t s = queue->acked; s < queue->end; s++) {
		struct record *record = record_queue_at(queue, s);
		if (!record_is_over(record))
			record_queue_release(queue, record);
	}
	assert(queue->bytes == 0);

	queue->last_topic = NULL;
	queue->covered = queue->acked = queue->next = queue->highest_sent = queue->looked =
	    queue->end;
	record_queue_parks_forget(queue);
	record_queue_reset_partitions(queue);
	record_queue_topics_forget(queue);
}

void record_queue_destroy(struct record_queue *queue)
{
	if (!queue)
		return;
	record_queue_forget(queue);
	record_queue_topics_destroy(queue);
	free(queue->ring);
	free(queue);
}

/* --- records -------------------------------------------------------------------------------- */

static void grow_record_ring(struct record_queue *queue)
{
	uint64_t capacity = queue->capacity * 2;
	struct record *ring = xcalloc(capacity, sizeof *ring);
	for (uint64_t s = queue->acked; s < queue->end; s++)
		ring[s & (capacity - 1)] = *record_queue_at(queue, s);
	free(queue->ring);
	queue->ring = ring;
	queue->capacity = capacity;
}

/*
 * Did the look-back itself write the message? The constraint of the headers lets no other program
 * begin them like this (outbox.headers_valid), and outbox.lookback_decide writes them in the form
 * that jsonb prints.
 */
static bool is_of_lookback(const struct message *message)
{
	static const char mark[] = "[[\"outbox-lookback\", ";

	return message->headers && (size_t)message->headers_length >= strlen(mark) &&
	       memcmp(message->headers, mark, strlen(mark)) == 0;
}

void record_queue_add(struct record_queue *queue, int64_t tick, bool listed, bool convicted,
    const struct message *message)
{
	struct topic *topic =
	    record_queue_topic_find(queue, message->topic, (size_t)message->topic_length);
	bool refused = topic->refusal_reason && !is_of_lookback(message);

	if (queue->end - queue->acked == queue->capacity)
		grow_record_ring(queue);
	topic->uses++;
	*record_queue_at(queue, queue->end) = (struct record){
	    .message = *message,
	    .topic = topic,
	    .tick = tick,
	    .state = RECORD_PENDING,
	    .from_parked = listed && !message->scheduled,
	    .later = !listed && message->scheduled,
	    .convicted = convicted || refused,
	    .topic_refused = refused && !convicted,
	};
	/* the text that came with the message may not outlive the page */
	record_queue_at(queue, queue->end)->message.topic = topic->name;
	record_queue_key_added(queue, record_queue_at(queue, queue->end));
	queue->end++;
	queue->bytes += message->bytes + RECORD_OVERHEAD;
}

uint64_t record_queue_end(const struct record_queue *queue)
{
	return queue->end;
}

uint64_t record_queue_acked(const struct record_queue *queue)
{
	return queue->acked;
}

uint64_t record_queue_covered(const struct record_queue *queue)
{
	return queue->covered;
}

void record_queue_cover(struct record_queue *queue, uint64_t sequence)
{
	queue->covered = sequence;
}

static void pass_partition_record(struct record_queue *queue, const struct record *record)
{
	struct partition_queue *partition = record->topic->partition_queues[record->partition];
	if (partition->unpassed > 0)
		partition->unpassed--;
	if (record->offset > partition->offset)
		partition->offset = record->offset;
	if (record->seen)
		record_queue_tail_passed(queue, partition, record->seen);
	record_queue_partition_changes(queue, partition);
}

/*
 * After a sequence was set back two rows may have the same id, even in one window. Progress is
 * noted by id: it may not include this id before all of its rows are published. They come with the
 * same page (page.sql), so the next row is in memory.
 */
static bool shares_next_id(const struct record_queue *queue)
{
	const struct record *record = record_queue_at(queue, queue->acked), *next;
	if (queue->acked + 1 >= queue->end)
		return false;
	next = record_queue_at(queue, queue->acked + 1);
	return next->tick == record->tick && next->message.id == record->message.id;
}

bool record_queue_pass(struct record_queue *queue, int64_t *ret_tick, int64_t *ret_id)
{
	const struct record *record = record_queue_at(queue, queue->acked);

	if (queue->acked == queue->end || !record_is_over(record))
		return false;
	*ret_tick = record->tick;
	*ret_id = record->message.id - shares_next_id(queue);
	if (record->state == RECORD_ACKED)
		pass_partition_record(queue, record);
	record->topic->uses--;
	queue->acked++;
	if (queue->next < queue->acked)
		queue->next = queue->acked;
	return true;
}

bool record_queue_is_full(const struct record_queue *queue)
{
	return (int64_t)(queue->next - queue->covered) >= queue->max_in_flight;
}

int64_t record_queue_count(const struct record_queue *queue)
{
	return (int64_t)(queue->end - queue->acked);
}

int64_t record_queue_bytes(const struct record_queue *queue)
{
	return queue->bytes;
}

int64_t record_queue_under_way(const struct record_queue *queue)
{
	return queue->under_way;
}

bool record_queue_waits_for_reports(const struct record_queue *queue)
{
	return queue->held_count > 0 || queue->next < queue->end;
}

int64_t record_queue_unreported(const struct record_queue *queue)
{
	return queue->unreported;
}

int64_t record_queue_written(const struct record_queue *queue)
{
	return queue->written;
}

int64_t record_queue_committing(const struct record_queue *queue)
{
	return queue->committing;
}

int64_t record_queue_in_flight(const struct record_queue *queue)
{
	return (int64_t)(queue->highest_sent - queue->covered);
}

const struct message *record_queue_message(const struct record_queue *queue, uint64_t sequence)
{
	if (sequence < queue->acked || sequence >= queue->end ||
	    record_is_over(record_queue_at(queue, sequence)))
		return NULL;
	return &record_queue_at(queue, sequence)->message;
}

const struct message *record_queue_oldest(const struct record_queue *queue)
{
	for (uint64_t s = queue->acked; s < queue->end; s++)
		if (record_queue_message(queue, s))
			return record_queue_message(queue, s);
	return NULL;
}

/* --- sending -------------------------------------------------------------------------------- */

static bool goes_alone(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence)
{
	return partition->fresh[queue->turn] || sequence <= partition->alone_until;
}

static bool may_send_record(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence)
{
	return record_queue_tail_lets(queue, partition, sequence) && !partition->solo &&
	       !partition_is_barred(partition) && !partition->unnoted &&
	       !partition->topic->unnoted &&
	       (!goes_alone(queue, partition, sequence) ||
		   partition->under_way + partition->written == 0);
}

static void acknowledge_record(struct record_queue *queue, struct record *record,
    struct partition_queue *partition, int64_t offset)
{
	record->offset = offset;
	record_move(queue, record, RECORD_ACKED);
	partition->unpassed++;
	partition->wait.since = 0;
	if (offset > partition->known_offset)
		partition->known_offset = offset;
	record_queue_release(queue, record);
}

static void note_written_record(struct record_queue *queue, struct record *record,
    struct partition_queue *partition, int64_t offset)
{
	if (!queue->transactions) {
		acknowledge_record(queue, record, partition, offset);
		return;
	}
	record->offset = offset;
	record_move(queue, record, RECORD_WRITTEN);
	partition->written++;
	queue->written++;
}

void record_queue_commits(struct record_queue *queue)
{
	queue->committing = queue->written;
	queue->turn = 1 - queue->turn;
}

void record_queue_committed(struct record_queue *queue)
{
	for (uint64_t s = queue->acked; queue->committing; s++) {
		struct record *record = record_queue_at(queue, s);
		if (record->state != RECORD_WRITTEN || record->turn == queue->turn)
			continue;
		struct partition_queue *partition =
		    record->topic->partition_queues[record->partition];
		partition->written--;
		queue->written--;
		queue->committing--;
		acknowledge_record(queue, record, partition, record->offset);
		record_queue_list_ready(queue, partition);
	}
}

/* True: the record was found in a tail. It is acknowledged and not sent again. */
static bool skip_found_record(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	record->seen = record_queue_tail_found(queue, partition, sequence);
	if (!record->seen)
		return false;
	acknowledge_record(queue, record, partition, record->seen->offset);
	if (queue->highest_sent <= sequence)
		queue->highest_sent = sequence + 1;
	return true;
}

static void send_on_partition(struct record_queue *queue, int64_t now,
    struct partition_queue *partition, uint64_t sequence, struct stream_record *ret_record)
{
	struct record *record = record_queue_at(queue, sequence);

	if (partition->under_way == 0 && now - partition->acked_at[queue->turn] > REMEMBERED_MS)
		partition->fresh[queue->turn] = true;
	record_move(queue, record, RECORD_SENT);
	record->turn = (uint8_t)queue->turn;
	partition->used = true;
	if (!partition->wait.since)
		partition->wait.since = now;
	record_queue_partition_waits(queue, partition);
	partition->solo = goes_alone(queue, partition, sequence);
	partition->under_way++;
	queue->under_way++;
	queue->unreported++;
	if (queue->highest_sent <= sequence)
		queue->highest_sent = sequence + 1;
	*ret_record = (struct stream_record){
	    .sequence = sequence,
	    .tick = record->tick,
	    .id = record->message.id,
	    .message = &record->message,
	    .topic = record->topic->name,
	    .partition = record->partition,
	};
}

/* The owner that died last may have sent the record. If Kafka has the record, it is not parked. */
static void convict_record(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	if (!partition || !skip_found_record(queue, partition, sequence))
		record_queue_park_convicted(queue, sequence);
}

/* The topic is paused: if Kafka has the record already, it is not parked. */
static void pass_paused_record(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	partition->wait.since = 0; /* it did not wait for an answer */
	if (!skip_found_record(queue, partition, sequence))
		record_queue_park_paused(queue, sequence);
}

/*
 * Parks or passes the partition's first held record, which is known, if it must not be sent. False:
 * it is sent, or waits, like any other.
 */
static bool settle_held(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	const struct record *record = record_queue_at(queue, sequence);
	bool convicted =
	    record->convicted && (partition->wait.stall == STALL_PARKS ||
				     record_queue_found_decides(queue, partition, sequence));
	bool stalled = partition->wait.stall == STALL_PARKS;
	bool paused = record_queue_pause_parks(queue, partition, sequence);
	if (!stalled && !record->is_parked && !convicted && !paused)
		return false;

	pop_record(queue, &partition->held);
	queue->held_count--;
	if (record->is_parked)
		record_queue_stands(queue, sequence);
	else if (convicted)
		convict_record(queue, partition, sequence);
	else if (stalled)
		record_queue_park_stalled(queue, sequence);
	else
		pass_paused_record(queue, partition, sequence);
	return true;
}

/* Sends a held record, from the partitions whose held records may go now. */
static bool send_held(
    struct record_queue *queue, int64_t now, uint64_t end, struct stream_record *ret_record)
{
	while (queue->ready_first) {
		struct partition_queue *partition = queue->ready_first;
		uint64_t sequence = partition->held.head;
		bool known = sequence && record_queue_at(queue, sequence)->key_known;
		if (known && settle_held(queue, partition, sequence))
			continue;

		if (known && sequence < end && may_send_record(queue, partition, sequence)) {
			pop_record(queue, &partition->held);
			queue->held_count--;
			if (skip_found_record(queue, partition, sequence) ||
			    record_queue_park_behind(queue, sequence))
				continue;
			send_on_partition(queue, now, partition, sequence, ret_record);
			return true;
		}

		queue->ready_first = partition->next_ready;
		partition->in_ready = false;
		if (known && sequence < end && partition->under_way + partition->written == 0)
			record_queue_tail_seek(queue, partition, sequence);
	}
	return false;
}

static void refuse_partition(struct record_queue *queue, uint64_t sequence)
{
	const struct record *record = record_queue_at(queue, sequence);
	char error[128];
	if (record_queue_park_behind(queue, sequence))
		return;
	snprintf(error, sizeof error, "the row wants partition %d, the topic has %d",
	    record->partition, record->topic->count);
	record_queue_park_refused(queue, sequence, error);
}

/*
 * Must the records behind this one wait? A row that names a partition which the topic does not have
 * cannot be held on a partition, and records of its key may be in flight on any. The same holds for
 * such a row, or a convicted one, while it is not known whether its key is parked.
 */
static bool must_wait(const struct record_queue *queue, uint64_t sequence)
{
	const struct record *record = record_queue_at(queue, sequence);
	if (record->state != RECORD_PENDING)
		return false;
	bool astray = record->message.partition >= record->topic->count &&
		      record->topic->state == TOPIC_READY;
	return (astray && sequence > queue->acked) ||
	       (!record->key_known && (astray || record->convicted));
}

/* Convicts the record, or holds it until it is decided whether Kafka has it. */
static void convict_or_hold(struct record_queue *queue, uint64_t sequence)
{
	struct partition_queue *partition = record_queue_at(queue, sequence)->topic->count
						? partition_queue_of(queue, sequence)
						: NULL;
	if (!partition || record_queue_found_decides(queue, partition, sequence)) {
		convict_record(queue, partition, sequence);
		return;
	}
	hold_record(queue, partition, sequence);
	record_queue_list_ready(queue, partition);
}

/* True: the record is settled without regard to its partition's state. */
static bool settle_record(struct record_queue *queue, uint64_t sequence)
{
	const struct record *record = record_queue_at(queue, sequence);
	if (record->later)
		record_queue_schedule(queue, sequence);
	else if (record->is_parked)
		record_queue_stands(queue, sequence);
	else if (record->convicted)
		convict_or_hold(queue, sequence);
	else
		return false;
	return true;
}

/* Holds the record for its topic; if the topic is stalled, only until its look-up is answered. */
static void wait_for_topic(struct record_queue *queue, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	record_move(queue, record, RECORD_HELD);
	push_record(queue, &record->topic->held, sequence);
	record_queue_topic_waits(queue, record->topic);
	if (record->topic->wait.stall == STALL_PARKS)
		park_topic_held(queue, record->topic);
}

/* Decides about the next record in order; true: it goes out now. */
static bool consider_record(
    struct record_queue *queue, int64_t now, uint64_t sequence, struct stream_record *ret_record)
{
	struct record *record = record_queue_at(queue, sequence);
	if (record->state != RECORD_PENDING)
		return false;
	if (settle_record(queue, sequence))
		return false;

	record_queue_topic_use(queue, record->topic);
	if (record->topic->wait.stall == STALL_PARKS || record->topic->state != TOPIC_READY) {
		wait_for_topic(queue, sequence);
		return false;
	}

	struct partition_queue *partition = partition_queue_of(queue, sequence);
	if (!partition) {
		refuse_partition(queue, sequence);
		return false;
	}

	/* Records leave a partition in order: behind a held one this one must be held, too. */
	bool waits = partition->held.head || !record->key_known;
	bool stalled =
	    partition->wait.stall == STALL_PARKS ||
	    (partition_is_barred(partition) && record_queue_denial_parks(queue, partition));
	if (stalled && !waits) {
		record_queue_park_stalled(queue, sequence);
		return false;
	}
	if (waits || stalled || !may_send_record(queue, partition, sequence)) {
		if (!partition->wait.since && record->key_known)
			partition->wait.since = now;
		hold_record(queue, partition, sequence);
		if (stalled || partition->state == PARTITION_CUT || record->topic->paused)
			record_queue_list_ready(queue, partition);
		return false;
	}

	if (skip_found_record(queue, partition, sequence) ||
	    record_queue_park_behind(queue, sequence))
		return false;
	send_on_partition(queue, now, partition, sequence, ret_record);
	return true;
}

bool record_queue_send(
    struct record_queue *queue, int64_t now, bool gaps_only, struct stream_record *ret_record)
{
	uint64_t end = gaps_only ? queue->highest_sent : queue->end;

	/* Another count moves keys to other partitions: no record may be in flight at that time. */
	if (queue->changing || record_queue_has_changed_topics(queue))
		return false;
	if (send_held(queue, now, end, ret_record))
		return true;
	while (queue->next < end && !record_queue_is_full(queue) && !must_wait(queue, queue->next))
		if (consider_record(queue, now, queue->next++, ret_record))
			return true;
	/* Records that were held just now may have to be parked, or sought in a tail. */
	return send_held(queue, now, end, ret_record);
}

static bool has_barred_partition(const struct record *record)
{
	const struct topic *topic = record->topic;
	return record->partition >= 0 && record->partition < topic->partition_queue_count &&
	       partition_is_barred(topic->partition_queues[record->partition]);
}

bool record_queue_has_gap(const struct record_queue *queue)
{
	for (uint64_t s = queue->acked; s < queue->highest_sent; s++) {
		const struct record *record = record_queue_at(queue, s);
		if (record_waits(record) && record->topic->state != TOPIC_ASKED &&
		    !has_barred_partition(record))
			return true;
	}
	return false;
}

/* Holds a record that was refused before it was sent, until nothing is in flight on its partition.
 */
static void hold_first_alone(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	record_move(queue, record, RECORD_HELD);
	record->next_held = partition->held.head;
	if (!partition->held.head)
		partition->held.tail = sequence;
	partition->held.head = sequence;
	partition->alone_until = sequence;
	queue->held_count++;
}

bool record_queue_report(struct record_queue *queue, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error, bool *ret_wants_producer)
{
	*ret_wants_producer = false;

	/* A late report: the record is settled, forgotten, or pending for another producer. */
	if (sequence < queue->acked || sequence >= queue->end ||
	    record_queue_at(queue, sequence)->state != RECORD_SENT)
		return false;

	struct record *record = record_queue_at(queue, sequence);
	struct partition_queue *partition = record->topic->partition_queues[record->partition];
	queue->unreported--;
	if (delivery == STREAM_WRITTEN)
		record_queue_hear(queue, now);
	bool denied = delivery == STREAM_DENIED || delivery == STREAM_FAILED;
	bool convicts =
	    denied && record_queue_deny(queue, now, sequence, delivery == STREAM_DENIED, error);

	if (delivery == STREAM_AGAIN || (denied && !convicts) ||
	    (delivery == STREAM_REFUSED && !partition->solo)) {
		/* The record stays sent and in flight: record_queue_producer_lost sends it again.
		 */
		record->suspect |= delivery == STREAM_REFUSED || delivery == STREAM_FAILED;
		*ret_wants_producer = true;
		return true;
	}

	if (delivery == STREAM_WRITTEN) {
		note_written_record(queue, record, partition, offset);
		partition->fresh[queue->turn] = false;
		partition->acked_at[queue->turn] = now;
		if (record->topic->denial)
			record_queue_admit(queue, partition);
	} else if (partition->solo || partition->under_way + partition->written == 1) {
		record_queue_park_refused(queue, sequence, error);
	} else {
		hold_first_alone(queue, partition, sequence);
	}

	*ret_wants_producer = delivery == STREAM_REFUSED || denied;
	partition->solo = false;
	partition->under_way--;
	queue->under_way--;
	record_queue_list_ready(queue, partition);
	return true;
}

/* All records that are not acknowledged go again, in order; suspects go alone. */
void record_queue_producer_lost(struct record_queue *queue)
{
	record_queue_tails_lost(queue);
	record_queue_reset_partitions(queue);

	for (uint64_t s = queue->acked; s < queue->end; s++) {
		struct record *record = record_queue_at(queue, s);
		/* Records that Kafka has, and those that are kept back, do not go again. */
		if (!record_waits(record) && !record_has_producer(record))
			continue;
		record_move(queue, record, RECORD_PENDING);
		if (record->suspect && record->partition < record->topic->count)
			record->topic->partition_queues[record->partition]->alone_until = s;
	}
	queue->next = queue->acked;
}
