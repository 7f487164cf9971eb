/*
 * The next call on the log connection. An owner reads the open destinations first, then the stalled
 * places. After that a TICK writes a log row when one must be written or a window may be opened,
 * and look-ups of parked keys take turns with it. The first functions answer one question each,
 * tick_call and the other …_call functions build a call, and next_call chooses one.
 */
#include <assert.h>
#include <stdlib.h>

#include "stream_private.h"

enum {
	SMALL_WINDOW_ROWS = 1000,
	PLACES_A_PAGE = 500,
	PARKS_A_ROW = 500,    /* maximum of parked records in a log row */
	TOPICS_A_PAGE = 1000, /* open topics in a page after a take-over */
	PARTITIONS_A_PAGE = 4000,
	CHECKS = 100,              /* closed topics in a page */
	SHORT_TRANSACTION_MS = 10, /* maximum delay of a look for the commit of a transaction */
	TURN_MS = 20, /* until the next try while another shard's poison guard has the turn */
};

/* Draws a nonce or an epoch, positive (splitmix64). */
static int64_t draw_stream_number(struct stream *stream)
{
	uint64_t z = (stream->random += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (int64_t)((z ^ (z >> 31)) >> 1) | 1;
}

/* --- reasons to write a row, or to open a window --------------------------------------------- */

/*
 * Positions that Kafka has and the log does not are recognised by their ticks. So no tick is given
 * out before the tails are read. The limit of time is for a partition that is away: it must not
 * stop the others for ever.
 */
static bool is_strange(struct stream *stream, int64_t now)
{
	bool awaits = stream->open_unknown || record_queue_awaits_first_tails(stream->queue);
	if (stream->strange_until && (now >= stream->strange_until || !awaits))
		stream->strange_until = 0;
	return stream->strange_until;
}

static bool may_open(const struct stream *stream)
{
	return !stream->stopping && !record_queue_is_stopped(stream->queue) &&
	       !stream_reading_window(stream) && stream->window_count < MAX_WINDOWS &&
	       stream_has_page_room(stream) && !record_queue_has_changed_topics(stream->queue) &&
	       !record_queue_is_full(stream->queue);
}

bool stream_has_progress(const struct stream *stream)
{
	return record_queue_acked(stream->queue) > record_queue_covered(stream->queue) ||
	       stream_published_windows(stream);
}

static void watch_progress(struct stream *stream, int64_t now)
{
	if (!stream_has_progress(stream))
		stream->progress_at = 0;
	else if (!stream->progress_at)
		stream->progress_at = now;
}

/*
 * Rows that come while a transaction is open would prolong it, and each of its partitions costs the
 * broker a request of its own. So the look waits for the begin of its commit: its rows fill the
 * next transaction meanwhile. A long transaction has much to send, and looks go on.
 */
static int64_t look_due(const struct stream *stream)
{
	int64_t end = stream->transaction_at + SHORT_TRANSACTION_MS;
	bool waits = stream->settings.transactions && stream_is_in_transaction(stream);
	return waits && end > stream->next_poll ? end : stream->next_poll;
}

/* Is the listed window published? Only then may the next one open. */
static bool listed_is_published(const struct stream *stream)
{
	return stream->listed_tick &&
	       stream->first_tick + stream_published_windows(stream) >= stream->listed_tick;
}

/* The last records of a drain are published, and the drain ends when a row notes them. */
static bool is_drain_over(const struct stream *stream)
{
	return stream->settings.drains && stream->found_nothing &&
	       stream_published_windows(stream) == stream->window_count;
}

static bool must_note_progress(const struct stream *stream, int64_t now)
{
	int64_t unnoted =
	    (int64_t)(record_queue_acked(stream->queue) - record_queue_covered(stream->queue));
	return stream_has_progress(stream) &&
	       (listed_is_published(stream) || is_drain_over(stream) ||
		   unnoted >= (stream->settings.max_in_flight + 3) / 4 ||
		   record_queue_is_full(stream->queue) || stream->window_count >= MANY_WINDOWS ||
		   (stream->progress_at &&
		       now - stream->progress_at >= stream->settings.ack_interval_ms));
}

/*
 * Gaps are closed first: records that Kafka has behind a gap could not be noted and would be sent
 * again. With a record in flight the shard is kept: the producer would go on writing at the same
 * time as the next owner.
 */
static bool wants_release(const struct stream *stream, int64_t now)
{
	return stream->stopping && !record_queue_under_way(stream->queue) &&
	       (stream_must_end(stream, now) ||
		   (!record_queue_has_gap(stream->queue) && !record_queue_written(stream->queue) &&
		       !record_queue_keeps_back(stream->queue)));
}

/*
 * A call may take a third of the lease. If the renewal fails after all of it, a RENEW must still
 * end within the lease. While the shard dozes and has no record, nothing is lost with the lease,
 * and the rest of it is enough for that RENEW. The renewal then waits a little for the next look,
 * and looks itself.
 */
static int64_t renewal_due(const struct stream *stream)
{
	int64_t lease_ms = stream->settings.lease_ms, look = stream->next_poll;
	if (!stream->dozes || record_queue_count(stream->queue) > 0)
		return stream->written_at + lease_ms / 3;

	int64_t due = stream->written_at + lease_ms / 2;
	return look > due && look <= due + lease_ms / 10 ? look : due;
}

static bool renewal_is_due(const struct stream *stream, int64_t now)
{
	return now >= renewal_due(stream);
}

static bool changes_counts(const struct stream *stream)
{
	return record_queue_has_changed_topics(stream->queue) && stream_is_producer_settled(stream);
}

/* Later records must not get positions that Kafka has, or had, for other records. */
static bool renews_epoch(const struct stream *stream)
{
	return changes_counts(stream) || stream->rewound || record_queue_recreated(stream->queue);
}

/*
 * The poison guard is active, all rows that were read are published, and Kafka has answered: a log
 * row with a mark must be written before the next row is read.
 */
static bool may_mark(struct stream *stream)
{
	return stream->guard.active && stream_reading_window(stream) &&
	       !record_queue_count(stream->queue) && !poison_guard_reads(&stream->guard) &&
	       stream->rows == ROWS_NONE && !stream->strange_until &&
	       stream->producer == PRODUCER_CONFIRMED && !stream->stopping &&
	       !record_queue_is_stopped(stream->queue) && poison_guard_has_turn(&stream->guard);
}

/* A row must be written, and not only to renew the lease. */
static bool must_note(struct stream *stream, int64_t now)
{
	return must_note_progress(stream, now) || wants_release(stream, now) ||
	       renews_epoch(stream) || stream_must_leave_epoch(stream) ||
	       record_queue_has_parks(stream->queue) ||
	       record_queue_has_new_topics(stream->queue) ||
	       record_queue_must_log_tails(stream->queue) || stream->producer == PRODUCER_READY ||
	       may_mark(stream);
}

static bool must_write(struct stream *stream, int64_t now)
{
	return renewal_is_due(stream, now) || must_note(stream, now);
}

bool stream_has_left_found_windows(const struct stream *stream)
{
	return stream->tail_tick && !stream->tail_open && stream->first_tick >= stream->tail_tick &&
	       !record_queue_awaits_stalled(stream->queue);
}

/*
 * One listed window at a time, and operators' requests in between. A skip may end a queue of parked
 * rows. The former owner may have kept back a row of that queue without a note, and published later
 * rows of the partition. While the queue exists, that row is parked behind it, and is published in
 * a later window. So no queue may end before all windows of the former owner are published.
 */
static bool may_list(const struct stream *stream)
{
	return !stream->paused && !stream->listed_tick &&
	       stream->first_tick >= stream->inherited_tick;
}

/* --- calls ----------------------------------------------------------------------------------- */

/* notes: the row does more than renew the lease. */
static struct poison_guard_row next_guard_row(struct stream *stream, int64_t now, bool notes)
{
	const struct poison_guard_step step = {
	    .marks = notes && may_mark(stream),
	    .published =
		record_queue_count(stream->queue) == 0 || record_queue_notes_all(stream->queue),
	    .progress = notes && stream_has_progress(stream),
	    .renews = renewal_is_due(stream, now),
	    .renews_alone = !notes,
	    .reading = stream->rows != ROWS_NONE,
	    .stuck = record_queue_count(stream->queue) && !stream->paused &&
		     now - stream->marked_at > stream->settings.stall_after_ms,
	    .first_tick = stream->first_tick + (notes ? stream_published_windows(stream) : 0),
	};

	return poison_guard_next(&stream->guard, &step);
}

/* The share of a TICK's work: less after late TICKs, but at least one row. */
static int64_t piece_of(const struct stream *stream, int64_t whole)
{
	int64_t piece = whole >> stream->halves;
	return piece < 1 ? 1 : piece;
}

/* The limit of parks shrinks in proportion to the batch. */
static int64_t parks_of(const struct stream *stream)
{
	return PARKS_A_ROW * stream->batch / stream_most_batch(stream);
}

/* A shard that is about to be released needs no longer lease. */
static bool must_renew_alone(const struct stream *stream, int64_t now)
{
	return stream->renew_at != INT64_MAX && !wants_release(stream, now);
}

static struct stream_tick renew_call(struct stream *stream)
{
	return (struct stream_tick){.call = STREAM_RENEW,
	    .n = stream->n,
	    .nonce = stream->nonce,
	    .new_nonce = draw_stream_number(stream),
	    .fresh_epoch = stream->logged_epoch,
	    .lease_ms = stream->settings.lease_ms};
}

/*
 * Has a TICK of a shard that dozes nothing to do but renew the lease? RENEW does this for a part of
 * the cost, and its answer says whether anything changed since the last look, which found nothing.
 */
static bool is_renewal_only(struct stream *stream, const struct stream_tick *tick, int64_t now)
{
	return tick->must_write && tick->may_open && !tick->may_list && !tick->fold_to &&
	       !tick->parks && text_equal(tick->destinations, "{}") && !must_note(stream, now) &&
	       !stream_has_progress(stream) && stream->window_count == 0 && stream->found_nothing &&
	       !stream->blind && !stream->guard.active;
}

static struct stream_tick tick_call(struct stream *stream, int64_t now)
{
	struct stream_tick tick = {.n = stream->n, .nonce = stream->nonce};
	watch_progress(stream, now);

	bool may = !is_strange(stream, now) && may_open(stream);
	tick.may_list = may && may_list(stream) &&
			(now >= stream->list_at || stream_has_left_found_windows(stream));
	tick.must_write = must_write(stream, now);
	/* A shard that dozes looks when it renews its lease, and so looks less often besides. */
	tick.may_open =
	    may && (now >= look_due(stream) || tick.may_list || (stream->dozes && tick.must_write));
	bool asks = stream->paused && now >= look_due(stream);
	if (!tick.may_open && !tick.must_write && !asks)
		return tick;

	bool dozes = stream->dozes;
	tick.call = STREAM_TICK;
	stream->hurries &= !tick.may_open;
	stream->dozes &= !tick.may_open;
	tick.new_nonce = draw_stream_number(stream);
	tick.new_epoch = renews_epoch(stream) || stream_must_leave_epoch(stream);
	tick.fresh_epoch = tick.new_epoch ? draw_stream_number(stream) : stream->logged_epoch;
	tick.lease_ms = wants_release(stream, now) ? 0 : stream->settings.lease_ms;
	tick.closed = stream_published_windows(stream);
	tick.acked_id =
	    tick.closed < stream->window_count ? stream->windows[tick.closed].acked_id : 0;

	int64_t rows = stream_page_budget(stream) / stream->page_cost;
	tick.max_rows = rows < SMALL_WINDOW_ROWS ? rows + 1 : SMALL_WINDOW_ROWS;
	tick.max_rows = stream->guard.active ? 0 /* by pages */ : piece_of(stream, tick.max_rows);
	tick.max_bytes = piece_of(stream, stream_page_budget(stream) / 2);
	tick.blind = stream->blind;
	tick.batch = piece_of(stream, stream->batch);

	text_clear(&stream->destinations);
	record_queue_destinations(stream->queue, stream->n + 1, changes_counts(stream),
	    stream->halves, &stream->destinations);
	tick.destinations = text_string(&stream->destinations);
	tick.fold_to = record_queue_fold_to(stream->queue, stream->n + 1);
	free(stream->parks);
	tick.parks = stream->parks =
	    record_queue_parks_json(stream->queue, (int)piece_of(stream, parks_of(stream)));

	if (!dozes || !is_renewal_only(stream, &tick, now))
		return tick;
	record_queue_logged(stream->queue, 0, 0, false);
	struct stream_tick renewal = renew_call(stream);
	renewal.may_open = true;
	return renewal;
}

/*
 * Open destinations come first: the records that a former owner wrote to their partitions must be
 * found before other rows go there.
 */
static bool wants_destinations(const struct stream *stream, int64_t now)
{
	return (stream->open_unknown || record_queue_wants_destinations(stream->queue)) &&
	       now >= stream->load_at && !renewal_is_due(stream, now);
}

static bool checks_closed(const struct stream *stream, int64_t now)
{
	return stream->settings.topic_idle_ms && now >= stream->check_at && !stream->stopping &&
	       !renewal_is_due(stream, now);
}

static struct stream_tick closed_call(struct stream *stream)
{
	return (struct stream_tick){.call = STREAM_CLOSED,
	    .after = text_string(&stream->check_after),
	    .max_topics = CHECKS};
}

static struct stream_tick destinations_call(struct stream *stream)
{
	struct stream_tick tick = {.call = STREAM_DESTINATIONS,
	    .n = stream->n,
	    .nonce = stream->nonce,
	    .after = text_string(&stream->open_after),
	    .max_topics = TOPICS_A_PAGE,
	    .max_partitions = PARTITIONS_A_PAGE};

	if (stream->open_unknown)
		return tick;
	pg_array_clear(&stream->topics);
	record_queue_load(stream->queue, &stream->topics);
	tick.topics = pg_array_end(&stream->topics);
	return tick;
}

/* After the open destinations, as a place waits for the tail of its partition. */
static bool wants_places(const struct stream *stream)
{
	return stream->places_unknown && !stream->open_unknown;
}

static struct stream_tick places_call(const struct stream *stream)
{
	return (struct stream_tick){.call = STREAM_PLACES,
	    .n = stream->n,
	    .nonce = stream->nonce,
	    .most = PLACES_A_PAGE,
	    .after_topic = stream->after_topic,
	    .after_partition = stream->after_partition};
}

/* The next query about parked keys: look-ups first, since records wait for them. */
static struct stream_tick keys_call(struct stream *stream)
{
	struct stream_tick tick = {.n = stream->n, .nonce = stream->nonce};
	if (record_queue_wants_lookup(stream->queue)) {
		tick.call = STREAM_LOOKUP;
		tick.most = record_queue_lookup_call(stream->queue, &tick.lookups);
	} else if (record_queue_wants_digests(stream->queue)) {
		tick.call = STREAM_DIGESTS;
		tick.most = record_queue_digests_call(stream->queue, &tick.from_digest);
	}
	return tick;
}

/* TICKs and queries about keys take turns, so that neither kind starves the other. */
static struct stream_tick owner_call(struct stream *stream, int64_t now)
{
	struct stream_tick tick = {0};
	if (stream->looks_first && !renewal_is_due(stream, now))
		tick = keys_call(stream);
	if (tick.call == STREAM_NONE)
		tick = tick_call(stream, now);
	if (tick.call == STREAM_NONE && !stream->looks_first)
		tick = keys_call(stream);
	stream->looks_first = tick.call == STREAM_TICK;
	return tick;
}

static struct stream_tick next_call(struct stream *stream, int64_t now)
{
	switch (stream->state) {
	case STREAM_STANDBY:
		if (stream->producer_verdict)
			return (struct stream_tick){0};
		if (stream->stopping) {
			stream_move(stream, STREAM_RELEASED);
			return (struct stream_tick){0};
		}
		if (now < stream->next_take)
			return (struct stream_tick){0};
		return (struct stream_tick){.call = STREAM_TAKE,
		    .new_nonce = draw_stream_number(stream),
		    .fresh_epoch = draw_stream_number(stream),
		    .lease_ms = stream->settings.lease_ms};
	case STREAM_OWNER:
		if (must_renew_alone(stream, now))
			return now >= stream->renew_at ? renew_call(stream)
						       : (struct stream_tick){0};
		if (now < stream->retry_at)
			return (struct stream_tick){0};

		if (wants_destinations(stream, now))
			return destinations_call(stream);
		if (wants_places(stream) && !renewal_is_due(stream, now))
			return places_call(stream);
		if (checks_closed(stream, now))
			return closed_call(stream);
		return owner_call(stream, now);
	default:
		return (struct stream_tick){0};
	}
}

struct stream_tick stream_log_call(struct stream *stream, int64_t now)
{
	if (stream->state == STREAM_UNSURE)
		return (struct stream_tick){
		    .call = now >= stream->retry_at ? STREAM_NEWEST : STREAM_NONE};
	assert(stream->call.tick.call == STREAM_NONE);
	struct stream_tick tick = next_call(stream, now);
	if (tick.call == STREAM_NONE)
		return tick;

	/* Computed once, as the turn may become free at any time. */
	const struct poison_guard_row row =
	    stream_writes_row(tick.call) ? next_guard_row(stream, now, tick.call == STREAM_TICK)
					 : (struct poison_guard_row){0};
	tick.deaths = row.deaths;
	bool renews_epoch_too = tick.call != STREAM_RENEW && renews_epoch(stream);
	stream->call = (struct call){tick, now, record_queue_acked(stream->queue), renews_epoch_too,
	    stream->producer != PRODUCER_NEW, row};
	return tick;
}

/* --- when ------------------------------------------------------------------------------------ */

int64_t stream_log_call_due(struct stream *stream, int64_t now)
{
	const struct stream_settings *settings = &stream->settings;
	if (stream->state == STREAM_UNSURE)
		return stream->retry_at;
	if (stream->call.tick.call != STREAM_NONE)
		return INT64_MAX;
	if (stream->state == STREAM_STANDBY)
		return stream->producer_verdict ? INT64_MAX : stream->next_take;
	if (stream->state != STREAM_OWNER)
		return INT64_MAX;
	if (must_renew_alone(stream, now))
		return stream->renew_at;

	bool asks = wants_places(stream) || record_queue_wants_lookup(stream->queue) ||
		    record_queue_wants_digests(stream->queue);
	int64_t due = must_write(stream, now) || asks ? now : renewal_due(stream);
	if (stream->open_unknown || record_queue_wants_destinations(stream->queue))
		due = earlier_of(due, stream->load_at);
	if (may_open(stream) && may_list(stream) && stream->list_at >= stream->strange_until)
		due = earlier_of(due, stream->list_at);
	if (may_open(stream))
		due =
		    earlier_of(due, look_due(stream) < stream->strange_until ? stream->strange_until
									     : look_due(stream));
	if (stream->paused)
		due = earlier_of(due, look_due(stream));
	if (stream_has_progress(stream))
		due = earlier_of(due,
		    stream->progress_at ? stream->progress_at + settings->ack_interval_ms : now);
	if (stream->guard.active && stream_reading_window(stream))
		due =
		    earlier_of(due, stream->strange_until ? stream->strange_until : now + TURN_MS);
	if (stream->stopping && !record_queue_under_way(stream->queue))
		due = earlier_of(due, stream->stop_by);
	return due < stream->retry_at ? stream->retry_at : due;
}
