/*
 * One shard of a publisher: take it, look for windows, send their rows, note what Kafka
 * acknowledged.
 *
 * The log row n that this owner wrote last says that everything visible in ticks[1] is published;
 * the open windows follow. TICK derives row n + 1 from row n: it drops the windows that are
 * published to their end (`closed`), notes progress in the next one (`acked_id`), renews the lease
 * and, if it finds rows, opens one more window, whose rows may go out once the row is committed.
 * One call is in flight at a time; while its commit is in flight, records are sent and
 * acknowledged.
 *
 * Reading runs ahead of acknowledging: a window is opened when all windows before it are read to
 * their end, however many of them still wait for Kafka. A small window's rows come with the answer
 * of TICK; a large one, or one inherited from a former owner, is read by pages. A record that has
 * to wait (its topic is missing) keeps its window open while others go on: beyond MANY_WINDOWS new
 * windows are opened ever more slowly, so that each holds more rows, up to MAX_WINDOWS.
 *
 * Limits: rows in memory use at most `memory` (a page is requested when there is room for a whole
 * one); at most `max_in_flight` records are given to the producer and not covered by a committed
 * row. With transactions each may have `max_in_flight`, and as many more records may go out while
 * the row that covers them is being written.
 *
 * Parked and scheduled rows (record_queue_parks.c) come back as a listed window, one at a time.
 * TICK opens it when a row is due: each answer carries the number of operators' requests and the
 * time of the next due row.
 *
 * Stop: the stream waits for the records that it sent and notes them, until the present lease ends.
 * Then the producer is destroyed with the records that it still holds, and only then the shard is
 * released.
 *
 * Lease: it counts from the moment before the last written row was sent. Once it is over, the
 * producer gets no more records, and its queue is purged: another owner may be at work.
 *
 * Each call has a third of the lease (shard_worker.c), and a TICK is due when the last row is a
 * third of the lease old. (While the shard dozes, a RENEW is due when it is half of the lease old.)
 * After a TICK that failed, RENEW comes first: it touches no table except the log. So an owner
 * keeps its shard however long its other statements fail. A TICK that took too long is repeated
 * with half as much to do, and opens its window without looking at the rows.
 *
 * Transactions: two producers take turns (producer_pair.h), so that one transaction is filled while
 * the one before is committed. New producers fence all others (init_transactions). The log row
 * written next shows whether the shard is still ours; then the tails show which rows were
 * committed. Until then the stream trusts nothing that was in a transaction. Records count as
 * published when their transaction is committed: as soon as nothing more can go out, or
 * TRANSACTION_MS after its first record, or when it leaves no room in memory for a page of the
 * next. After a failed transaction the next one is half as large, so that an occasional failure
 * does not repeat for ever.
 *
 * After the deaths of owners the poison guard may be active: rows are read one at a time
 * (poison_guard.h).
 *
 * When the answer of a call is lost, the stream is unsure and reads the newest row. If that has the
 * nonce of the call, the call was written; if it has the nonce before, it was not. With any other
 * nonce the shard is lost: the stream forgets its memory and competes for the shard again.
 *
 * Read on in stream_calls.c (calls on the log connection), stream_answers.c (the effect of their
 * answers), stream_reading.c (windows and rows) and stream_sending.c (the producer and tails). This
 * file has the states, and the functions that concern all parts.
 */
#include "stream.h"

#include <stdlib.h>

#include "stream_private.h"

enum { STILL_MS = 3000 /* without a found row or an acknowledgement the stream is blocked */ };

int64_t stream_most_uncovered(const struct stream_settings *settings)
{
	return settings->max_in_flight * (settings->transactions ? 2 : 1);
}

struct stream *stream_create(const struct stream_settings *settings)
{
	struct stream *stream = xcalloc(1, sizeof *stream);

	stream->settings = *settings;
	stream->random = settings->seed;
	stream->queue = record_queue_create(settings);
	stream->producer = settings->transactions ? PRODUCER_NEW : PRODUCER_CONFIRMED;
	stream->renew_at = INT64_MAX;
	stream->guard.turn = settings->turn;
	stream->transaction_limit = settings->max_in_flight;
	stream->page_cost = 1024;
	stream->batch = stream_most_batch(stream);
	stream->poll_interval = settings->poll_busy_ms;
	return stream;
}

void stream_destroy(struct stream *stream)
{
	if (!stream)
		return;

	record_queue_destroy(stream->queue);
	poison_guard_end(&stream->guard);
	text_finish(&stream->destinations);
	text_finish(&stream->open_after);
	text_finish(&stream->check_after);
	pg_array_finish(&stream->topics);
	free(stream->parks);
	free(stream->after_topic);
	free(stream->windows);
	free(stream);
}

void stream_retune(struct stream *stream, const struct stream_settings *settings)
{
	stream->settings.poll_busy_ms = settings->poll_busy_ms;
	stream->settings.poll_idle_ms = settings->poll_idle_ms;
	stream->settings.ack_interval_ms = settings->ack_interval_ms;
	stream->poll_interval = settings->poll_busy_ms;
}

void stream_hurry(struct stream *stream, int64_t now)
{
	stream->hurries = true;
	stream->dozes = false;
	stream->poll_interval = stream->settings.poll_busy_ms;
	stream_poll_at(stream, now, now);
}

void stream_doze(struct stream *stream, int64_t now, int64_t ms)
{
	/* A drain ends with a look that writes nothing, and each look of a dozing one may renew. */
	if (stream->hurries || (stream->settings.drains && !stream->found_nothing))
		return;
	stream->dozes = true;
	if (stream->next_poll < now + ms)
		stream->next_poll = now + ms;
}

struct stream_looks stream_looks(const struct stream *stream)
{
	return stream->looks;
}

/* --- states ---------------------------------------------------------------------------------- */

#define MAY(state) (1U << STREAM_##state)

static const struct state_row stream_rows[STREAM_STATES] = {
    [STREAM_STANDBY] = {"standby", MAY(OWNER) | MAY(RELEASED) | MAY(GONE),
	"another relay owns the shard, or this one is about to take it"},
    [STREAM_OWNER] = {"owner", MAY(STANDBY) | MAY(UNSURE) | MAY(RELEASED) | MAY(GONE),
	"this relay owns the shard and publishes its messages"},
    [STREAM_UNSURE] = {"unsure", MAY(OWNER) | MAY(STANDBY),
	"the owner lost the answer of the database, and asks whether its log row was written"},
    [STREAM_RELEASED] = {"released", 0, "the relay has stopped and given the shard back"},
    [STREAM_GONE] = {"gone", 0, "the publisher was dropped or has another number of shards"},
};

const struct state_table stream_states = {
    "stream of a shard", stream_rows, STREAM_STATES, STREAM_STANDBY};

const char stream_lost_shard[] = "the shard has another owner";

static bool fits_stream_state(const struct stream *stream)
{
	enum stream_call call = stream->call.tick.call;
	bool forgetting = stream_is_forgetting(stream);

	switch (stream->state) {
	case STREAM_STANDBY:
	case STREAM_GONE:
		return call == STREAM_NONE && stream->window_count == 0 &&
		       stream->lease_over_at == 0 && stream->renew_at == INT64_MAX &&
		       stream->rows == ROWS_NONE && !stream->guard.active &&
		       (forgetting || record_queue_count(stream->queue) == 0);
	case STREAM_OWNER:
		return stream->lease_over_at != 0 && !forgetting;
	case STREAM_UNSURE: /* RENEW follows if the row was not written */
		return (call == STREAM_TICK || call == STREAM_RENEW) &&
		       stream->renew_at != INT64_MAX && !forgetting;
	case STREAM_RELEASED:
		return stream->stopping && record_queue_under_way(stream->queue) == 0;
	default:
		return false;
	}
}

void stream_move(struct stream *stream, enum stream_state state)
{
	states_check(&stream_states, stream->state, state);
	stream->state = state;
	if (STATES_CHECKED)
		states_expect(fits_stream_state(stream));
}

/* --- the whole ------------------------------------------------------------------------------- */

bool stream_is_patient(const struct stream *stream)
{
	const struct record_queue *queue = stream->queue;
	return record_queue_under_way(queue) && !record_queue_waits_for_reports(queue) &&
	       !stream->settings.transactions && !record_queue_has_changed_topics(queue) &&
	       stream_has_page_room(stream) && !stream->stopping;
}

bool stream_polls_at_once(const struct stream *stream)
{
	return stream->settings.poll_busy_ms == 0;
}

int64_t stream_wait_offline(const struct stream *stream, int64_t now)
{
	bool reads_later = now < stream->read_at && stream_wants_page(stream, now);
	int64_t due = earlier_of(
	    reads_later ? stream->read_at : INT64_MAX, record_queue_watch_due(stream->queue, now));
	due = earlier_of(due, record_queue_denials_due(stream->queue, now));

	if (!record_queue_under_way(stream->queue) || stream_producer_verdict(stream, now))
		return due;
	due = earlier_of(due, stream->lease_over_at);
	if (stream->stopping)
		due = earlier_of(due, stream->stop_by);
	return earlier_of(due, stream->moved_at + stream->settings.stall_after_ms + 1);
}

int64_t stream_wait(struct stream *stream, int64_t now)
{
	return earlier_of(stream_log_call_due(stream, now), stream_wait_offline(stream, now));
}

void stream_stop(struct stream *stream)
{
	if (stream->stopping)
		return;
	stream->stopping = true;
	stream->stop_by = stream->written_at + stream->settings.lease_ms;
	stream->next_take = 0;
	if (stream->state == STREAM_STANDBY && stream->call.tick.call == STREAM_NONE &&
	    !stream->producer_verdict)
		stream_move(stream, STREAM_RELEASED);
}

/* A drain fills the memory and frees it again: only a memory that stays full counts. */
static bool stays_full(const struct stream *stream, int64_t now)
{
	bool moves = record_queue_under_way(stream->queue) || now - stream->moved_at < STILL_MS ||
		     now - stream->rows_at < STILL_MS;
	if (stream->paused)
		return false;
	return record_queue_is_full(stream->queue) || stream->window_count >= MAX_WINDOWS ||
	       (!stream_has_page_room(stream) && !moves);
}

struct stream_status stream_status(const struct stream *stream, int64_t now)
{
	const struct record_queue *queue = stream->queue;
	const struct record_queue_refusal *refusal = record_queue_refusal(queue);
	const struct message *oldest = record_queue_oldest(queue);
	const char *denied_error = NULL;
	const char *denied_topic = record_queue_denied_topic(queue, &denied_error);

	return (struct stream_status){
	    .state = stream->state,
	    .n = stream->n,
	    .epoch = stream->epoch,
	    .lease_over = stream_owns_shard(stream) && stream_lease_is_over(stream, now),
	    .windows = stream->window_count,
	    .records = record_queue_count(queue),
	    .bytes = record_queue_bytes(queue),
	    .tail_bytes = record_queue_found_bytes(queue),
	    .in_flight = record_queue_in_flight(queue),
	    .full = stays_full(stream, now),
	    .published = stream->published,
	    .published_bytes = stream->published_bytes,
	    .skipped = record_queue_skipped(queue),
	    .parked = record_queue_parked(queue),
	    .scheduled = record_queue_scheduled(queue),
	    .stalls = record_queue_stalls(queue),
	    .oldest_due_us = oldest ? oldest->due_us : 0,
	    .caught_up = stream->state == STREAM_OWNER && stream->found_nothing &&
			 stream->window_count == 0 && !stream_has_progress(stream) &&
			 stream->list_at > now,
	    .paused = stream->state == STREAM_OWNER && stream->paused,
	    .paused_topics = record_queue_paused_topics(queue),
	    .deaths = stream->guard.active ? stream->guard.deaths.owners : 0,
	    .refused = record_queue_is_stopped(queue),
	    .refusals = record_queue_refusals(queue),
	    .refused_id = refusal->id,
	    .refused_topic = refusal->topic,
	    .refused_error = refusal->error,
	    .missing_topic = record_queue_missing_topic(queue),
	    .denied_topic = denied_topic,
	    .denied_error = denied_error,
	    .denied = record_queue_denied(queue),
	};
}

uint64_t stream_next_sequence(const struct stream *stream)
{
	return record_queue_end(stream->queue);
}

const struct message *stream_message(const struct stream *stream, uint64_t sequence)
{
	return record_queue_message(stream->queue, sequence);
}

int64_t stream_epoch(const struct stream *stream)
{
	return stream->epoch;
}
