/*
 * [events come] into a ring, as the text that is sent, with the number of each. [streams] have the
 * number of the event that they send next; one that is too slow for the ring gets a reset.
 */
#include "events.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <utlist.h>
#include "cleanup.h"
#include "clock.h"
#include "text.h"

enum { HEARTBEAT_MS = 10000 };

struct event {
	int64_t number; /* from 1 on */
	char *text;     /* as it is sent */
	char *publisher, *section;
};

struct event_stream {
	struct events *events;
	struct event_stream_settings settings;
	char *caller;
	int64_t next; /* number of the event that it reads next */
	int64_t beat_ms;
	struct text ready; /* to be sent from `sent` on */
	size_t sent;
	bool rests; /* its connection is suspended */
	bool ends;
	struct event_stream *prev, *next_stream;
};

struct events {
	pthread_mutex_t mutex;
	const char *process;
	struct event ring[EVENTS_KEPT]; /* that of a number is at number % EVENTS_KEPT */
	int64_t last;                   /* number of the newest event */
	struct event_stream *streams;
	int count;
	bool has_ended;
};

struct events *events_create(const char *process)
{
	struct events *events = xcalloc(1, sizeof *events);

	events->process = process;
	pthread_mutex_init(&events->mutex, NULL);
	return events;
}

static void finish_event(struct event *event)
{
	free(event->text);
	free(event->publisher);
	free(event->section);
}

void events_destroy(struct events *events)
{
	if (!events)
		return;
	for (int i = 0; i < EVENTS_KEPT; i++)
		finish_event(&events->ring[i]);
	pthread_mutex_destroy(&events->mutex);
	free(events);
}

/* --- events come ----------------------------------------------------------------------------- */

/* The id names the process: the numbers of another one mean other events. */
static char *format_event(
    const struct events *events, int64_t number, const char *kind, const json_t *value)
{
	char *json = json_dumps(value, JSON_COMPACT);
	char *text = xformat(
	    "id: %" PRId64 "@%s\nevent: %s\ndata: %s\n\n", number, events->process, kind, json);

	free(json);
	return text;
}

void events_post(struct events *events, const char *kind, const json_t *value,
    const char *publisher, const char *section)
{
	struct event *event;

	pthread_mutex_lock(&events->mutex);
	events->last++;
	event = &events->ring[events->last % EVENTS_KEPT];
	finish_event(event);
	*event = (struct event){.number = events->last,
	    .text = format_event(events, events->last, kind, value),
	    .publisher = publisher ? xstrdup(publisher) : NULL,
	    .section = section ? xstrdup(section) : NULL};
	pthread_mutex_unlock(&events->mutex);
}

bool events_have_streams(struct events *events)
{
	bool have;

	pthread_mutex_lock(&events->mutex);
	have = events->count > 0;
	pthread_mutex_unlock(&events->mutex);
	return have;
}

static void wake_stream(struct event_stream *stream)
{
	if (!stream->rests)
		return;
	stream->rests = false;
	stream->settings.resume(stream->settings.context);
}

void events_turn(struct events *events)
{
	struct event_stream *stream;
	int64_t now = clock_ms();

	pthread_mutex_lock(&events->mutex);
	DL_FOREACH2(events->streams, stream, next_stream)
	if (stream->ends || stream->next <= events->last || now >= stream->beat_ms)
		wake_stream(stream);
	pthread_mutex_unlock(&events->mutex);
}

void events_end(struct events *events, bool forever)
{
	struct event_stream *stream;

	pthread_mutex_lock(&events->mutex);
	events->has_ended |= forever;
	DL_FOREACH2(events->streams, stream, next_stream)
	{
		stream->ends = true;
		wake_stream(stream);
	}
	pthread_mutex_unlock(&events->mutex);
}

/* --- streams --------------------------------------------------------------------------------- */

static int64_t first_kept(const struct events *events)
{
	return events->last < EVENTS_KEPT ? 1 : events->last - EVENTS_KEPT + 1;
}

/* The event behind the one that the client has seen; 0: it is not known or not kept. */
static int64_t number_behind(const struct events *events, const char *last_id)
{
	const char *at = strchr(last_id, '@');
	owned_text char *number = at ? xformat("%.*s", (int)(at - last_id), last_id) : NULL;
	int64_t seen;

	if (!at || !text_equal(at + 1, events->process) ||
	    !text_to_int64(number, 0, events->last, &seen) || seen + 1 < first_kept(events))
		return 0;
	return seen + 1;
}

/* The client has missed events: it reads everything anew. */
static void add_reset(const struct events *events, struct text *ready)
{
	text_addf(
	    ready, "id: %" PRId64 "@%s\nevent: reset\ndata: {}\n\n", events->last, events->process);
}

static void begin_stream(struct event_stream *stream, const char *last_id)
{
	const struct events *events = stream->events;
	int64_t next = last_id ? number_behind(events, last_id) : events->last + 1;

	/* A browser then waits for a second before it connects again. */
	text_add(&stream->ready, "retry: 1000\n\n");
	/* Without an id, the client has just read everything, or is about to. */
	if (next == 0 || !last_id)
		add_reset(events, &stream->ready);
	stream->next = next ? next : events->last + 1;
}

static int streams_of(const struct events *events, const char *caller)
{
	const struct event_stream *stream;
	int count = 0;

	DL_FOREACH2(events->streams, stream, next_stream)
	count += text_equal(stream->caller, caller);
	return count;
}

struct event_stream *event_stream_open(
    struct events *events, const struct event_stream_settings *settings)
{
	struct event_stream *stream = NULL;

	pthread_mutex_lock(&events->mutex);
	if (events->count < EVENT_STREAMS &&
	    streams_of(events, settings->caller) < EVENT_STREAMS_OF_CALLER) {
		stream = xcalloc(1, sizeof *stream);
		stream->events = events;
		stream->settings = *settings;
		stream->caller = xstrdup(settings->caller);
		stream->ends = events->has_ended;
		stream->beat_ms = clock_ms() + HEARTBEAT_MS;
		begin_stream(stream, settings->last_id);
		DL_APPEND2(events->streams, stream, prev, next_stream);
		events->count++;
	}
	pthread_mutex_unlock(&events->mutex);
	return stream;
}

void event_stream_close(struct event_stream *stream)
{
	struct events *events;

	if (!stream)
		return;
	events = stream->events;
	pthread_mutex_lock(&events->mutex);
	DL_DELETE2(events->streams, stream, prev, next_stream);
	events->count--;
	pthread_mutex_unlock(&events->mutex);
	text_finish(&stream->ready);
	free(stream->caller);
	free(stream);
}

void event_stream_end(struct event_stream *stream)
{
	pthread_mutex_lock(&stream->events->mutex);
	stream->ends = true;
	wake_stream(stream);
	pthread_mutex_unlock(&stream->events->mutex);
}

/* Fills `ready`, which is empty, with the events that the caller may see, or with a heartbeat. */
static void fill_stream(struct event_stream *stream)
{
	const struct events *events = stream->events;
	int64_t now = clock_ms();

	text_clear(&stream->ready);
	stream->sent = 0;
	if (stream->next < first_kept(events)) {
		add_reset(events, &stream->ready);
		stream->next = events->last + 1;
	}
	for (; stream->next <= events->last; stream->next++) {
		const struct event *event = &events->ring[stream->next % EVENTS_KEPT];

		if (stream->settings.is_in_scope(
			event->publisher, event->section, stream->settings.context))
			text_add(&stream->ready, event->text);
	}
	if (stream->ready.length == 0 && now >= stream->beat_ms)
		text_add(&stream->ready, ": heartbeat\n\n");
	if (stream->ready.length > 0)
		stream->beat_ms = now + HEARTBEAT_MS;
}

ssize_t event_stream_read(struct event_stream *stream, char *bytes, size_t most)
{
	size_t length;

	pthread_mutex_lock(&stream->events->mutex);
	if (stream->sent == stream->ready.length)
		fill_stream(stream);
	length = stream->ready.length - stream->sent;
	length = length < most ? length : most;
	memcpy(bytes, text_string(&stream->ready) + stream->sent, length);
	stream->sent += length;
	if (length == 0 && stream->ends) {
		pthread_mutex_unlock(&stream->events->mutex);
		return -1;
	}
	if (length == 0) {
		stream->rests = true;
		stream->settings.suspend(stream->settings.context);
	}
	pthread_mutex_unlock(&stream->events->mutex);
	if (length > 0)
		stream->settings.progress(stream->settings.context);
	return (ssize_t)length;
}
