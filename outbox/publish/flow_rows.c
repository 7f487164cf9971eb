/*
 * The destinations in the next log row: offsets that moved, and topics that are opened, get another
 * partition count, are closed or gone. A row has a maximum size; the rest goes into later rows,
 * which costs nothing: an offset that is too low only makes a tail longer.
 *
 * Every so many rows, or partitions in them, a row folds what they say into outbox.destination. A
 * fold writes the offsets of whole topics, so these count as well: a topic of a thousand partitions
 * costs a thousand, whatever the rows say of it. After a tick that was late the rows say less, and
 * a fold ends with a row in front of its own, until all rows are folded.
 *
 * A row that closes topics folds all: it is forgotten here what they were, and who comes back to
 * one reads the table.
 */
#include <stdlib.h>

#include "flow_private.h"

enum {
	PARTITIONS_A_ROW = 500,
	ROWS_A_FOLD = 64,
	PARTITIONS_A_FOLD = 2000,
	LEAST_A_FOLD = 4, /* rows: more than are written between two folds */
};

static int64_t most_of_fold(const struct flow *flow)
{
	int64_t most = PARTITIONS_A_FOLD >> flow->fold_halves;
	return most < 1 ? 1 : most;
}

void flow_partition_changes(struct flow *flow, struct partition_queue *partition)
{
	struct topic *topic = partition->topic;
	if (partition->changed)
		return;
	partition->changed = true;
	partition->next_changed = NULL;
	if (topic->changed)
		topic->changed_last->next_changed = partition;
	else
		topic->changed = partition;
	topic->changed_last = partition;
	TOPIC_LIST(flow, topic, changed);
}

static struct partition_queue *pop_changed(struct topic *topic)
{
	struct partition_queue *partition = topic->changed;
	topic->changed = partition->next_changed;
	partition->changed = false;
	return partition;
}

/* Topic names hold only letters, digits, dots, dashes and underscores: nothing to escape. */
static void begin_topic(struct topic *topic, struct text *json, bool *begun)
{
	int32_t count = topic->logging ? topic->logging : topic->count;
	if (!*begun)
		text_addf(json, "%s\"%s\":[%d,{", json->length > 1 ? "," : "", topic->name, count);
	*begun = true;
}

static void add_offsets(struct flow *flow, struct topic *topic, struct text *json, bool *begun)
{
	bool first = true;
	while (topic->changed && flow->row_partitions < PARTITIONS_A_ROW) {
		struct partition_queue *partition = pop_changed(topic);
		int64_t offset = flow_tail_offset(partition);
		if (offset == partition->logged_offset || partition->number >= topic->count)
			continue;
		begin_topic(topic, json, begun);
		text_addf(
		    json, "%s\"%d\":%lld", first ? "" : ",", partition->number, (long long)offset);
		first = false;
		partition->logging_offset = offset;
		partition->changed = true;
		LL_PREPEND2(flow->row_partition_queues, partition, next_changed);
		flow->row_partitions++;
	}
}

/* False: the row says nothing of it. */
static bool add_topic(struct flow *flow, bool changed, struct topic *topic, struct text *json)
{
	bool counts = topic->state == TOPIC_NEW || (changed && topic->state == TOPIC_CHANGED);
	bool closes = !flow->closes_later && flow_topic_closes(topic);
	bool gone = closes && topic->missing, begun = false;
	bool known = topic->log == LOG_LOADED ? topic->open || counts || closes : closes;
	if ((topic->state == TOPIC_CHANGED && !changed) || !known)
		return false;
	topic->logging = counts ? topic->known : 0;
	flow->changing |= topic->logging && topic->count != topic->logging && topic->count;
	flow->row_partitions += counts || closes;
	if (gone) {
		text_addf(json, "%s\"%s\":null", json->length > 1 ? "," : "", topic->name);
		return true;
	}
	if (counts || closes)
		begin_topic(topic, json, &begun);
	if (!topic->logging || topic->count == topic->logging)
		add_offsets(flow, topic, json, &begun);
	if (begun)
		text_add(json, closes && !topic->changed ? "},false]" : "}]");
	return begun;
}

/*
 * Records that come from here on wait until the row is written. A topic that is gone takes the
 * offsets with it that no row has said yet.
 */
static void begin_closing(struct flow *flow, struct topic *topic)
{
	if (!topic->closes || flow->closes_later || (topic->changed && !topic->missing))
		return;
	topic->state = TOPIC_CLOSING;
	flow->row_closes = true;
}

/* Only what was not folded before makes the fold larger. */
static void add_cost(struct flow *flow, const struct topic *topic)
{
	int32_t count = topic->logging > topic->count ? topic->logging : topic->count;
	if (topic->cost_n != flow->folded_n)
		flow->row_cost += count < 1 ? 1 : count;
}

static bool has_room(const struct flow *flow)
{
	return flow->row_partitions < PARTITIONS_A_ROW >> flow->fold_halves ||
	       (!flow->row_partitions && !flow->row_topics);
}

void flow_destinations(
    struct flow *flow, int64_t n, bool changed, int halves, struct text *ret_json)
{
	struct topic *topic, *next;
	flow->fold_halves = halves;
	flow->closes_later = halves && flow->folded_n + 1 < n;
	text_add(ret_json, "{");
	DL_FOREACH_SAFE2(flow->changed, topic, next, in_changed.next)
	{
		if (!has_room(flow) || flow->unfolded_cost + flow->row_cost >= most_of_fold(flow))
			break;
		if (!add_topic(flow, changed, topic, ret_json)) {
			if (topic->state != TOPIC_CHANGED && !(flow->closes_later && topic->closes))
				TOPIC_UNLIST(flow, topic, changed);
			continue;
		}
		add_cost(flow, topic);
		begin_closing(flow, topic);
		LL_PREPEND2(flow->row_topics, topic, next_in_row);
		if (!topic->changed)
			TOPIC_UNLIST(flow, topic, changed);
	}
	text_add(ret_json, "}");
}

int64_t flow_fold_to(const struct flow *flow, int64_t n)
{
	int64_t rows = n - flow->folded_n, part = rows >> flow->fold_halves;
	bool folds = flow->row_closes || rows >= ROWS_A_FOLD || (flow->fold_halves && rows > 1) ||
		     flow->unfolded + flow->row_partitions >= PARTITIONS_A_FOLD ||
		     flow->unfolded_cost + flow->row_cost >= most_of_fold(flow);
	if (part < LEAST_A_FOLD)
		part = rows < LEAST_A_FOLD ? rows : LEAST_A_FOLD;
	return !folds ? 0 : flow->row_closes ? n : flow->folded_n + part;
}

static void log_partitions(struct flow *flow, bool written)
{
	struct partition_queue *partition;
	while ((partition = flow->row_partition_queues)) {
		LL_DELETE2(flow->row_partition_queues, partition, next_changed);
		partition->changed = false;
		if (written)
			partition->logged_offset = partition->logging_offset;
		if (flow_tail_offset(partition) != partition->logged_offset)
			flow_partition_changes(flow, partition);
		if (written)
			flow_tail_logged(flow, partition);
	}
}

static void log_topic(struct flow *flow, struct topic *topic, bool written)
{
	int32_t count = written ? topic->logging : 0;
	if (written)
		topic->cost_n = flow->folded_n;
	topic->logging = 0;
	if (topic->state == TOPIC_CLOSING && written) {
		flow_topic_drop(flow, topic);
		return;
	}
	if (topic->state == TOPIC_CLOSING && topic->closes)
		TOPIC_LIST(flow, topic, changed);
	if (count) {
		topic->open = true;
		flow_topic_count(flow, topic, count);
	}
	flow_topic_settle(flow, topic);
}

void flow_logged(struct flow *flow, int64_t n, int64_t folded_to, bool written)
{
	struct topic *topic;
	bool changing = flow->changing && written;
	flow->changing = flow->row_closes = false;
	flow_parks_logged(flow, written);
	if (changing) /* nothing is under way: held records move to their new queues */
		flow_producer_lost(flow);
	if (written) {
		flow->unfolded += flow->row_partitions;
		flow->unfolded_cost += flow->row_cost;
	}
	if (written && folded_to) {
		flow->folded_n = folded_to;
		/* after a part they stay, too large: the next row folds again */
		flow->unfolded = folded_to == n ? 0 : flow->unfolded;
		flow->unfolded_cost = folded_to == n ? 0 : flow->unfolded_cost;
	}
	flow->row_partitions = flow->row_cost = 0;
	log_partitions(flow, written);
	while ((topic = flow->row_topics)) {
		LL_DELETE2(flow->row_topics, topic, next_in_row);
		log_topic(flow, topic, written);
	}
}

void flow_rows_forget(struct flow *flow)
{
	flow->row_topics = NULL;
	flow->row_partition_queues = NULL;
	flow->row_partitions = flow->row_cost = 0;
	flow->row_closes = false;
	flow->unfolded = flow->unfolded_cost = 0;
}
