/*
 * Tails: records that a former owner, or a lost producer, wrote and that no log row covers. A
 * partition queue opens once its partition was read from the logged offset (or the last
 * acknowledgement) to the end. A row whose record was found there counts as acknowledged when it is
 * read, and is not sent again. record_queue_states.c has the states, and docs/reference/states.md
 * draws them.
 *
 * A row is recognised by its id and its event id, not by its position: windows outlive epochs, and
 * a database that went back in time may issue ids and ticks again, but never an event id.
 *
 * With transactions a lost producer leaves every partition unread: an owner that published since
 * may have fenced it. The tails are read once the next producer has fenced all others.
 *
 * The logged offset stays in front of a found record until its row is passed. Otherwise the next
 * owner would not find the record.
 *
 * The offset of a silent partition moves up to the partition's end now and then, so that the next
 * owner need not read the records that other programs wrote to it in the meantime.
 *
 * A take-over may want thousands of tails: at most TAILS_AT_ONCE are requested at a time. A
 * question without an answer for a second no longer counts, so that partitions that are away do not
 * delay others.
 *
 * move_partition is the only function that changes a state; read it first, then
 * record_queue_tail_call, record_queue_tail_record and record_queue_tail_end.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "record_queue_private.h"

enum {
	TAILS_AT_ONCE = 256,
	ANSWER_MS = 1000,
};

int64_t record_queue_tail_offset(const struct partition_queue *partition)
{
	int64_t offset = partition->offset, cut = record_queue_cut_offset(partition);
	if (partition->first && partition->first->offset <= offset)
		offset = partition->first->offset - 1;
	if (cut != OFFSET_NONE && cut <= offset)
		offset = cut - 1;
	return offset;
}

static bool sends_records(const struct partition_queue *partition)
{
	return partition->state == PARTITION_OPEN || partition->state == PARTITION_CUT;
}

bool record_queue_tail_is_known(const struct partition_queue *partition)
{
	return sends_records(partition) || partition->state == PARTITION_UNSOUGHT ||
	       partition->state == PARTITION_SEEKING;
}

static bool is_reading_tail(const struct partition_queue *partition)
{
	return partition->state == PARTITION_READING || partition->state == PARTITION_SEEKING;
}

static void want_question(struct record_queue *queue, struct partition_queue *partition)
{
	if (!partition->prev_wanted)
		DL_APPEND2(queue->wanted, partition, prev_wanted, next_wanted);
}

static void unwant_question(struct record_queue *queue, struct partition_queue *partition)
{
	if (partition->prev_wanted)
		DL_DELETE2(queue->wanted, partition, prev_wanted, next_wanted);
	partition->prev_wanted = NULL;
}

static void stop_awaiting_tail(struct record_queue *queue, struct partition_queue *partition)
{
	if (!partition->awaited)
		return;
	partition->awaited = false;
	partition->topic->awaited_count--;
	queue->awaited_count -= !partition->topic->missing;
}

/* The partition was read to its end: its records flow; with a cut, only the decided ones. */
static void let_records_out(struct record_queue *queue, struct partition_queue *partition)
{
	partition->first_tail = false;
	stop_awaiting_tail(queue, partition);
	record_queue_partition_recovers(queue, partition);
	record_queue_list_ready(queue, partition);
}

/* Only this function changes the state, so that the counters and the list of questions stay
 * correct. */
static void move_partition(
    struct record_queue *queue, struct partition_queue *partition, enum partition_state state)
{
	bool asked = is_reading_tail(partition) || partition->asked_end;
	states_check(&partition_queue_states, partition->state, state);
	if (asked && queue->asked > 0)
		queue->asked--;
	queue->unlogged += (state == PARTITION_UNLOGGED) - (partition->state == PARTITION_UNLOGGED);
	partition->state = state;
	partition->asked_end = false;

	if (state == PARTITION_UNREAD || state == PARTITION_UNSOUGHT)
		want_question(queue, partition);
	else
		unwant_question(queue, partition);
	if (state == PARTITION_UNREAD)
		record_queue_cut_unsettle(queue, partition);
	if (state == PARTITION_UNLOGGED || partition->cut)
		record_queue_partition_changes(queue, partition);
	if (state == PARTITION_OPEN || state == PARTITION_CLOSED) {
		record_queue_cut_drop(queue, partition);
		partition->keeps_passed = false;
	}

	if (sends_records(partition) || state == PARTITION_CLOSED)
		let_records_out(queue, partition);
	if (STATES_CHECKED)
		partition_check(queue, partition);
}

bool record_queue_tail_lets(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence)
{
	return partition->state == PARTITION_OPEN ||
	       (partition->state == PARTITION_CUT &&
		   record_queue_found_decides(queue, partition, sequence));
}

void record_queue_tail_seek(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	if (partition->state == PARTITION_CUT && !partition_is_barred(partition) &&
	    !record_queue_found_decides(queue, partition, sequence))
		move_partition(queue, partition, PARTITION_UNSOUGHT);
}

void record_queue_tail_again(struct record_queue *queue, struct partition_queue *partition)
{
	if (queue->resumes && record_queue_tail_is_known(partition))
		move_partition(queue, partition, PARTITION_UNREAD);
}

void record_queue_tails_begin(struct record_queue *queue, struct topic *topic, int32_t from)
{
	for (int32_t p = from; p < topic->partition_queue_count && queue->resumes; p++) {
		/* Rows in flight when the topic went away were parked without reading the tail. */
		topic->partition_queues[p]->keeps_passed |= topic->wait.stall != STALL_NONE;
		move_partition(queue, topic->partition_queues[p], PARTITION_UNREAD);
	}
}

void record_queue_tail_want(struct record_queue *queue, struct partition_queue *partition)
{
	if (partition->state == PARTITION_UNREAD || partition->state == PARTITION_UNSOUGHT)
		want_question(queue, partition);
}

void record_queue_tail_close(struct record_queue *queue, struct partition_queue *partition)
{
	record_queue_found_forget(queue, partition);
	record_queue_cut_drop(queue, partition);
	move_partition(queue, partition, PARTITION_CLOSED);
	record_queue_partition_unwatch(queue, partition);
}

static void reread_after_loss(struct record_queue *queue, struct partition_queue *partition)
{
	bool read = record_queue_tail_is_known(partition);
	if (partition->under_way || queue->transactions ||
	    (partition->wait.stall == STALL_PARKS && read)) {
		move_partition(queue, partition, PARTITION_UNREAD);
	} else if (read && partition->cut) {
		/* With another count of partitions other rows may wait on it from now on. */
		record_queue_cut_unsettle(queue, partition);
		move_partition(queue, partition, PARTITION_CUT);
	}
}

void record_queue_tails_lost(struct record_queue *queue)
{
	for (struct topic *topic = queue->topics; queue->resumes && topic; topic = topic->hh.next)
		for (int32_t p = 0; p < topic->partition_queue_count; p++)
			reread_after_loss(queue, topic->partition_queues[p]);
}

/* The log's offset must be in front of the records that are sent next, for the next owner. */
static bool must_log_offset(const struct partition_queue *partition)
{
	return partition->logged_offset == OFFSET_NONE ||
	       partition->logged_offset > partition->offset;
}

void record_queue_tail_logged(struct record_queue *queue, struct partition_queue *partition)
{
	if (partition->state == PARTITION_UNLOGGED && !must_log_offset(partition))
		move_partition(queue, partition, partition->cut ? PARTITION_CUT : PARTITION_OPEN);
}

/* --- questions and answers ------------------------------------------------------------------ */

static void put_question(
    struct record_queue *queue, struct partition_queue *partition, struct stream_tail *ret_tail)
{
	partition->question = ++queue->questions;
	*ret_tail = (struct stream_tail){.topic = partition->topic->name,
	    .partition = partition->number,
	    .number = partition->question,
	    .offset = STREAM_TAIL_END};
	queue->asked++;
	if (sends_records(partition)) {
		partition->asked_end = true;
		return;
	}

	record_queue_found_begin(queue, partition);
	if (partition->known_offset != OFFSET_NONE)
		ret_tail->offset = ret_tail->least = partition->known_offset + 1;
	if (partition->cut)
		ret_tail->offset = record_queue_cut_offset(partition);
	move_partition(queue, partition,
	    partition->state == PARTITION_UNSOUGHT ? PARTITION_SEEKING : PARTITION_READING);
}

static bool may_ask_tail(struct record_queue *queue, int64_t now)
{
	if (queue->asked < TAILS_AT_ONCE)
		return true;
	if (now - queue->asked_at < ANSWER_MS)
		return false;
	queue->asked_at = now;
	queue->asked = 0;
	return true;
}

/* A queue that leaves `wanted` without a question comes back when its topic or count is known. */
bool record_queue_tail_call(struct record_queue *queue, int64_t now, struct stream_tail *ret_tail)
{
	while (queue->wanted && may_ask_tail(queue, now)) {
		struct partition_queue *partition = queue->wanted;
		const struct topic *topic = partition->topic;
		unwant_question(queue, partition);
		if (topic->state == TOPIC_ASKED || partition->number >= topic->count)
			continue;

		if (queue->asked == 0)
			queue->asked_at = now;
		put_question(queue, partition, ret_tail);
		return true;
	}
	return false;
}

/* NULL: the question is not the newest one of its partition, or the partition is forgotten. */
static struct partition_queue *asked_partition(
    struct record_queue *queue, const struct stream_question *question)
{
	struct partition_queue *partition =
	    record_queue_partition(queue, question->topic, question->partition);
	return partition && partition->question == question->number ? partition : NULL;
}

enum record_found record_queue_tail_record(struct record_queue *queue,
    const struct stream_question *question, int64_t offset, int64_t id, const char event_id[16])
{
	struct partition_queue *partition = asked_partition(queue, question);
	struct seen_name name = {.id = id};

	if (!partition || !is_reading_tail(partition))
		return RECORD_FOUND_STALE;
	partition->wait.since = 0;
	memcpy(name.event_id, event_id, sizeof name.event_id);
	enum record_found found = record_queue_found_take(queue, partition, &name, offset);
	if (found == RECORD_FOUND_ENOUGH) {
		record_queue_cut_enough(partition);
		move_partition(queue, partition, PARTITION_CUT);
	}
	return found;
}

/* The offset stays while found records wait for their rows: the next owner must find them, too. */
static void move_offset_to_end(
    struct record_queue *queue, struct partition_queue *partition, int64_t end)
{
	partition->asked_end = false;
	queue->asked -= queue->asked > 0;
	if (queue->found_count || queue->cuts || partition->under_way || partition->written ||
	    partition->unpassed || end - 1 <= partition->offset)
		return;
	partition->offset = partition->known_offset = end - 1;
	record_queue_partition_changes(queue, partition);
}

void record_queue_tail_end(
    struct record_queue *queue, const struct stream_question *question, int64_t end, bool beyond)
{
	struct partition_queue *partition = asked_partition(queue, question);
	if (!partition)
		return;
	partition->wait.since = 0;
	record_queue_hear(queue, queue->watched_at);
	if (partition->asked_end && !is_reading_tail(partition))
		move_offset_to_end(queue, partition, end);
	if (!is_reading_tail(partition))
		return;

	queue->recreated |= beyond;
	if (beyond || partition->offset == OFFSET_NONE)
		partition->offset = end - 1;
	if (beyond || end - 1 > partition->known_offset)
		partition->known_offset = end - 1;
	if (beyond)
		record_queue_cut_drop(queue, partition);

	bool cut = record_queue_cut_end(queue, partition, end);
	move_partition(queue, partition,
	    must_log_offset(partition) ? PARTITION_UNLOGGED
	    : cut                      ? PARTITION_CUT
				       : PARTITION_OPEN);
}

bool record_queue_tail_failed(struct record_queue *queue, const struct stream_question *question)
{
	struct partition_queue *partition = asked_partition(queue, question);
	if (!partition || (!is_reading_tail(partition) && !partition->asked_end))
		return false;
	if (partition->asked_end)
		move_partition(queue, partition, partition->state);
	else
		move_partition(
		    queue, partition, queue->transactions ? PARTITION_UNREAD : PARTITION_OPEN);
	return true;
}

bool record_queue_awaits_first_tails(const struct record_queue *queue)
{
	return queue->awaited_count > 0;
}

bool record_queue_must_log_tails(const struct record_queue *queue)
{
	return queue->unlogged > 0;
}

void record_queue_tail_move(struct record_queue *queue, struct partition_queue *partition)
{
	if (queue->resumes && sends_records(partition) && !partition->asked_end &&
	    partition->known_offset != OFFSET_NONE)
		want_question(queue, partition);
}

bool record_queue_tail_rests(const struct partition_queue *partition, bool away)
{
	if (partition->under_way || partition->written || partition->unpassed ||
	    partition->held.head || partition->in_ready || partition->found || partition->cut ||
	    partition->wait.stall != STALL_NONE)
		return false;
	return away || (partition->state == PARTITION_OPEN && !partition->prev_wanted &&
			   !partition->asked_end);
}

/* Asks for the ends of some topics' partitions; each call continues after the topics of the last.
 */
void record_queue_tails_ask(struct record_queue *queue)
{
	int partitions = 0;
	for (int i = 0; i < queue->round_count && partitions < TAILS_AT_ONCE; i++) {
		struct topic *topic = queue->round;
		TOPIC_UNLIST(queue, topic, round);
		TOPIC_LIST(queue, topic, round);
		for (int32_t p = 0; p < topic->count && topic->state != TOPIC_ASKED; p++)
			record_queue_tail_move(queue, topic->partition_queues[p]);
		partitions += topic->count;
	}
}

/* A reading that began at a cut begins again, after the last known offset. */
static void forget_partition_found(struct record_queue *queue, struct partition_queue *partition)
{
	bool cut = partition->cut;
	record_queue_found_forget(queue, partition);
	record_queue_cut_drop(queue, partition);
	record_queue_partition_changes(queue, partition);
	if (cut && record_queue_tail_is_known(partition))
		move_partition(queue, partition, PARTITION_OPEN);
	else if (cut && partition->state == PARTITION_READING)
		move_partition(queue, partition, PARTITION_UNREAD);
}

void record_queue_forget_found(struct record_queue *queue)
{
	for (struct topic *topic = queue->topics; topic && (queue->found_count || queue->cuts);
	     topic = topic->hh.next)
		for (int32_t p = 0; p < topic->partition_queue_count; p++)
			if (topic->partition_queues[p]->found || topic->partition_queues[p]->cut)
				forget_partition_found(queue, topic->partition_queues[p]);
}

int64_t record_queue_skipped(const struct record_queue *queue)
{
	return queue->skipped;
}

bool record_queue_recreated(const struct record_queue *queue)
{
	return queue->recreated;
}

void record_queue_epoch_begins(struct record_queue *queue)
{
	queue->recreated = false;
}
