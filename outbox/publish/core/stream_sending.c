/*
 * The producer: topics, outgoing records, transactions, reports, and the reasons to replace the
 * producer. The last part reads tails, which show what former producers wrote. Read stream_send,
 * stream_report and stream_producer_lost first.
 */
#include <stdlib.h>

#include "stream_private.h"

enum {
	TAILS_AGAIN_MS = 5000, /* with transactions: delay for tails that cannot be read */
	TRANSACTION_MS = 200,
};

/* --- topics ---------------------------------------------------------------------------------- */

void stream_topic(struct stream *stream, const char *topic, int32_t partitions)
{
	record_queue_topic(stream->queue, topic, partitions);
}

void stream_topic_answered(struct stream *stream, const char *topic, int64_t answered_at)
{
	record_queue_topic_answered(
	    stream->queue, topic, answered_at, stream->settings.stall_after_ms);
}

const char *stream_next_topic(
    struct stream *stream, bool unready, bool *ret_ready, int32_t *ret_partitions)
{
	return record_queue_next_topic(stream->queue, unready, ret_ready, ret_partitions);
}

int stream_topics(const struct stream *stream, bool unready)
{
	return record_queue_topics(stream->queue, unready);
}

bool stream_closed_topic(struct stream *stream, char **ret_name)
{
	struct closed_topic *closed = record_queue_closed_topic(stream->queue);
	*ret_name = closed ? xstrdup(closed->name) : NULL;
	free(closed);
	return *ret_name;
}

/* --- records and transactions ---------------------------------------------------------------- */

static bool takes_records(const struct stream *stream, int64_t now)
{
	bool over =
	    stream->settings.transactions && stream_is_in_transaction(stream) &&
	    (now - stream->transaction_at >= TRANSACTION_MS ||
		stream->transaction_records >= stream->transaction_limit ||
		stream->transaction_bytes + stream_page_budget(stream) > stream->settings.memory);
	return stream->producer == PRODUCER_CONFIRMED && !over;
}

static void limit_transactions(struct stream *stream, int64_t next_limit)
{
	int64_t most = stream->settings.max_in_flight;
	stream->committing = false;
	stream->transaction_limit = next_limit < 1 ? 1 : next_limit < most ? next_limit : most;
}

const char stream_partition_stalled[] = "a partition acknowledges nothing for stall_after";

/* The TICK in flight releases the shard: the next owner may begin before its answer is here. */
static bool is_releasing(const struct stream *stream)
{
	return stream->call.tick.call == STREAM_TICK && stream->call.tick.lease_ms == 0;
}

bool stream_send(struct stream *stream, int64_t now, struct stream_record *ret_record)
{
	/* Another owner, producer or epoch comes first: until then no record may go out. */
	if (!stream_owns_shard(stream) || stream->producer_verdict ||
	    stream_lease_is_over(stream, now) || stream_must_end(stream, now) ||
	    is_releasing(stream) || stream_must_leave_epoch(stream) || stream->rewound ||
	    record_queue_recreated(stream->queue) || record_queue_has_refusals(stream->queue) ||
	    !takes_records(stream, now))
		return false;

	record_queue_denials_hurry(stream->queue, stream->guard.active);
	record_queue_denials_step(stream->queue, now);
	if (record_queue_watch_stalls(stream->queue, now, stream->settings.stall_after_ms)) {
		stream->producer_verdict = stream_partition_stalled;
		return false;
	}

	bool idle = record_queue_under_way(stream->queue) == 0;
	if (!stream_is_in_transaction(stream))
		stream->transaction_records = stream->transaction_bytes = 0;
	/* A stream that stops only fills gaps in front of records that Kafka has. */
	bool may_send = !stream->paused || stream->stopping;
	bool sends =
	    may_send && record_queue_send(stream->queue, now, stream->stopping, ret_record);
	stream_pass_acked(stream); /* rows that Kafka has already */

	if (sends && idle)
		stream->moved_at = now;
	if (sends)
		stream->transaction_bytes += ret_record->message->bytes;
	if (sends && stream->transaction_records++ == 0)
		stream->transaction_at = now;
	return sends;
}

bool stream_wants_producer(const struct stream *stream, int64_t now)
{
	return stream->state == STREAM_OWNER && !stream->producer_verdict &&
	       !stream_lease_is_over(stream, now) && !stream->stopping;
}

int64_t stream_takes(const struct stream *stream)
{
	return stream->takes;
}

void stream_producer_ready(struct stream *stream)
{
	if (stream->producer == PRODUCER_NEW)
		stream->producer = PRODUCER_READY;
}

bool stream_commits(struct stream *stream)
{
	/* One after the other: a transaction may be committed only if the one before is. */
	if (stream->committing || stream->producer_verdict ||
	    !record_queue_written(stream->queue) || record_queue_under_way(stream->queue))
		return false;
	record_queue_commits(stream->queue);
	return stream->committing = true;
}

static void count_published(struct stream *stream, int64_t now, int64_t records, int64_t bytes)
{
	stream->moved_at = now;
	stream->published += records;
	stream->published_bytes += bytes;
	stream_pass_acked(stream);
}

void stream_committed(struct stream *stream, int64_t now)
{
	int64_t bytes = record_queue_bytes(stream->queue),
		records = record_queue_committing(stream->queue);
	limit_transactions(stream, stream->transaction_limit * 2);
	if (stream_is_forgetting(stream))
		return;
	record_queue_committed(stream->queue);
	count_published(stream, now, records, bytes - record_queue_bytes(stream->queue));
}

const char stream_refusal[] = "a record was refused";
const char stream_denial[] = "a partition takes no records";

static const char *producer_verdict_of(enum stream_delivery delivery)
{
	switch (delivery) {
	case STREAM_REFUSED:
		return stream_refusal;
	case STREAM_DENIED:
	case STREAM_FAILED:
		return stream_denial;
	default:
		return "records must go again";
	}
}

void stream_report(struct stream *stream, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error)
{
	bool wants_producer;
	int64_t before = record_queue_bytes(stream->queue);

	/* The shard is lost: the next owner finds the record in a tail, or sends it again. */
	if (stream_is_forgetting(stream))
		return;

	record_queue_denials_hurry(stream->queue, stream->guard.active);
	if (!record_queue_report(
		stream->queue, now, sequence, delivery, offset, error, &wants_producer))
		return;
	if (wants_producer)
		stream->producer_verdict = producer_verdict_of(delivery);
	if (delivery != STREAM_WRITTEN)
		return;
	count_published(stream, now, stream->settings.transactions ? 0 : 1,
	    before - record_queue_bytes(stream->queue));
}

const char stream_stalled[] = "no acknowledgement within stall_after";
const char *stream_producer_verdict(const struct stream *stream, int64_t now)
{
	if (stream->producer_verdict)
		return stream->producer_verdict;
	if (!record_queue_under_way(stream->queue))
		return NULL;
	if (stream_lease_is_over(stream, now))
		return "the lease is over";
	if (stream_must_end(stream, now))
		return "there is no time left to wait for its records";
	if (now - stream->moved_at > stream->settings.stall_after_ms)
		return stream_stalled;
	return NULL;
}

bool stream_is_settled(const struct stream *stream)
{
	return stream_is_producer_settled(stream) && !stream->committing;
}

bool stream_awaits_reports(const struct stream *stream)
{
	return record_queue_unreported(stream->queue) > 0;
}

void stream_producer_lost(struct stream *stream)
{
	bool forgets = stream_is_forgetting(stream);
	stream->producer_verdict = NULL;
	stream->producer = stream->settings.transactions ? PRODUCER_NEW : PRODUCER_CONFIRMED;
	stream->call.confirms = false;

	/* The commit in flight may have failed; without one, the open transaction has, if any. */
	int64_t failed = record_queue_committing(stream->queue);
	if (!failed && stream_is_in_transaction(stream))
		failed = stream->transaction_records;
	limit_transactions(stream, failed ? failed / 2 : stream->transaction_limit);
	stream->transaction_records = stream->transaction_bytes = 0;

	if (forgets)
		record_queue_forget(stream->queue);
	else
		record_queue_producer_lost(stream->queue);
}

/* --- tails ----------------------------------------------------------------------------------- */

bool stream_tail_call(struct stream *stream, int64_t now, struct stream_tail *ret_tail)
{
	if (stream_owns_shard(stream))
		record_queue_visit_topics(stream->queue, now);
	/* A producer that was given up may still write: tails are read only after it is gone. */
	if (!stream_owns_shard(stream) || stream->producer_verdict ||
	    stream->producer == PRODUCER_NEW || now < stream->tails_again_at)
		return false;
	/* Before all stalled places are known, a tail would omit the records of rows parked there.
	 */
	if (stream->places_unknown)
		return false;
	return record_queue_tail_call(stream->queue, now, ret_tail);
}

/*
 * Is the row of this position noted as published, so that it will not be read again? A failover may
 * have lost ticks of the former epoch: this owner has used their numbers again, and their surviving
 * rows come in other windows.
 */
static bool is_passed(const struct stream *stream, const struct outbox_position *position)
{
	if (position->epoch != stream->epoch && position->tick > stream->inherited_tick)
		return false;
	return position->tick <= stream->first_tick ||
	       (stream->window_count && position->tick == stream->windows[0].tick &&
		   position->id <= stream->windows[0].acked_id);
}

enum stream_found stream_tail_record(struct stream *stream, const struct stream_question *question,
    int64_t offset, const struct outbox_position *position, const char event_id[16])
{
	bool ours = position->epoch == stream->epoch || position->epoch == stream->former_epoch;
	int64_t newest = stream->first_tick + stream->window_count;

	/* Rows of a stalled partition count as passed, but are parked and not published. */
	if (ours && is_passed(stream, position) &&
	    !record_queue_partition_keeps_passed(
		stream->queue, question->topic, question->partition))
		return STREAM_FOUND;

	enum record_found found =
	    record_queue_tail_record(stream->queue, question, offset, position->id, event_id);
	if (found == RECORD_FOUND_STALE || found == RECORD_FOUND_ENOUGH)
		return STREAM_FOUND_ENOUGH;
	if (found == RECORD_FOUND_AGAIN)
		return STREAM_FOUND;

	stream->tail_tick = newest;
	stream->tail_open = true;
	if (ours &&
	    position->tick > (found == RECORD_FOUND_FIRST ? stream->inherited_tick : newest)) {
		stream->rewound = true;
		return STREAM_FOUND_UNKNOWN;
	}
	return STREAM_FOUND;
}

int64_t stream_rewinds(const struct stream *stream)
{
	return stream->rewinds;
}

void stream_tail_end(
    struct stream *stream, const struct stream_question *question, int64_t end, bool beyond)
{
	record_queue_tail_end(stream->queue, question, end, beyond);
}

void stream_tail_failed(struct stream *stream, int64_t now, const struct stream_question *question)
{
	if (record_queue_tail_failed(stream->queue, question) && stream->settings.transactions)
		stream->tails_again_at = now + TAILS_AGAIN_MS;
}
