/*
 * Windows and the read connection. Rows come with the answer of a TICK or by pages, in the order of
 * their ids. A page that failed is read again from its last id on.
 */
#include <assert.h>
#include <stdlib.h>

#include "stream_private.h"

/* --- windows --------------------------------------------------------------------------------- */

struct window *stream_push_window(struct stream *stream, int64_t tick, int64_t acked_id)
{
	if (stream->window_count == stream->window_capacity) {
		stream->window_capacity = stream->window_capacity ? stream->window_capacity * 2 : 8;
		stream->windows = xrealloc(
		    stream->windows, (size_t)stream->window_capacity * sizeof *stream->windows);
	}
	struct window *window = &stream->windows[stream->window_count++];
	*window = (struct window){.tick = tick, .last_id = acked_id, .acked_id = acked_id};
	return window;
}

struct window *stream_reading_window(const struct stream *stream)
{
	for (int i = 0; i < stream->window_count; i++)
		if (!stream->windows[i].end)
			return &stream->windows[i];
	return NULL;
}

void stream_pass_acked(struct stream *stream)
{
	int64_t tick, id;
	int i = 0;
	while (record_queue_pass(stream->queue, &tick, &id)) {
		while (stream->windows[i].tick != tick)
			i++;
		stream->windows[i].acked_id = id;
	}
}

int stream_published_windows(const struct stream *stream)
{
	int count = 0;
	while (count < stream->window_count && stream->windows[count].end &&
	       stream->windows[count].end <= record_queue_acked(stream->queue))
		count++;
	return count;
}

void stream_close_windows(struct stream *stream, int count)
{
	assert(count <= stream->window_count);
	stream->window_count -= count;
	for (int i = 0; i < stream->window_count; i++)
		stream->windows[i] = stream->windows[i + count];
	stream->first_tick += count;
	if (stream->listed_tick && stream->first_tick >= stream->listed_tick) {
		record_queue_listed_closed(stream->queue);
		stream->listed_tick = 0;
	}
}

/* --- pages and rows -------------------------------------------------------------------------- */

bool stream_has_page_room(const struct stream *stream)
{
	return record_queue_bytes(stream->queue) + record_queue_kept_bytes(stream->queue) +
		   record_queue_found_bytes(stream->queue) + stream_page_budget(stream) <=
	       stream->settings.memory;
}

bool stream_wants_page(const struct stream *stream, int64_t now)
{
	return stream->state == STREAM_OWNER && !stream->stopping && !stream->paused &&
	       !record_queue_is_stopped(stream->queue) && stream_has_page_room(stream) &&
	       !stream_lease_is_over(stream, now) && stream_reading_window(stream) &&
	       (!stream->guard.active || poison_guard_reads(&stream->guard));
}

struct stream_page stream_read_call(struct stream *stream, int64_t now)
{
	struct stream_page page = {0};

	if (!stream_wants_page(stream, now) || now < stream->read_at)
		return page;
	const struct window *window = stream_reading_window(stream);
	/* An eighth to spare, so that rows slightly larger than average do not cut the page off. */
	int64_t rows = stream_page_budget(stream) * 7 / 8 / stream->page_cost;
	page.wanted = true;
	page.n = stream->n;
	page.nonce = stream->nonce;
	page.tick = window->tick;
	page.after_id = window->last_id - window->again;
	if (rows > PAGE_ROWS_MAX)
		rows = PAGE_ROWS_MAX;
	if (stream->guard.active && rows > stream->guard.batch)
		rows = stream->guard.batch;
	page.rows = rows < 1 ? 1 : rows;
	page.withheld = poison_guard_convicts(&stream->guard);
	stream->rows = page.withheld ? ROWS_WITHHELD : ROWS_WHOLE;
	page.bytes = stream_page_budget(stream);
	return page;
}

/* False: the row came already, with a page that failed later. */
static bool is_new_row(struct window *window, const struct message *message)
{
	if (message->id != window->last_id) {
		window->same_count = 0;
		window->again = false;
	}
	for (int i = 0; window->again && i < window->same_count; i++)
		if (window->same[i] == message->created_us)
			return false;
	if (window->same_count < SAME_ID)
		window->same[window->same_count++] = message->created_us;
	return true;
}

static void page_is_over(struct window *window)
{
	window->same_count = 0;
	window->again = false;
}

void stream_row(struct stream *stream, const struct message *message)
{
	struct window *window = stream_reading_window(stream);

	/* A row of a page of a lost shard, or one that came with the page that failed. */
	if (stream->rows == ROWS_NONE || !is_new_row(window, message)) {
		struct message unwanted = *message;
		message_release(&unwanted);
		return;
	}
	int64_t before = record_queue_bytes(stream->queue);
	record_queue_add(stream->queue, window->tick, window->tick == stream->listed_tick,
	    stream->rows == ROWS_WITHHELD, message);
	stream->guard.read = true;
	stream->looks.rows += window->tick != stream->listed_tick;
	window->last_id = message->id;
	/* A moving average, so that a page of larger rows makes the next page shorter. */
	stream->page_cost += (record_queue_bytes(stream->queue) - before - stream->page_cost) / 16;
}

static void window_complete(struct stream *stream)
{
	stream_reading_window(stream)->end = record_queue_end(stream->queue);
}

void stream_page_end(struct stream *stream, int64_t now, bool last, int64_t upto_id)
{
	struct window *window = stream_reading_window(stream);

	stream->read_failures = 0;
	if (stream->rows == ROWS_NONE)
		return;
	stream->rows = ROWS_NONE;
	page_is_over(window);
	if (last) {
		window_complete(stream);
		stream->guard.read = true; /* the window had no further row */
		stream_poll_at(stream, now, now);
	} else if (upto_id > window->last_id) {
		window->last_id = upto_id;
	}
}

void stream_read_failed(struct stream *stream, int64_t now)
{
	/* The next page begins behind the rows that came. */
	if (stream->rows != ROWS_NONE)
		stream_reading_window(stream)->again =
		    stream_reading_window(stream)->same_count > 0;
	stream->rows = ROWS_NONE;
	stream->read_at = now + stream_retry_delay(stream->read_failures++);
}

void stream_rows_end(struct stream *stream)
{
	if (stream->rows != ROWS_NONE)
		window_complete(stream);
	stream->rows = ROWS_NONE;
}
