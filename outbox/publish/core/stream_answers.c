/*
 * The answers on the log connection. A written row is the truth from then on, a fenced owner
 * forgets everything, and a call whose answer was lost leaves the stream unsure until it has read
 * the newest row. Read stream_taken, stream_ticked and stream_log_failed; the other functions serve
 * one answer each.
 */
#include <assert.h>
#include <stdlib.h>

#include "stream_private.h"

enum {
	BATCH_ROWS_LEAST = 50,
	BATCH_MS = 10,       /* target time of a tick's work with kept back rows */
	RETRY_FIRST_MS = 50, /* delay after a failed call, doubled up to RETRY_MAX_MS */
	RETRY_MAX_MS = 1000,
	PAUSED_LOOK_MS = 500,
	RECENTLY_MS = 100, /* the poll stays busy for this time after rows were seen */
	OPEN_WINDOW_MS =
	    60,          /* outbox.listed_wait of a row whose window is open, and the way back */
	MOST_HALVES = 9, /* a batch of 500 rows is then 0, that is, one row */
};

/* --- the shard ------------------------------------------------------------------------------- */

/*
 * Forgets the state in memory at once, except the records: the producer may still use their
 * payloads, so they are freed after it is destroyed (stream_producer_lost). Until then the stream
 * takes no shard, sends nothing and ignores reports.
 */
static void forget_shard(struct stream *stream, int64_t now, enum stream_state state)
{
	if (record_queue_under_way(stream->queue) ||
	    (stream->settings.transactions && stream->producer != PRODUCER_NEW))
		stream->producer_verdict = stream_lost_shard;
	else
		record_queue_forget(stream->queue);

	poison_guard_end(&stream->guard);
	stream->window_count = 0;
	stream->call = (struct call){0};
	stream->progress_at = stream->tail_tick = stream->listed_tick = 0;
	stream->places_unknown = stream->looks_first = stream->tail_open = stream->blind =
	    stream->open_unknown = stream->found_nothing = stream->rewound = false;
	stream->rows = ROWS_NONE;
	stream->halves = 0;
	stream->next_take = now;
	stream->renew_at = INT64_MAX;
	stream->lease_over_at = 0;
	stream_move(stream, state);
}

void stream_taken(struct stream *stream, int64_t now, const struct stream_taken *taken)
{
	assert(stream->call.tick.call == STREAM_TAKE);

	stream->takes++;
	stream->n = taken->n;
	stream->nonce = stream->call.tick.new_nonce;
	stream->epoch = stream->logged_epoch = taken->epoch;
	stream->written_at = stream->call.issued;
	stream->lease_over_at = stream->call.issued + stream->settings.lease_ms;
	stream->first_tick = taken->first_tick;
	stream->former_epoch = taken->former_epoch;
	stream->listed_tick = taken->listed_tick;
	stream->places_unknown = taken->parked;
	free(stream->after_topic);
	stream->after_topic = NULL;
	stream->open_unknown = true;
	text_clear(&stream->open_after);
	stream->load_at = now;
	stream->check_at = now + stream->settings.topic_idle_ms;
	record_queue_taken(stream->queue, now, taken->n);
	stream->requests = taken->requests;
	stream->paused = taken->paused;
	record_queue_pause_topics(stream->queue, taken->paused_topics);
	stream->list_at = taken->parked || taken->scheduled ? now : INT64_MAX;
	stream->inherited_tick = taken->first_tick + taken->windows;
	record_queue_keys_taken(stream->queue, taken->parked, stream->inherited_tick);

	/* A dead owner may have had this many rows in flight, or have read a page. */
	int64_t most = stream_most_uncovered(&stream->settings);
	poison_guard_begin(&stream->guard, &taken->deaths, stream->inherited_tick,
	    most < PAGE_ROWS_MAX ? PAGE_ROWS_MAX : most);

	stream->strange_until = now + stream->settings.stall_after_ms;
	for (int i = 0; i < taken->windows; i++)
		stream_push_window(stream, taken->first_tick + 1 + i, i == 0 ? taken->acked_id : 0);

	stream->call = (struct call){0};
	stream->failures = 0;
	stream->next_poll = stream->retry_at = now;
	stream->moved_at = now;
	stream_move(stream, STREAM_OWNER);
}

void stream_not_taken(struct stream *stream, int64_t now, int64_t retry_ms)
{
	stream->call = (struct call){0};
	stream->failures = 0;
	stream->next_take = now + retry_ms;
}

void stream_absent(struct stream *stream, int64_t now)
{
	forget_shard(stream, now, STREAM_GONE);
}

/* --- ticks and renewals ---------------------------------------------------------------------- */

static void lease_renewed(struct stream *stream)
{
	const struct call *call = &stream->call;
	stream->n++;
	stream->nonce = call->tick.new_nonce;
	stream->written_at = call->issued;
	stream->lease_over_at = call->issued + stream->settings.lease_ms;
	if (call->confirms)
		stream->producer = PRODUCER_CONFIRMED;
	stream->renew_at = INT64_MAX;
	poison_guard_written(&stream->guard, &call->guard_row);
}

/* The row of the call in flight is written: its contents are the truth from here on. */
static void call_written(struct stream *stream)
{
	const struct call *call = &stream->call;
	lease_renewed(stream);
	stream->logged_epoch = call->tick.fresh_epoch;
	if (call->renews) {
		stream->epoch = stream->logged_epoch;
		stream->rewinds += stream->rewound;
		stream->rewound = false;
		record_queue_epoch_begins(stream->queue);
	}

	stream->progress_at = 0;
	record_queue_cover(stream->queue, call->acked);
	record_queue_logged(stream->queue, stream->n, call->tick.fold_to, true);
	stream_close_windows(stream, call->tick.closed);
	/* Due rows of the windows that were closed just now may be listed from now on. */
	if (call->tick.closed && stream->list_at < call->issued + OPEN_WINDOW_MS)
		stream->list_at = call->issued;
	if (call->guard_row.marks)
		stream->marked_at = call->issued;
	stream_pass_acked(stream); /* parked rows that the log row notes */

	if (call->tick.lease_ms == 0) {
		poison_guard_end(&stream->guard);
		stream_move(stream, STREAM_RELEASED);
	}
}

void stream_poll_at(struct stream *stream, int64_t now, int64_t at)
{
	int64_t crowd = stream->window_count - MANY_WINDOWS;
	int64_t earliest = crowd > 0 ? now + crowd * crowd / 16 : now;
	stream->next_poll = at < earliest ? earliest : at;
}

static void schedule_poll(struct stream *stream, int64_t now, bool found)
{
	const struct stream_settings *settings = &stream->settings;

	if (stream->paused) {
		stream_poll_at(stream, now, now + PAUSED_LOOK_MS);
		return;
	}
	if (found) {
		stream->rows_at = now;
		stream->poll_interval = settings->poll_busy_ms;
	} else if (now - stream->rows_at > RECENTLY_MS) {
		stream->poll_interval = stream->poll_interval ? stream->poll_interval * 2 : 1;
	}
	if (stream->poll_interval > settings->poll_idle_ms)
		stream->poll_interval = settings->poll_idle_ms;
	stream_poll_at(stream, now, stream->hurries ? now : now + stream->poll_interval);
}

/*
 * A listed window opens instead of one with new rows, and a split looks only up to its end. With
 * many open windows a large log row may forbid to look (outbox.tick).
 */
static void count_look(struct stream *stream, enum stream_verdict verdict)
{
	bool found = verdict == STREAM_ROWS || verdict == STREAM_PAGES;

	stream->looks.tried++;
	if ((!found && verdict != STREAM_IDLE) || stream->window_count > MANY_WINDOWS)
		return;
	stream->looks.made++;
	stream->looks.found += found;
}

void stream_ticked(struct stream *stream, int64_t now, enum stream_verdict verdict)
{
	assert(stream->call.tick.call == STREAM_TICK);
	if (verdict == STREAM_FENCED || verdict == STREAM_DROPPED) {
		forget_shard(stream, now, verdict == STREAM_FENCED ? STREAM_STANDBY : STREAM_GONE);
		return;
	}

	/* In a pause no TICK looks for rows. */
	bool looked = stream->call.tick.may_open && !stream->paused;
	bool listed = verdict == STREAM_LISTED;
	bool rows = verdict == STREAM_ROWS || (listed && stream->call.tick.max_rows > 0);
	bool found = rows || listed || verdict == STREAM_PAGES;
	bool wrote = found || verdict == STREAM_NOTED;

	/* The look for kept back rows had none to list: see stream_has_left_found_windows. */
	if (stream->call.tick.may_list && stream_has_left_found_windows(stream) &&
	    verdict != STREAM_LISTED && stream->list_at > now + BLOCKED_LOOK_MS) {
		record_queue_forget_found(stream->queue);
		stream->tail_tick = 0;
	}

	stream->failures = 0;
	const struct stream_tick *tick = &stream->call.tick;
	bool worked = found || tick->parks || (wrote && (tick->may_list || tick->fold_to));
	stream->halves -= stream->halves && worked;
	stream->blind &= !looked || listed;
	if (wrote)
		call_written(stream);
	else
		record_queue_logged(stream->queue, 0, 0, false);
	stream->call = (struct call){0};

	if (looked) {
		schedule_poll(stream, now, found);
		/* The row notes the last records of a drain, which ends with one more look. */
		if (stream->settings.drains && verdict == STREAM_NOTED && !stream->window_count)
			stream_poll_at(stream, now, now);
		count_look(stream, verdict);
		/* A drain ends with a look that wrote nothing either. */
		stream->found_nothing =
		    verdict == STREAM_IDLE || (verdict == STREAM_NOTED && !stream->settings.drains);
	} else if (stream->paused) {
		schedule_poll(stream, now, false);
		stream->found_nothing = false;
	}
	if (rows)
		stream->rows = ROWS_WHOLE;
	if (!found)
		return;

	const struct window *window =
	    stream_push_window(stream, stream->first_tick + stream->window_count + 1, 0);
	if (verdict == STREAM_LISTED)
		stream->listed_tick = window->tick;
	else if (stream->tail_open)
		stream->tail_tick = window->tick;
	stream->tail_open &= verdict == STREAM_LISTED;
}

void stream_renewed(struct stream *stream, int64_t now, bool written)
{
	assert(stream->call.tick.call == STREAM_RENEW);
	if (!written) {
		forget_shard(stream, now, STREAM_STANDBY);
		return;
	}
	/* A RENEW that was to look has not: a TICK looks now. */
	if (stream->call.tick.may_open)
		stream_poll_at(stream, now, now);
	lease_renewed(stream);
	stream->call = (struct call){0};
}

void stream_renewed_idle(struct stream *stream, int64_t now)
{
	assert(stream->call.tick.may_open);
	stream_renewed(stream, now, true);
	schedule_poll(stream, now, false);
	count_look(stream, STREAM_IDLE);
	stream->failures = 0;
}

void stream_unparked(struct stream *stream, int64_t digest)
{
	record_queue_unparked(stream->queue, digest);
}

void stream_recovered(struct stream *stream, const char *topic, size_t topic_length,
    int32_t partition, int64_t last_id)
{
	record_queue_recovered(stream->queue, topic, topic_length, partition, last_id);
}

void stream_parked_news(struct stream *stream, int64_t now, int64_t requests, int64_t due_ms)
{
	const struct stream_tick *tick = &stream->call.tick;
	if (due_ms >= 0)
		stream->list_at = now + due_ms;
	else if (tick->may_list || tick->parks || stream->listed_tick)
		stream->list_at = INT64_MAX;
	if (requests != stream->requests)
		stream->list_at = now;
	stream->requests = requests;
}

void stream_pause(struct stream *stream, bool paused)
{
	stream->paused = paused;
}

void stream_pause_topics(struct stream *stream, const char *topics)
{
	record_queue_pause_topics(stream->queue, topics);
}

/*
 * New messages wait for the end of a TICK before they are seen, and for the end of the next one
 * before they are sent. So the time of the work with kept back rows is limited: slow disks and
 * large rows make the batch smaller. This work may take as long as the rest of a TICK: if the rest
 * is slow, because of a far server or other programs, a smaller batch would not help.
 */
void stream_worked(struct stream *stream, int64_t now, int64_t took_ms)
{
	int64_t most = stream_most_batch(stream), least = earlier_of(BATCH_ROWS_LEAST, most);
	took_ms = took_ms < 0 ? 0 : took_ms; /* the server may send anything */
	int64_t rest = now - stream->call.issued - took_ms;
	stream->rest_us += ((rest > 0 ? rest : 0) * 1000 - stream->rest_us) / 8;
	int64_t allowed = stream->rest_us / 1000 > BATCH_MS ? stream->rest_us / 1000 : BATCH_MS;

	if (took_ms > allowed)
		stream->batch = stream->batch * allowed / earlier_of(took_ms, 4 * allowed);
	else
		stream->batch += stream->batch / 16 + 1; /* slowly: it may have had little to do */

	if (stream->batch < least)
		stream->batch = least;
	stream->batch = earlier_of(stream->batch, most);
}

/* --- other answers --------------------------------------------------------------------------- */

void stream_stalled_place(
    struct stream *stream, const char *topic, size_t topic_length, int32_t partition)
{
	record_queue_stalled(stream->queue, topic, topic_length, partition);
	free(stream->after_topic);
	stream->after_topic = xformat("%.*s", (int)topic_length, topic);
	stream->after_partition = partition;
}

/* The answer of a read-only call is complete. */
static void call_answered(struct stream *stream, enum stream_call call)
{
	assert(stream->call.tick.call == call);
	(void)call;
	stream->call = (struct call){0};
	stream->failures = 0;
}

void stream_destination(struct stream *stream, const struct stream_destination *destination)
{
	assert(stream->call.tick.call == STREAM_DESTINATIONS);
	record_queue_destination(stream->queue, destination);
	if (stream->call.tick.topics)
		return;
	text_clear(&stream->open_after);
	text_add(&stream->open_after, destination->topic);
}

void stream_closed_destination(struct stream *stream, const char *topic)
{
	assert(stream->call.tick.call == STREAM_CLOSED);
	record_queue_check_topic(stream->queue, topic);
	text_clear(&stream->check_after);
	text_add(&stream->check_after, topic);
}

void stream_closed_end(struct stream *stream, int64_t now, bool last)
{
	assert(stream->call.tick.call == STREAM_CLOSED);
	stream->check_at = now + stream->settings.topic_idle_ms;
	if (last)
		text_clear(&stream->check_after);
	stream->call = (struct call){0};
	stream->failures = 0;
}

void stream_destinations_end(struct stream *stream, bool last)
{
	assert(stream->call.tick.call == STREAM_DESTINATIONS);
	if (stream->call.tick.topics)
		record_queue_load_ended(stream->queue, true);
	else
		stream->open_unknown = !last;
	stream->call = (struct call){0};
	stream->failures = 0;
}

void stream_places_end(struct stream *stream, int64_t rows)
{
	stream->places_unknown = rows >= stream->call.tick.most;
	call_answered(stream, STREAM_PLACES);
}

void stream_looked_up(struct stream *stream, int place, bool itself)
{
	record_queue_looked_up(stream->queue, place, itself);
}

void stream_lookup_end(struct stream *stream)
{
	record_queue_lookup_end(stream->queue);
	call_answered(stream, STREAM_LOOKUP);
	stream_pass_acked(stream); /* rows that were parked before */
}

void stream_digest(struct stream *stream, int64_t digest)
{
	record_queue_digest(stream->queue, digest);
}

void stream_digests_end(struct stream *stream, int64_t rows)
{
	record_queue_digests_end(stream->queue, rows);
	call_answered(stream, STREAM_DIGESTS);
}

/* --- failures -------------------------------------------------------------------------------- */

int64_t stream_retry_delay(int failures)
{
	return failures < 5 ? (int64_t)RETRY_FIRST_MS << failures : RETRY_MAX_MS;
}

/* The next TICK has half as much to do, and opens its window without looking at rows. */
static void lighten_next_tick(struct stream *stream)
{
	if (stream->call.tick.call != STREAM_TICK)
		return;
	stream->halves += stream->halves < MOST_HALVES;
	stream->blind |= stream->call.tick.may_open;
}

void stream_log_failed(struct stream *stream, int64_t now, bool unknown, bool late)
{
	enum stream_call call = stream->call.tick.call;
	int64_t delay = stream_retry_delay(stream->failures++), lease = stream->settings.lease_ms;
	/* A call that the lease depends on must be repeated before the lease ends. */
	bool urgent = stream->state == STREAM_UNSURE || (stream_writes_row(call) && unknown);
	stream->retry_at = now + earlier_of(delay, urgent ? lease / 16 : lease / 3);
	if (stream->state == STREAM_UNSURE)
		return;

	if (late)
		lighten_next_tick(stream);
	stream->renew_at = stream->state != STREAM_OWNER ? INT64_MAX
			   : call == STREAM_RENEW        ? now + earlier_of(delay, lease / 16)
							 : now;
	/* The answer of this COMMIT is lost: the newest row and its nonce tell whether it was
	 * written. */
	if (stream_writes_row(call) && unknown) {
		stream_move(stream, STREAM_UNSURE);
		return;
	}

	if (call == STREAM_TICK)
		record_queue_logged(stream->queue, 0, 0, false);
	if (call == STREAM_CLOSED)
		stream->check_at = now + stream->settings.topic_idle_ms;
	if (call == STREAM_DESTINATIONS) {
		record_queue_load_ended(stream->queue, false);
		stream->load_at = now + delay;
	}
	if (call == STREAM_LOOKUP)
		record_queue_lookup_failed(stream->queue);
	stream->call = (struct call){0};
	stream->next_take = now + delay;
}

/* The row was written, but the other columns of its answer are lost: it may open a window or list.
 */
static void unsure_written(struct stream *stream, int64_t now, int windows, int64_t listed_tick)
{
	const struct stream_tick *tick = &stream->call.tick;

	stream_move(stream, STREAM_OWNER);
	if (tick->call == STREAM_RENEW) {
		stream_renewed(stream, now, true);
	} else {
		bool opened = windows > stream->window_count - tick->closed;
		stream_ticked(stream, now, opened ? STREAM_PAGES : STREAM_NOTED);
		stream->listed_tick = listed_tick;
		stream->list_at = now;
	}
	/* The row may be visible here but on no standby; the next row's commit waits for both rows.
	 */
	if (stream->producer == PRODUCER_CONFIRMED)
		stream->producer = PRODUCER_READY;
}

void stream_newest(
    struct stream *stream, int64_t now, int64_t n, int64_t nonce, int windows, int64_t listed_tick)
{
	assert(stream->state == STREAM_UNSURE);

	if (n == stream->n + 1 && nonce == stream->call.tick.new_nonce) {
		unsure_written(stream, now, windows, listed_tick);
	} else if (n == stream->n && nonce == stream->nonce) {
		stream_move(stream, STREAM_OWNER);
		stream->renew_at = now;
		if (stream->call.tick.call == STREAM_TICK)
			record_queue_logged(stream->queue, 0, 0, false);
		stream->call = (struct call){0};
	} else {
		forget_shard(stream, now, STREAM_STANDBY);
	}
}
