/*
 * The destinations in the next log row: offsets that moved, and topics that are opened, get another
 * partition count, are closed or gone. A row has a maximum size; the rest goes into later rows,
 * which does no harm: an offset that is too low only makes a tail longer.
 *
 * After ROWS_A_FOLD rows, or PARTITIONS_A_FOLD partitions in them, a row folds the changes of these
 * rows into outbox.destination. A fold writes the offsets of whole topics, so all partitions of a
 * topic count: a topic of a thousand partitions costs a thousand, however few of them changed.
 * After a late tick the rows have fewer changes, and a fold ends before its own row, until all rows
 * are folded.
 *
 * A row that closes topics folds all rows: the topics are forgotten in memory, and an owner that
 * uses one of them again reads it from the table.
 */
#include <stdlib.h>

#include "record_queue_private.h"

enum {
	PARTITIONS_A_ROW = 500,
	ROWS_A_FOLD = 64,
	PARTITIONS_A_FOLD = 2000,
	LEAST_A_FOLD = 4, /* minimum of rows; more than are written between two folds */
};

static int64_t most_fold_partitions(const struct record_queue *queue)
{
	int64_t most = PARTITIONS_A_FOLD >> queue->fold_halves;
	return most < 1 ? 1 : most;
}

void record_queue_partition_changes(struct record_queue *queue, struct partition_queue *partition)
{
	struct topic *topic = partition->topic;
	if (partition->offset_changed)
		return;
	partition->offset_changed = true;
	partition->next_changed = NULL;
	if (topic->changed_first)
		topic->changed_last->next_changed = partition;
	else
		topic->changed_first = partition;
	topic->changed_last = partition;
	TOPIC_LIST(queue, topic, changed);
}

static struct partition_queue *pop_changed(struct topic *topic)
{
	struct partition_queue *partition = topic->changed_first;
	topic->changed_first = partition->next_changed;
	partition->offset_changed = false;
	return partition;
}

/* Topic names have only letters, digits, dots, dashes and underscores: nothing to escape. */
static void begin_topic_json(struct topic *topic, struct text *json, bool *begun)
{
	int32_t count = topic->logging ? topic->logging : topic->count;
	if (!*begun)
		text_addf(json, "%s\"%s\":[%d,{", json->length > 1 ? "," : "", topic->name, count);
	*begun = true;
}

static void add_offsets(
    struct record_queue *queue, struct topic *topic, struct text *json, bool *begun)
{
	bool first = true;

	while (topic->changed_first && queue->row_partitions < PARTITIONS_A_ROW) {
		struct partition_queue *partition = pop_changed(topic);
		int64_t offset = record_queue_tail_offset(partition);
		if (offset == partition->logged_offset || partition->number >= topic->count)
			continue;
		begin_topic_json(topic, json, begun);
		text_addf(
		    json, "%s\"%d\":%lld", first ? "" : ",", partition->number, (long long)offset);
		first = false;
		partition->logging_offset = offset;
		partition->offset_changed = true;
		LL_PREPEND2(queue->row_partition_queues, partition, next_changed);
		queue->row_partitions++;
	}
}

/* False: the row does not mention the topic. */
static bool add_topic_changes(
    struct record_queue *queue, bool changed, struct topic *topic, struct text *json)
{
	bool counts = topic->state == TOPIC_NEW || (changed && topic->state == TOPIC_CHANGED);
	bool closes = !queue->closes_later && record_queue_topic_closes(queue, topic);
	bool gone = closes && topic->missing, begun = false;
	bool known = topic->log == LOG_LOADED ? topic->open || counts || closes : closes;
	if ((topic->state == TOPIC_CHANGED && !changed) || !known)
		return false;

	topic->logging = counts ? topic->reported_count : 0;
	queue->changing |= topic->logging && topic->count != topic->logging && topic->count;
	queue->row_partitions += counts || closes;
	if (gone) {
		text_addf(json, "%s\"%s\":null", json->length > 1 ? "," : "", topic->name);
		return true;
	}

	if (counts || closes)
		begin_topic_json(topic, json, &begun);
	if (!topic->logging || topic->count == topic->logging)
		add_offsets(queue, topic, json, &begun);
	if (begun)
		text_add(json, closes && !topic->changed_first ? "},false]" : "}]");
	return begun;
}

/*
 * Later records of the topic wait until the row is written. When a topic is gone, its offsets that
 * are not logged yet are dropped.
 */
static void begin_closing(struct record_queue *queue, struct topic *topic)
{
	if (!topic->closes || queue->closes_later || (topic->changed_first && !topic->missing))
		return;
	topic->state = TOPIC_CLOSING;
	queue->row_closes = true;
}

/* A topic counts once between two folds. */
static void add_cost(struct record_queue *queue, const struct topic *topic)
{
	int32_t count = topic->logging > topic->count ? topic->logging : topic->count;
	if (topic->cost_n != queue->folded_n)
		queue->row_cost += count < 1 ? 1 : count;
}

static bool row_has_room(const struct record_queue *queue)
{
	return queue->row_partitions < PARTITIONS_A_ROW >> queue->fold_halves ||
	       (!queue->row_partitions && !queue->row_topics);
}

void record_queue_destinations(
    struct record_queue *queue, int64_t n, bool changed, int halves, struct text *ret_json)
{
	struct topic *topic, *next;
	queue->fold_halves = halves;
	queue->closes_later = halves && queue->folded_n + 1 < n;

	text_add(ret_json, "{");
	DL_FOREACH_SAFE2(queue->changed, topic, next, in_changed.next)
	{
		if (!row_has_room(queue) ||
		    queue->unfolded_cost + queue->row_cost >= most_fold_partitions(queue))
			break;
		if (!add_topic_changes(queue, changed, topic, ret_json)) {
			if (topic->state != TOPIC_CHANGED &&
			    !(queue->closes_later && topic->closes))
				TOPIC_UNLIST(queue, topic, changed);
			continue;
		}
		add_cost(queue, topic);
		begin_closing(queue, topic);
		LL_PREPEND2(queue->row_topics, topic, next_in_row);
		if (!topic->changed_first)
			TOPIC_UNLIST(queue, topic, changed);
	}
	text_add(ret_json, "}");
}

int64_t record_queue_fold_to(const struct record_queue *queue, int64_t n)
{
	int64_t rows = n - queue->folded_n, part = rows >> queue->fold_halves;
	bool folds = queue->row_closes || rows >= ROWS_A_FOLD || (queue->fold_halves && rows > 1) ||
		     queue->unfolded + queue->row_partitions >= PARTITIONS_A_FOLD ||
		     queue->unfolded_cost + queue->row_cost >= most_fold_partitions(queue);
	if (part < LEAST_A_FOLD)
		part = rows < LEAST_A_FOLD ? rows : LEAST_A_FOLD;
	return !folds ? 0 : queue->row_closes ? n : queue->folded_n + part;
}

static void note_logged_partitions(struct record_queue *queue, bool written)
{
	struct partition_queue *partition;
	while ((partition = queue->row_partition_queues)) {
		LL_DELETE2(queue->row_partition_queues, partition, next_changed);
		partition->offset_changed = false;
		if (written)
			partition->logged_offset = partition->logging_offset;
		if (record_queue_tail_offset(partition) != partition->logged_offset)
			record_queue_partition_changes(queue, partition);
		if (written)
			record_queue_tail_logged(queue, partition);
	}
}

static void note_logged_topic(struct record_queue *queue, struct topic *topic, bool written)
{
	int32_t count = written ? topic->logging : 0;

	if (written)
		topic->cost_n = queue->folded_n;
	topic->logging = 0;
	if (topic->state == TOPIC_CLOSING && written) {
		record_queue_topic_drop(queue, topic);
		return;
	}
	if (topic->state == TOPIC_CLOSING && topic->closes)
		TOPIC_LIST(queue, topic, changed);
	if (count) {
		topic->open = true;
		record_queue_topic_count(queue, topic, count);
	}
	record_queue_topic_settle(queue, topic);
}

void record_queue_logged(struct record_queue *queue, int64_t n, int64_t folded_to, bool written)
{
	struct topic *topic;
	bool changing = queue->changing && written;
	queue->changing = queue->row_closes = false;
	record_queue_parks_logged(queue, written);
	if (changing) /* no record is in flight: held records move to their new queues */
		record_queue_producer_lost(queue);

	if (written) {
		queue->unfolded += queue->row_partitions;
		queue->unfolded_cost += queue->row_cost;
	}
	if (written && folded_to) {
		queue->folded_n = folded_to;
		/* After a partial fold the counts stay too large, so the next row folds again. */
		queue->unfolded = folded_to == n ? 0 : queue->unfolded;
		queue->unfolded_cost = folded_to == n ? 0 : queue->unfolded_cost;
	}

	queue->row_partitions = queue->row_cost = 0;
	note_logged_partitions(queue, written);
	while ((topic = queue->row_topics)) {
		LL_DELETE2(queue->row_topics, topic, next_in_row);
		note_logged_topic(queue, topic, written);
	}
}

void record_queue_rows_forget(struct record_queue *queue)
{
	queue->row_topics = NULL;
	queue->row_partition_queues = NULL;
	queue->row_partitions = queue->row_cost = 0;
	queue->row_closes = false;
	queue->unfolded = queue->unfolded_cost = 0;
}
