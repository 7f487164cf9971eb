/*
 * Tails: what a former owner, or a producer that is gone, wrote and nobody noted. A lane opens once
 * its partition was read from the logged offset (or the last acknowledgement) to the end; rows that
 * were found there count as acknowledged when they come by, and are not sent again.
 *
 *   UNREAD -> READING -> OPEN                  an offset was known
 *   UNREAD -> READING -> UNLOGGED -> OPEN      none was: the end that was found is the first, and
 *                                              must stand in the log before a record flows
 *   OPEN -> UNREAD                             the producer was lost with records under way, or the
 *                                              topic was away and may have been made anew
 *   READING -> CUT                             memory holds only some of what was found
 *   CUT -> UNSOUGHT -> SEEKING -> CUT, OPEN    a row waits that may be among the rest: one more
 *                                              pass reads from the cut on (flow_found.c)
 *   CUT, UNSOUGHT, SEEKING -> UNREAD           as from OPEN; the lane is then read from the cut on
 *
 * A row is recognised by its id and its event id, not by its position: windows outlive epochs, and
 * ids, like ticks, may be issued again by a database that went back in time, but no event id is.
 *
 * With transactions a lost producer leaves every lane UNREAD: it may have been fenced by an owner
 * that published since. The tails are read once the next producer has fenced all others.
 *
 * What was found is not passed by the logged offset before its row is: it would not be found again.
 *
 * The offset of a silent lane moves up to the partition's end now and then, so that what others
 * write to it in the meantime is not read at the next take-over.
 *
 * A take-over may want thousands of tails: so many are asked for at a time. One that does not
 * answer within a second does not count, so that partitions that are away keep no other ones
 * waiting.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "flow_private.h"

enum {
	TAILS_AT_ONCE = 256,
	ANSWER_MS = 1000,
};

int64_t flow_tail_offset(const struct lane *lane)
{
	int64_t offset = lane->offset, cut = flow_cut_offset(lane);
	if (lane->first && lane->first->offset <= offset)
		offset = lane->first->offset - 1;
	if (cut != OFFSET_NONE && cut <= offset)
		offset = cut - 1;
	return offset;
}

bool flow_tail_is_known(const struct lane *lane)
{
	return lane->tail == LANE_OPEN || lane->tail == LANE_CUT || lane->tail == LANE_UNSOUGHT ||
	       lane->tail == LANE_SEEKING;
}

static bool is_reading(const struct lane *lane)
{
	return lane->tail == LANE_READING || lane->tail == LANE_SEEKING;
}

static void want_question(struct flow *flow, struct lane *lane)
{
	if (!lane->wanted)
		DL_APPEND2(flow->wanted, lane, prev_wanted, next_wanted);
	lane->wanted = true;
}

static void unwant_question(struct flow *flow, struct lane *lane)
{
	if (lane->wanted)
		DL_DELETE2(flow->wanted, lane, prev_wanted, next_wanted);
	lane->wanted = false;
}

static void await_no_more(struct flow *flow, struct lane *lane)
{
	if (!lane->awaited)
		return;
	lane->awaited = false;
	lane->topic->awaited--;
	flow->awaited -= !lane->topic->missing;
}

/* The lane was read to its end: records flow, with a cut only decided ones. */
static void lane_flows(struct flow *flow, struct lane *lane)
{
	lane->first_tail = false;
	await_no_more(flow, lane);
	flow_lane_recovers(flow, lane);
	flow_list_ready(flow, lane);
}

/* One place moves, so that the counters stay right. */
static void lane_becomes(struct flow *flow, struct lane *lane, enum lane_tail tail)
{
	bool asked = is_reading(lane) || lane->asked_end;
	if (asked && flow->asked > 0)
		flow->asked--;
	flow->unlogged += (tail == LANE_UNLOGGED) - (lane->tail == LANE_UNLOGGED);
	lane->tail = tail;
	lane->wants_end = lane->asked_end = false;
	if (tail == LANE_UNREAD || tail == LANE_UNSOUGHT)
		want_question(flow, lane);
	else
		unwant_question(flow, lane);
	if (tail == LANE_UNREAD)
		flow_cut_unsettle(flow, lane);
	if (tail == LANE_UNLOGGED || lane->cut)
		flow_lane_changes(flow, lane);
	if (tail == LANE_OPEN) {
		flow_cut_drop(flow, lane);
		lane->keeps_passed = false;
	}
	if (tail == LANE_OPEN || tail == LANE_CUT)
		lane_flows(flow, lane);
}

bool flow_tail_lets(const struct flow *flow, const struct lane *lane, uint64_t sequence)
{
	return lane->tail == LANE_OPEN ||
	       (lane->tail == LANE_CUT && flow_found_decides(flow, lane, sequence));
}

void flow_tail_seek(struct flow *flow, struct lane *lane, uint64_t sequence)
{
	if (lane->tail == LANE_CUT && !lane->barred && !flow_found_decides(flow, lane, sequence))
		lane_becomes(flow, lane, LANE_UNSOUGHT);
}

void flow_tail_again(struct flow *flow, struct lane *lane)
{
	if (flow->resumes && flow_tail_is_known(lane))
		lane_becomes(flow, lane, LANE_UNREAD);
}

void flow_tails_begin(struct flow *flow, struct topic *topic, int32_t from)
{
	for (int32_t p = from; p < topic->lane_count && flow->resumes; p++) {
		/* rows that were under way when the topic went were parked without a look */
		topic->lanes[p]->keeps_passed |= topic->wait.owed;
		lane_becomes(flow, topic->lanes[p], LANE_UNREAD);
	}
}

void flow_tail_want(struct flow *flow, struct lane *lane)
{
	if (lane->tail == LANE_UNREAD || lane->tail == LANE_UNSOUGHT)
		want_question(flow, lane);
}

void flow_tail_close(struct flow *flow, struct lane *lane)
{
	flow_found_forget(flow, lane);
	flow_cut_drop(flow, lane);
	lane_becomes(flow, lane, LANE_OPEN);
	flow_lane_unwatch(flow, lane);
}

static void lane_lost(struct flow *flow, struct lane *lane)
{
	bool read = flow_tail_is_known(lane);
	if (lane->under_way || flow->transactions || (lane->wait.stalled && read)) {
		lane_becomes(flow, lane, LANE_UNREAD);
	} else if (read && lane->cut) {
		/* other rows may wait on it from here on, with another count of partitions */
		flow_cut_unsettle(flow, lane);
		lane_becomes(flow, lane, LANE_CUT);
	}
}

void flow_tails_lost(struct flow *flow)
{
	for (struct topic *topic = flow->topics; flow->resumes && topic; topic = topic->hh.next)
		for (int32_t p = 0; p < topic->lane_count; p++)
			lane_lost(flow, topic->lanes[p]);
}

/* Who takes the shard next must not look behind what is sent from here on. */
static bool must_be_logged(const struct lane *lane)
{
	return lane->logged_offset == OFFSET_NONE || lane->logged_offset > lane->offset;
}

void flow_tail_logged(struct flow *flow, struct lane *lane)
{
	if (lane->tail == LANE_UNLOGGED && !must_be_logged(lane))
		lane_becomes(flow, lane, lane->cut ? LANE_CUT : LANE_OPEN);
}

/* --- questions and answers ------------------------------------------------------------------ */

static void put_question(struct flow *flow, struct lane *lane, struct stream_tail *ret_tail)
{
	lane->question = ++flow->questions;
	*ret_tail = (struct stream_tail){.topic = lane->topic->name,
	    .partition = lane->partition,
	    .number = lane->question,
	    .offset = STREAM_TAIL_END};
	flow->asked++;
	if (lane->wants_end) {
		lane->wants_end = false;
		lane->asked_end = true;
		return;
	}
	flow_found_begin(flow, lane);
	if (lane->known != OFFSET_NONE)
		ret_tail->offset = ret_tail->least = lane->known + 1;
	if (lane->cut)
		ret_tail->offset = flow_cut_offset(lane);
	lane_becomes(flow, lane, lane->tail == LANE_UNSOUGHT ? LANE_SEEKING : LANE_READING);
}

static bool may_ask(struct flow *flow, int64_t now)
{
	if (flow->asked < TAILS_AT_ONCE)
		return true;
	if (now - flow->asked_at < ANSWER_MS)
		return false;
	flow->asked_at = now;
	flow->asked = 0;
	return true;
}

/* A lane that leaves `wanted` without a question returns when its topic or its count is known. */
bool flow_tail_call(struct flow *flow, int64_t now, struct stream_tail *ret_tail)
{
	while (flow->wanted && may_ask(flow, now)) {
		struct lane *lane = flow->wanted;
		const struct topic *topic = lane->topic;
		unwant_question(flow, lane);
		if (topic->state == TOPIC_ASKED || lane->partition >= topic->count) {
			lane->wants_end = false;
			continue;
		}
		if (flow->asked == 0)
			flow->asked_at = now;
		put_question(flow, lane, ret_tail);
		return true;
	}
	return false;
}

/* NULL: the question is not the newest one of its partition, or the partition is forgotten. */
static struct lane *asked_lane(struct flow *flow, const struct stream_question *question)
{
	struct lane *lane = flow_lane(flow, question->topic, question->partition);
	return lane && lane->question == question->number ? lane : NULL;
}

enum flow_found flow_tail_record(struct flow *flow, const struct stream_question *question,
    int64_t offset, int64_t id, const char event_id[16])
{
	struct lane *lane = asked_lane(flow, question);
	struct seen_name name = {.id = id};
	if (!lane || !is_reading(lane))
		return FLOW_FOUND_STALE;
	lane->wait.since = 0;
	memcpy(name.event_id, event_id, sizeof name.event_id);
	enum flow_found found = flow_found_take(flow, lane, &name, offset);
	if (found == FLOW_FOUND_ENOUGH) {
		flow_cut_enough(lane);
		lane_becomes(flow, lane, LANE_CUT);
	}
	return found;
}

/* Not while something was found that has not come by: who takes the shard next must find it too. */
static void end_moves(struct flow *flow, struct lane *lane, int64_t end)
{
	lane->asked_end = false;
	flow->asked -= flow->asked > 0;
	if (flow->found || flow->cuts || lane->under_way || lane->written || lane->unpassed ||
	    end - 1 <= lane->offset)
		return;
	lane->offset = lane->known = end - 1;
	flow_lane_changes(flow, lane);
}

void flow_tail_end(
    struct flow *flow, const struct stream_question *question, int64_t end, bool beyond)
{
	struct lane *lane = asked_lane(flow, question);
	if (!lane)
		return;
	lane->wait.since = 0;
	flow_hear(flow, flow->watched_at);
	if (lane->asked_end && !is_reading(lane))
		end_moves(flow, lane, end);
	if (!is_reading(lane))
		return;
	flow->recreated |= beyond;
	if (beyond || lane->offset == OFFSET_NONE)
		lane->offset = end - 1;
	if (beyond || end - 1 > lane->known)
		lane->known = end - 1;
	if (beyond)
		flow_cut_drop(flow, lane);
	bool cut = flow_cut_end(flow, lane, end);
	lane_becomes(flow, lane, must_be_logged(lane) ? LANE_UNLOGGED : cut ? LANE_CUT : LANE_OPEN);
}

bool flow_tail_failed(struct flow *flow, const struct stream_question *question)
{
	struct lane *lane = asked_lane(flow, question);
	if (!lane || (!is_reading(lane) && !lane->asked_end))
		return false;
	if (lane->asked_end)
		lane_becomes(flow, lane, lane->tail);
	else
		lane_becomes(flow, lane, flow->transactions ? LANE_UNREAD : LANE_OPEN);
	return true;
}

bool flow_awaits_first_tails(const struct flow *flow)
{
	return flow->awaited > 0;
}

bool flow_must_log_tails(const struct flow *flow)
{
	return flow->unlogged > 0;
}

void flow_tail_move(struct flow *flow, struct lane *lane)
{
	bool may = lane->tail == LANE_OPEN || lane->tail == LANE_CUT;
	if (!flow->resumes || !may || lane->wants_end || lane->asked_end ||
	    lane->known == OFFSET_NONE)
		return;
	lane->wants_end = true;
	want_question(flow, lane);
}

bool flow_tail_rests(const struct lane *lane, bool away)
{
	if (lane->under_way || lane->written || lane->unpassed || lane->held.head || lane->listed ||
	    lane->found || lane->cut || lane->wait.owed)
		return false;
	return away || (lane->tail == LANE_OPEN && !lane->wants_end && !lane->asked_end);
}

/* Asks for the tails of some topics; each call continues behind the topics of the call before. */
void flow_tails_ask(struct flow *flow)
{
	int lanes = 0;
	for (int i = 0; i < flow->round_count && lanes < TAILS_AT_ONCE; i++) {
		struct topic *topic = flow->round;
		TOPIC_UNLIST(flow, topic, round);
		TOPIC_LIST(flow, topic, round);
		for (int32_t p = 0; p < topic->count && topic->state != TOPIC_ASKED; p++)
			flow_tail_move(flow, topic->lanes[p]);
		lanes += topic->count;
	}
}

/* A reading that began at a cut begins again, behind the last known offset. */
static void forget_lane_found(struct flow *flow, struct lane *lane)
{
	bool cut = lane->cut;
	flow_found_forget(flow, lane);
	flow_cut_drop(flow, lane);
	flow_lane_changes(flow, lane);
	if (cut && flow_tail_is_known(lane))
		lane_becomes(flow, lane, LANE_OPEN);
	else if (cut && lane->tail == LANE_READING)
		lane_becomes(flow, lane, LANE_UNREAD);
}

void flow_forget_found(struct flow *flow)
{
	for (struct topic *topic = flow->topics; topic && (flow->found || flow->cuts);
	     topic = topic->hh.next)
		for (int32_t p = 0; p < topic->lane_count; p++)
			if (topic->lanes[p]->found || topic->lanes[p]->cut)
				forget_lane_found(flow, topic->lanes[p]);
}

int64_t flow_skipped(const struct flow *flow)
{
	return flow->skipped;
}

bool flow_recreated(const struct flow *flow)
{
	return flow->recreated;
}

void flow_epoch_begins(struct flow *flow)
{
	flow->recreated = false;
}
