#pragma once
/*
 * The streams of GET /v1/events, and the ring of the newest events that they read. Internal to
 * relay/admin. Any thread may call any function.
 *
 * A stream is read by its connection's thread in event_stream_read, and rests while there is
 * nothing to send. events_turn wakes it: for new events, for a heartbeat, and at the end.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct events;
struct event_stream;

enum { EVENTS_KEPT = 1024, EVENT_STREAMS = 256, EVENT_STREAMS_OF_CALLER = 32 };

/* process: the name of the process, for the ids of events. It outlives them. */
struct events *events_create(const char *process);
void events_destroy(struct events *events); /* no stream is left; NULL is fine */

/*
 * `kind` is a name from openapi.json, and outlives the events; `value` is borrowed. publisher and
 * section: only callers who may see it get the event; NULL: it belongs to none.
 */
void events_post(struct events *events, const char *kind, const json_t *value,
    const char *publisher, const char *section);
bool events_have_streams(struct events *events);
/* Wakes the streams that have something to send. To be called once a second. */
void events_turn(struct events *events);
/* Every stream ends when it has sent what there is; `forever`: streams that come later, too. */
void events_end(struct events *events, bool forever);

struct event_stream_settings {
	const char *caller;  /* the name of a [token] section */
	const char *last_id; /* header Last-Event-ID: sends what came after it; NULL: begins now */
	bool (*is_in_scope)(const char *publisher, const char *section, void *context);
	void (*suspend)(void *context); /* suspends the connection of the stream */
	void (*resume)(void *context);
	void (*progress)(void *context); /* bytes are about to be sent */
	void *context;
};
/* NULL: there are too many streams, or too many of the caller. The settings' texts are copied. */
struct event_stream *event_stream_open(
    struct events *events, const struct event_stream_settings *settings);
/* NULL is fine. */
void event_stream_close(struct event_stream *stream);
/* The connection was cut: it is resumed, and its thread notices. */
void event_stream_end(struct event_stream *stream);
/*
 * Copies what there is to send, `most` bytes at most. 0: nothing; the connection was suspended. -1:
 * the stream is over.
 */
ssize_t event_stream_read(struct event_stream *stream, char *bytes, size_t most);
