/*
 * Stalls. A partition that acknowledges nothing for stall_after while others do must not stop them
 * for ever; nor must a topic that is missing for as long. Its records, also those in flight, are
 * parked in their order (record_queue_parks.c), and so are the records that come for it later. All
 * the while the owner tries to read its tail. Once the tail is read, the parked rows are free.
 * Records that were given up but were written nevertheless are found in the tail and not sent
 * again. Until these rows are gone, the found records are kept (stream_calls.c).
 *
 * Rows become free in batches, one with each row of the log, however many rows there are: a place
 * stays in the list of recovered places until an answer says that none of its rows is left. After a
 * crash the next owner reads every place that has rows, and begins with its tail.
 *
 * If memory has no records of other partitions that could be acknowledged, the owner asks for the
 * ends of silent partitions: if none answers, the whole cluster is away, and the owner waits for
 * it. For a missing topic the answer of the cluster is the evidence, as long as it is repeated: no
 * other partition must be known, and for the first rows of a shard none is.
 *
 * All this needs the tails: without them, and with transactions, the owner waits for a partition
 * that gives no answer. It does not wait for one that answers with an error: see
 * record_queue_denials.c.
 *
 * Read is_stalled, watch_partitions and watch_topics first, then the recovery.
 */
#include <stdlib.h>
#include <string.h>

#include "record_queue_private.h"

enum {
	LOOKS = 8,            /* looks within stall_after */
	ANSWERS_GAP_MS = 3000 /* missing topics are looked up every second, in turn */
};

/*
 * True: records waited for stall_after, and answers to others came all the while. After a time in
 * which the whole cluster was away, stall_after begins again with its first answer.
 */
static bool is_stalled(struct record_queue *queue, int64_t now, bool waits, struct wait *wait,
    const struct hearing *hearing, bool *ret_asks)
{
	int64_t stall_after = queue->stall_after;

	/* Right after the loss of a producer all records are pending, and none is on a partition.
	 */
	if (!waits && queue->next == queue->end)
		wait->since = 0;
	else if (waits && !wait->since)
		wait->since = now;
	if (!waits || now - wait->since < stall_after / 2)
		return false;

	*ret_asks |= now - hearing->at >= stall_after / LOOKS;
	int64_t begun = wait->since > hearing->since ? wait->since : hearing->since;
	return now - begun >= stall_after && now - hearing->at < hearing->gap;
}

static void note_heard(struct hearing *hearing, int64_t now, int64_t gap)
{
	hearing->gap = gap;
	if (now - hearing->at >= gap)
		hearing->since = now;
	hearing->at = now;
}

void record_queue_hear(struct record_queue *queue, int64_t now)
{
	note_heard(&queue->hearing, now, queue->stall_after / 2);
}

void record_queue_topic_answered(
    struct record_queue *queue, const char *name, int64_t answered_at, int64_t stall_after)
{
	struct topic *topic = record_queue_topic_find(queue, name, strlen(name));
	int64_t gap = stall_after / 2 > ANSWERS_GAP_MS ? stall_after / 2 : ANSWERS_GAP_MS;
	if (answered_at > topic->answers.at)
		note_heard(&topic->answers, answered_at, gap);
}

/* The place stalls again: rows parked because of it from now on stay until it recovers again. */
void record_queue_drop_recovered(struct record_queue *queue, struct topic *topic, int32_t partition)
{
	int kept = 0;
	for (int i = 0; i < queue->recovered_count; i++) {
		const struct stall *place = &queue->recovered[i];
		if (place->topic != topic || place->partition != partition)
			queue->recovered[kept++] = *place;
		else
			topic->uses--;
	}
	queue->recovered_count = kept;
}

static void raise_stall(struct record_queue *queue, struct wait *wait, int stall)
{
	queue->owed_count += wait->stall == STALL_NONE;
	if ((int)wait->stall < stall)
		wait->stall = stall;
}

bool record_queue_partition_stalls(struct record_queue *queue, struct partition_queue *partition)
{
	raise_stall(queue, &partition->wait, STALL_PARKS);
	record_queue_drop_recovered(queue, partition->topic, partition->number);
	if (partition->under_way)
		return true; /* its producer is replaced first, and then its tail is read */
	record_queue_tail_again(queue, partition);
	record_queue_list_ready(queue, partition);
	return false;
}

static void stall_topic(struct record_queue *queue, struct topic *topic)
{
	raise_stall(queue, &topic->wait, STALL_PARKS);
	record_queue_drop_recovered(queue, topic, PLACE_MISSING);
	record_queue_release_held(queue, topic);
}

void record_queue_partition_unwatch(struct record_queue *queue, struct partition_queue *partition)
{
	if (partition->prev_watched)
		DL_DELETE2(queue->watched, partition, prev_watched, next_watched);
	partition->prev_watched = NULL;
}

void record_queue_partition_waits(struct record_queue *queue, struct partition_queue *partition)
{
	if (!partition->prev_watched)
		DL_APPEND2(queue->watched, partition, prev_watched, next_watched);
}

static bool watch_partitions(struct record_queue *queue, int64_t now, bool *ret_asks)
{
	bool wants_producer = false;
	struct partition_queue *partition, *next;
	DL_FOREACH_SAFE2(queue->watched, partition, next, next_watched)
	{
		const struct topic *topic = partition->topic;

		/* A record that waits for its look-up says nothing about the partition. */
		bool held =
		    partition->held.head && record_queue_at(queue, partition->held.head)->key_known;
		bool waits = partition->wait.stall != STALL_PARKS &&
			     !partition_is_barred(partition) && (partition->under_way || held);
		if (topic->state != TOPIC_READY || partition->number >= topic->count ||
		    topic->policy == STREAM_STOP)
			continue;

		if (is_stalled(queue, now, waits, &partition->wait, &queue->hearing, ret_asks))
			wants_producer |= record_queue_partition_stalls(queue, partition);
		if (!waits && !partition->wait.since)
			record_queue_partition_unwatch(queue, partition);
	}
	return wants_producer;
}

static void watch_topics(struct record_queue *queue, int64_t now)
{
	bool ignored = false;
	struct topic *topic, *next;
	DL_FOREACH_SAFE2(queue->waiting, topic, next, in_waiting.next)
	{
		bool waits = topic->missing && topic->wait.stall != STALL_PARKS && topic->held.head;
		if (topic->policy != STREAM_STOP &&
		    is_stalled(queue, now, waits, &topic->wait, &topic->answers, &ignored))
			stall_topic(queue, topic);
		if (!topic->held.head && topic->wait.stall == STALL_NONE && !topic->wait.since)
			TOPIC_UNLIST(queue, topic, waiting);
	}
}

bool record_queue_watch_stalls(struct record_queue *queue, int64_t now, int64_t stall_after)
{
	bool wants_producer = false, asks = false;
	if (!queue->resumes || queue->transactions || now < queue->watch_at)
		return false;
	queue->watched_at = now;
	queue->stall_after = stall_after;
	queue->watch_at = now + stall_after / LOOKS;
	watch_topics(queue, now);
	wants_producer = watch_partitions(queue, now, &asks);
	if (asks)
		record_queue_tails_ask(queue);
	return wants_producer;
}

int64_t record_queue_watch_due(const struct record_queue *queue, int64_t now)
{
	bool waits = queue->resumes && !queue->transactions && queue->acked != queue->end;
	return waits && now < queue->watch_at ? queue->watch_at : INT64_MAX;
}

void record_queue_add_recovered(struct record_queue *queue, struct topic *topic, int32_t partition)
{
	for (int i = 0; i < queue->recovered_count; i++)
		if (queue->recovered[i].topic == topic &&
		    queue->recovered[i].partition == partition)
			return;

	if (queue->recovered_count == queue->recovered_capacity) {
		queue->recovered_capacity =
		    queue->recovered_capacity ? queue->recovered_capacity * 2 : 8;
		queue->recovered = xrealloc(
		    queue->recovered, (size_t)queue->recovered_capacity * sizeof *queue->recovered);
	}
	topic->uses++;
	queue->recovered[queue->recovered_count++] = (struct stall){topic, partition, 0};
}

/* True: there was a stall, so rows may be parked because of it. */
static bool end_stall(struct record_queue *queue, struct wait *wait)
{
	if (wait->stall == STALL_NONE)
		return false;
	*wait = (struct wait){0};
	queue->owed_count--;
	return true;
}

void record_queue_partition_recovers(struct record_queue *queue, struct partition_queue *partition)
{
	if (partition_is_barred(partition) || !end_stall(queue, &partition->wait))
		return;
	/* Its parked rows come back, and then some may have to be sought behind the cut. */
	partition->keeps_passed |= record_queue_partition_is_cut(partition);
	record_queue_add_recovered(queue, partition->topic, partition->number);
}

void record_queue_topic_recovers(struct record_queue *queue, struct topic *topic)
{
	if (end_stall(queue, &topic->wait))
		record_queue_add_recovered(queue, topic, PLACE_MISSING);
}

void record_queue_stalled(
    struct record_queue *queue, const char *name, size_t length, int32_t partition)
{
	struct topic *topic = record_queue_topic_find(queue, name, length);
	struct partition_queue *affected =
	    partition >= 0 && partition < topic->partition_queue_count
		? topic->partition_queues[partition]
		: NULL;

	if (topic->paused && partition == PLACE_PAUSED)
		return;
	record_queue_topic_use(queue, topic);
	if (partition == PLACE_MISSING && topic->state == TOPIC_ASKED) {
		raise_stall(queue, &topic->wait, STALL_OWED);
		record_queue_topic_waits(queue, topic);
	} else if (affected && !record_queue_tail_is_known(affected)) {
		raise_stall(queue, &affected->wait, STALL_OWED);
	} else {
		if (affected)
			affected->keeps_passed |= record_queue_partition_is_cut(affected);
		record_queue_add_recovered(queue, topic, partition);
	}
}

int record_queue_stalls(const struct record_queue *queue)
{
	return queue->owed_count;
}

bool record_queue_partition_keeps_passed(
    struct record_queue *queue, const char *topic, int32_t partition)
{
	const struct partition_queue *affected = record_queue_partition(queue, topic, partition);
	return affected && (affected->wait.stall != STALL_NONE || affected->keeps_passed);
}

bool record_queue_awaits_stalled(const struct record_queue *queue)
{
	return queue->owed_count || queue->recovered_count;
}

void record_queue_recovered(
    struct record_queue *queue, const char *name, size_t length, int32_t partition, int64_t last_id)
{
	struct topic *topic = record_queue_topic_find(queue, name, length);
	for (int i = 0; i < queue->recovered_count; i++) {
		struct stall *place = &queue->recovered[i];
		if (place->topic == topic && place->partition == partition)
			place->freed_id = last_id;
	}
	if (last_id == 0)
		record_queue_drop_recovered(queue, topic, partition);
}

void record_queue_stalls_forget(struct record_queue *queue)
{
	for (struct topic *topic = queue->topics; topic; topic = topic->hh.next) {
		topic->wait = (struct wait){0};
		for (int32_t p = 0; p < topic->partition_queue_count; p++)
			topic->partition_queues[p]->wait = (struct wait){0};
	}
	record_queue_pauses_forget(queue);
	free(queue->recovered);
	queue->recovered = NULL;
	queue->recovered_count = queue->recovered_capacity = 0;
	queue->owed_count = 0;
}
