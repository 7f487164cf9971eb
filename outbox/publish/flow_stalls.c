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
	/* after the loss of a producer records are pending, and on no lane for a moment */
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

bool flow_lane_stalls(struct flow *flow, struct lane *lane)
{
	owe(flow, &lane->wait);
	recovers_no_more(flow, lane->topic, lane->partition);
	lane->wait.stalled = true;
	if (lane->under_way)
		return true; /* its producer goes, and then its tail is read */
	flow_tail_again(flow, lane);
	flow_list_ready(flow, lane);
	return false;
}

static void topic_stalls(struct flow *flow, struct topic *topic)
{
	owe(flow, &topic->wait);
	recovers_no_more(flow, topic, -1);
	topic->wait.stalled = true;
	flow_release_held(flow, topic);
}

void flow_lane_unwatch(struct flow *flow, struct lane *lane)
{
	if (lane->watched)
		DL_DELETE2(flow->watched, lane, prev_watched, next_watched);
	lane->watched = false;
}

void flow_lane_waits(struct flow *flow, struct lane *lane)
{
	if (!lane->watched)
		DL_APPEND2(flow->watched, lane, prev_watched, next_watched);
	lane->watched = true;
}

static bool watch_lanes(struct flow *flow, int64_t now, bool *ret_asks)
{
	bool wants_producer = false;
	struct lane *lane, *next;
	DL_FOREACH_SAFE2(flow->watched, lane, next, next_watched)
	{
		const struct topic *topic = lane->topic;
		/* one that waits for the database does not tell of the partition */
		bool held = lane->held.head && flow_record(flow, lane->held.head)->known;
		bool waits = !lane->wait.stalled && !lane->barred && (lane->under_way || held);
		if (topic->state != TOPIC_READY || lane->partition >= topic->count ||
		    topic->policy == STREAM_STOP)
			continue;
		if (is_stalled(flow, now, waits, &lane->wait, &flow->hearing, ret_asks))
			wants_producer |= flow_lane_stalls(flow, lane);
		if (!waits && !lane->wait.since)
			flow_lane_unwatch(flow, lane);
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
	wants_producer = watch_lanes(flow, now, &asks);
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

void flow_lane_recovers(struct flow *flow, struct lane *lane)
{
	if (lane->barred || !ends_stall(flow, &lane->wait))
		return;
	/* its parked rows come by once more, and then some may be looked for behind the cut */
	lane->keeps_passed |= flow_lane_is_cut(lane);
	recovers(flow, lane->topic, lane->partition);
}

void flow_topic_recovers(struct flow *flow, struct topic *topic)
{
	if (ends_stall(flow, &topic->wait))
		recovers(flow, topic, -1);
}

void flow_stalled(struct flow *flow, const char *name, size_t length, int32_t partition)
{
	struct topic *topic = flow_topic_find(flow, name, length);
	struct lane *lane =
	    partition >= 0 && partition < topic->lane_count ? topic->lanes[partition] : NULL;
	flow_topic_use(flow, topic);
	if (partition < 0 && topic->state == TOPIC_ASKED) {
		owe(flow, &topic->wait);
		flow_topic_waits(flow, topic);
	} else if (lane && !flow_tail_is_known(lane)) {
		owe(flow, &lane->wait);
	} else {
		if (lane)
			lane->keeps_passed |= flow_lane_is_cut(lane);
		recovers(flow, topic, partition);
	}
}

int flow_stalls(const struct flow *flow)
{
	return flow->owed;
}

bool flow_lane_keeps_passed(struct flow *flow, const char *topic, int32_t partition)
{
	const struct lane *lane = flow_lane(flow, topic, partition);
	return lane && (lane->wait.owed || lane->keeps_passed);
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
		for (int32_t p = 0; p < topic->lane_count; p++)
			topic->lanes[p]->wait = (struct wait){0};
	}
	free(flow->recovered);
	flow->recovered = NULL;
	flow->recovered_count = flow->recovered_capacity = 0;
	flow->owed = 0;
}
