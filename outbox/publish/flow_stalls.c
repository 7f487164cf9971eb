/*
 * Stalls. A partition that acknowledges nothing for stall_after while others do must not stop them
 * for ever, nor a topic that is missing for so long. Its records, those under way among them, are
 * parked in their order (flow_parks.c), and so is what comes for it later. Its tail is tried to be
 * read all the while. Once that is done the parked rows are free, and what was written after all,
 * though it was given up, is found in the tail and not sent again. Until they have gone, what was
 * found is kept (stream.c).
 *
 * Rows become free in batches, one with each row of the log, however many there are: a place stays
 * in the list of recovered places until the answer says that none of its rows is left. After a
 * crash the next owner receives every place that has rows, and begins with its tail.
 *
 * Where nothing of others is in memory that could come through, silent partitions are asked for
 * their ends: when none answers, the whole cluster is away and is waited for. For a missing
 * topic the answer of the cluster is the witness, as long as it is repeated: no other partition has
 * to be known, and for the first rows of a shard none is.
 *
 * That needs the tails: without them, as with transactions, a partition that gives no answer is
 * waited for. One that answers with an error is not: see flow_denials.c.
 */
#include <stdlib.h>
#include <string.h>

#include "flow_private.h"

enum {
	LOOKS = 8,            /* in the time after which something is stalled */
	ANSWERS_GAP_MS = 3000 /* missing topics are asked for each second, one after the other */
};

/*
 * What has waited so long, and others were heard all the while: a cluster that was away as a whole
 * is given the same time once it is heard again.
 */
static bool is_stalled(struct flow *flow, int64_t now, bool waits, struct wait *wait,
    const struct hearing *hearing, bool *ret_asks)
{
	int64_t stall_after = flow->stall_after;
	/* after the loss of a producer records are pending, and on no partition for a moment */
	if (!waits && flow->next == flow->end)
		wait->since = 0;
	else if (waits && !wait->since)
		wait->since = now;
	if (!waits || now - wait->since < stall_after / 2)
		return false;
	*ret_asks |= now - hearing->at >= stall_after / LOOKS;
	int64_t begun = wait->since > hearing->since ? wait->since : hearing->since;
	return now - begun >= stall_after && now - hearing->at < hearing->gap;
}

static void hear(struct hearing *hearing, int64_t now, int64_t gap)
{
	hearing->gap = gap;
	if (now - hearing->at >= gap)
		hearing->since = now;
	hearing->at = now;
}

void flow_hear(struct flow *flow, int64_t now)
{
	hear(&flow->hearing, now, flow->stall_after / 2);
}

void flow_topic_answered(
    struct flow *flow, const char *name, int64_t answered_at, int64_t stall_after)
{
	struct topic *topic = flow_topic_find(flow, name, strlen(name));
	int64_t gap = stall_after / 2 > ANSWERS_GAP_MS ? stall_after / 2 : ANSWERS_GAP_MS;
	if (answered_at > topic->answers.at)
		hear(&topic->answers, answered_at, gap);
}

/* It stalls again: rows that are parked for it from now on must not be freed before it recovers. */
static void recovers_no_more(struct flow *flow, struct topic *topic, int32_t partition)
{
	int kept = 0;
	for (int i = 0; i < flow->recovered_count; i++) {
		const struct stall *place = &flow->recovered[i];
		if (place->topic != topic || place->partition != partition)
			flow->recovered[kept++] = *place;
		else
			topic->uses--;
	}
	flow->recovered_count = kept;
}

static void owe(struct flow *flow, struct wait *wait)
{
	flow->owed += !wait->owed;
	wait->owed = true;
}

bool flow_partition_stalls(struct flow *flow, struct partition_queue *partition)
{
	owe(flow, &partition->wait);
	recovers_no_more(flow, partition->topic, partition->number);
	partition->wait.stalled = true;
	if (partition->under_way)
		return true; /* its producer goes, and then its tail is read */
	flow_tail_again(flow, partition);
	flow_list_ready(flow, partition);
	return false;
}

static void topic_stalls(struct flow *flow, struct topic *topic)
{
	owe(flow, &topic->wait);
	recovers_no_more(flow, topic, -1);
	topic->wait.stalled = true;
	flow_release_held(flow, topic);
}

void flow_partition_unwatch(struct flow *flow, struct partition_queue *partition)
{
	if (partition->watched)
		DL_DELETE2(flow->watched, partition, prev_watched, next_watched);
	partition->watched = false;
}

void flow_partition_waits(struct flow *flow, struct partition_queue *partition)
{
	if (!partition->watched)
		DL_APPEND2(flow->watched, partition, prev_watched, next_watched);
	partition->watched = true;
}

static bool watch_partitions(struct flow *flow, int64_t now, bool *ret_asks)
{
	bool wants_producer = false;
	struct partition_queue *partition, *next;
	DL_FOREACH_SAFE2(flow->watched, partition, next, next_watched)
	{
		const struct topic *topic = partition->topic;
		/* one that waits for the database does not tell of the partition */
		bool held = partition->held.head && flow_record(flow, partition->held.head)->known;
		bool waits = !partition->wait.stalled && !partition->barred &&
			     (partition->under_way || held);
		if (topic->state != TOPIC_READY || partition->number >= topic->count ||
		    topic->policy == STREAM_STOP)
			continue;
		if (is_stalled(flow, now, waits, &partition->wait, &flow->hearing, ret_asks))
			wants_producer |= flow_partition_stalls(flow, partition);
		if (!waits && !partition->wait.since)
			flow_partition_unwatch(flow, partition);
	}
	return wants_producer;
}

static void watch_topics(struct flow *flow, int64_t now)
{
	bool ignored = false;
	struct topic *topic, *next;
	DL_FOREACH_SAFE2(flow->waiting, topic, next, in_waiting.next)
	{
		bool waits = topic->missing && !topic->wait.stalled && topic->held.head;
		if (topic->policy != STREAM_STOP &&
		    is_stalled(flow, now, waits, &topic->wait, &topic->answers, &ignored))
			topic_stalls(flow, topic);
		if (!topic->held.head && !topic->wait.owed && !topic->wait.since)
			TOPIC_UNLIST(flow, topic, waiting);
	}
}

bool flow_watch_stalls(struct flow *flow, int64_t now, int64_t stall_after)
{
	bool wants_producer = false, asks = false;
	if (!flow->resumes || flow->transactions || now < flow->watch_at)
		return false;
	flow->watched_at = now;
	flow->stall_after = stall_after;
	flow->watch_at = now + stall_after / LOOKS;
	watch_topics(flow, now);
	wants_producer = watch_partitions(flow, now, &asks);
	if (asks)
		flow_tails_ask(flow);
	return wants_producer;
}

int64_t flow_watch_due(const struct flow *flow, int64_t now)
{
	bool waits = flow->resumes && !flow->transactions && flow->acked != flow->end;
	return waits && now < flow->watch_at ? flow->watch_at : INT64_MAX;
}

static void recovers(struct flow *flow, struct topic *topic, int32_t partition)
{
	if (flow->recovered_count == flow->recovered_capacity) {
		flow->recovered_capacity =
		    flow->recovered_capacity ? flow->recovered_capacity * 2 : 8;
		flow->recovered = xrealloc(
		    flow->recovered, (size_t)flow->recovered_capacity * sizeof *flow->recovered);
	}
	topic->uses++;
	flow->recovered[flow->recovered_count++] = (struct stall){topic, partition, 0};
}

/* True: rows are parked for its sake. */
static bool ends_stall(struct flow *flow, struct wait *wait)
{
	if (!wait->owed)
		return false;
	*wait = (struct wait){0};
	flow->owed--;
	return true;
}

void flow_partition_recovers(struct flow *flow, struct partition_queue *partition)
{
	if (partition->barred || !ends_stall(flow, &partition->wait))
		return;
	/* its parked rows come by once more, and then some may be looked for behind the cut */
	partition->keeps_passed |= flow_partition_is_cut(partition);
	recovers(flow, partition->topic, partition->number);
}

void flow_topic_recovers(struct flow *flow, struct topic *topic)
{
	if (ends_stall(flow, &topic->wait))
		recovers(flow, topic, -1);
}

void flow_stalled(struct flow *flow, const char *name, size_t length, int32_t partition)
{
	struct topic *topic = flow_topic_find(flow, name, length);
	struct partition_queue *affected =
	    partition >= 0 && partition < topic->partition_queue_count
		? topic->partition_queues[partition]
		: NULL;
	flow_topic_use(flow, topic);
	if (partition < 0 && topic->state == TOPIC_ASKED) {
		owe(flow, &topic->wait);
		flow_topic_waits(flow, topic);
	} else if (affected && !flow_tail_is_known(affected)) {
		owe(flow, &affected->wait);
	} else {
		if (affected)
			affected->keeps_passed |= flow_partition_is_cut(affected);
		recovers(flow, topic, partition);
	}
}

int flow_stalls(const struct flow *flow)
{
	return flow->owed;
}

bool flow_partition_keeps_passed(struct flow *flow, const char *topic, int32_t partition)
{
	const struct partition_queue *affected = flow_partition(flow, topic, partition);
	return affected && (affected->wait.owed || affected->keeps_passed);
}

bool flow_awaits_stalled(const struct flow *flow)
{
	return flow->owed || flow->recovered_count;
}

void flow_recovered(
    struct flow *flow, const char *name, size_t length, int32_t partition, int64_t last_id)
{
	struct topic *topic = flow_topic_find(flow, name, length);
	for (int i = 0; i < flow->recovered_count; i++) {
		struct stall *place = &flow->recovered[i];
		if (place->topic == topic && place->partition == partition)
			place->freed_id = last_id;
	}
	if (last_id == 0)
		recovers_no_more(flow, topic, partition);
}

void flow_stalls_forget(struct flow *flow)
{
	for (struct topic *topic = flow->topics; topic; topic = topic->hh.next) {
		topic->wait = (struct wait){0};
		for (int32_t p = 0; p < topic->partition_queue_count; p++)
			topic->partition_queues[p]->wait = (struct wait){0};
	}
	free(flow->recovered);
	flow->recovered = NULL;
	flow->recovered_count = flow->recovered_capacity = 0;
	flow->owed = 0;
}
