/*
 * Denied partitions. A partition may answer every record with an error that blames no record: the
 * relay has no permission, the broker cannot compress what it is to store, the broker failed
 * without saying why. Each such answer costs a producer, and with it a pause of every other
 * partition. So nothing is sent to a denied partition for a second, then two, four … up to a
 * minute. Partitions of one topic with about the same pause are tried together.
 *
 *   try 1, 2      its records are held
 *   try 3         the record that failed alone is parked with the error, like a refused one: the
 *                 record may be the cause
 *   from try 4 on the partition is stalled (flow_stalls.c): its records are parked, so that other
 *                 partitions do not wait for them, and come back for the next try
 *
 * An acknowledgement ends all of that. If two partitions of a topic fail and neither has
 * acknowledged a record since, or if the error names the topic, the whole topic is denied: its
 * partitions are tried together, and no record is blamed. If the publisher stops at refused
 * records, nothing is parked and the tries go on. While messages crash the relay (poison_guard.h),
 * the first try decides: the owner may not live until the second.
 */
#include <stdlib.h>
#include <utlist.h>

#include "backoff.h"
#include "flow_private.h"

enum { FIRST_MS = 1000, CAP_MS = 60000, TRIES = 3 };

struct denial {
	struct topic *topic;
	int64_t until; /* the end of the newest pause */
	int failing;   /* lanes without an acknowledgement since they failed */
	bool answered; /* some lane took a record since the first one failed */
	int tries;     /* of the whole topic; 0: its lanes are tried one by one */
	uint64_t seed;
	char error[256];
	struct denial *prev, *next;
};

static struct denial *denial_of(struct flow *flow, struct topic *topic)
{
	if (topic->denial)
		return topic->denial;
	topic->denial = xcalloc(1, sizeof *topic->denial);
	topic->denial->topic = topic;
	DL_APPEND(flow->denials, topic->denial);
	return topic->denial;
}

/* Lanes whose pauses end at about the same time are tried together: each try may cost a producer.
 */
static void choose_until(struct denial *denial, int64_t now, int tries)
{
	struct backoff backoff = {.first_ms = FIRST_MS,
	    .cap_ms = CAP_MS,
	    .jitter = 0.2,
	    .attempts = tries - 1,
	    .seed = denial->seed++};
	int64_t pause = backoff_next_ms(&backoff);

	if (denial->until < now + pause / 2 || denial->until > now + pause)
		denial->until = now + pause;
}

static void bar_lane(struct flow *flow, struct lane *lane, int64_t until)
{
	if (flow->barred == 0 || until < flow->bars_end_at)
		flow->bars_end_at = until;
	flow->barred += !lane->barred;
	lane->barred = true;
	lane->barred_until = until;
}

static void open_lane(struct flow *flow, struct lane *lane)
{
	if (!lane->barred)
		return;
	flow->barred--;
	lane->barred = false;
	if (!lane->wait.stalled)
		lane->wait.since = 0; /* it did not wait for an answer */
	if (flow_tail_is_known(lane))
		flow_lane_recovers(flow, lane);
	flow_list_ready(flow, lane);
}

/* A parked record was tried before, and is not to delay its partition again. */
static bool is_at_fault(
    const struct flow *flow, const struct lane *lane, const struct record *record)
{
	bool suspect = flow->hurries || lane->failures % TRIES == 0 ||
		       (record->listed && lane->failures < TRIES);

	return suspect && lane->solo && !lane->topic->denial->tries &&
	       lane->topic->policy != STREAM_STOP;
}

static void deny_topic(struct flow *flow, int64_t now, struct topic *topic)
{
	choose_until(topic->denial, now, ++topic->denial->tries);
	for (int32_t p = 0; p < topic->lane_count; p++)
		bar_lane(flow, topic->lanes[p], topic->denial->until);
}

bool flow_deny(struct flow *flow, int64_t now, uint64_t sequence, bool of_topic, const char *error)
{
	const struct record *record = flow_record(flow, sequence);
	struct topic *topic = record->topic;
	struct lane *lane = topic->lanes[record->partition];
	struct denial *denial = denial_of(flow, topic);

	text_copy(denial->error, sizeof denial->error, error);
	if (lane->barred) /* another record, or another lane, told it before */
		return false;

	denial->failing += lane->failures++ == 0;
	if (of_topic || denial->tries || (denial->failing > 1 && !denial->answered)) {
		deny_topic(flow, now, topic);
		return false;
	}
	choose_until(denial, now, lane->failures);
	bar_lane(flow, lane, denial->until);
	return is_at_fault(flow, lane, record);
}

void flow_denials_hurry(struct flow *flow, bool hurries)
{
	flow->hurries = hurries;
}

bool flow_denial_parks(struct flow *flow, struct lane *lane)
{
	const struct denial *denial = lane->topic->denial;
	int tries = denial->tries ? denial->tries : lane->failures;

	if ((tries <= TRIES && !flow->hurries) || lane->topic->policy == STREAM_STOP)
		return false;
	if (!lane->wait.stalled)
		flow_lane_stalls(flow, lane);
	return true;
}

static void drop_denial(struct flow *flow, struct topic *topic)
{
	DL_DELETE(flow->denials, topic->denial);
	free(topic->denial);
	topic->denial = NULL;
}

void flow_admit(struct flow *flow, struct lane *lane)
{
	struct topic *topic = lane->topic;
	struct denial *denial = topic->denial;

	denial->answered = true;
	denial->failing -= lane->failures > 0;
	lane->failures = 0;
	if (denial->failing && !denial->tries && !lane->barred)
		return;

	denial->tries = 0;
	for (int32_t p = 0; p < topic->lane_count; p++)
		if (!topic->lanes[p]->failures)
			open_lane(flow, topic->lanes[p]);
	if (!denial->failing)
		drop_denial(flow, topic);
}

void flow_denials_step(struct flow *flow, int64_t now)
{
	const struct denial *denial;

	if (!flow->barred || now < flow->bars_end_at)
		return;
	flow->bars_end_at = INT64_MAX;
	DL_FOREACH(flow->denials, denial)
	{
		for (int32_t p = 0; p < denial->topic->lane_count; p++) {
			struct lane *lane = denial->topic->lanes[p];

			if (lane->barred && now >= lane->barred_until)
				open_lane(flow, lane);
			else if (lane->barred && lane->barred_until < flow->bars_end_at)
				flow->bars_end_at = lane->barred_until;
		}
	}
}

int64_t flow_denials_due(const struct flow *flow, int64_t now)
{
	return flow->barred && now < flow->bars_end_at ? flow->bars_end_at : INT64_MAX;
}

const char *flow_denial_error(const struct topic *topic)
{
	return topic->denial ? topic->denial->error : NULL;
}

static bool keeps_records(const struct lane *lane)
{
	bool denied = lane->failures || lane->topic->denial->tries;

	return denied && (lane->held.head || lane->wait.owed || lane->under_way);
}

const char *flow_denied_topic(const struct flow *flow, const char **ret_error)
{
	const struct denial *denial;

	DL_FOREACH(flow->denials, denial)
	{
		for (int32_t p = 0; p < denial->topic->lane_count; p++) {
			if (!keeps_records(denial->topic->lanes[p]))
				continue;
			*ret_error = denial->error;
			return denial->topic->name;
		}
	}
	return NULL;
}

int flow_denied(const struct flow *flow)
{
	return flow->barred;
}

void flow_denial_forget(struct flow *flow, struct topic *topic)
{
	if (!topic->denial)
		return;
	for (int32_t p = 0; p < topic->lane_count; p++) {
		struct lane *lane = topic->lanes[p];

		flow->barred -= lane->barred;
		lane->barred = false;
		lane->failures = 0;
	}
	drop_denial(flow, topic);
}
