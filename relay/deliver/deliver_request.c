#include "deliver_request.h"

#include <stdlib.h>
#include <string.h>
#include "http_credentials.h"
#include "http_peer.h"

enum { OWN_HEADERS = 3 };

static const char *copy_request_text(struct deliver_request *request, const char *text)
{
	return arena_text(&request->memory, text);
}

static void reserve_headers(
    struct deliver_request *request, const struct deliver_wire *wire, size_t attributes)
{
	size_t most = attributes + OWN_HEADERS + HTTP_PEER_HEADERS +
		      (wire->has_credentials ? HTTP_CREDENTIALS_HEADERS : 0);

	request->headers = arena_take(&request->memory, most * sizeof *request->headers);
}

static void add_request_header(struct deliver_request *request, const char *name, const char *value)
{
	request->headers[request->header_count++] = (struct http_header){name, value};
}

static void add_event_id(struct deliver_request *request, const struct deliver_event *event)
{
	request->ids[request->count++] = copy_request_text(request, event->id);
}

static void add_attribute(
    struct deliver_request *request, const struct deliver_attribute *attribute)
{
	const char *name = arena_join(&request->memory, "ce-", attribute->name, NULL);

	add_request_header(request, name, deliver_event_encode(&request->memory, attribute->value));
}

/* A header also if the attributes are in the body: the application can refuse a token before it
 * reads the body. */
static void add_token(struct deliver_request *request, const struct deliver_event *event)
{
	if (event->token)
		add_request_header(
		    request, "ce-" DELIVER_TOKEN, copy_request_text(request, event->token));
}

/* An empty body has a content type all the same when there is a payload. */
static void write_binary(struct deliver_request *request, const struct deliver_event *event)
{
	for (size_t i = 0; i < event->count; i++)
		add_attribute(request, &event->attributes[i]);
	if (event->structured)
		add_token(request, event);
	if (event->content_type)
		add_request_header(
		    request, "Content-Type", copy_request_text(request, event->content_type));
	request->body = event->payload ? event->payload : "";
	request->body_length = event->length;
}

static void write_structured(struct deliver_request *request, const struct deliver_event *event)
{
	add_request_header(request, "Content-Type", "application/cloudevents+json; charset=utf-8");
	add_token(request, event);
	deliver_event_write(event, &request->written);
	request->body = text_string(&request->written);
	request->body_length = request->written.length;
}

/* A structured event has no attributes to be headers: its payload goes out as it is. */
static void write_single(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *message)
{
	struct deliver_event event;

	deliver_event_init(&event, message, &wire->defaults);
	reserve_headers(request, wire, event.count);
	add_event_id(request, &event);
	if (event.structured || (wire->mode == DELIVER_BINARY && deliver_event_is_text(&event)))
		write_binary(request, &event);
	else
		write_structured(request, &event);
	deliver_event_finish(&event);
}

static void write_batch(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	reserve_headers(request, wire, 0);
	add_request_header(request, "Content-Type", "application/cloudevents-batch+json");

	/* One event at a time in memory: the request keeps its id and its text. */
	for (size_t i = 0; i < count; i++) {
		struct deliver_event event;

		deliver_event_init(&event, messages[i], &wire->defaults);
		add_event_id(request, &event);
		text_append(&request->written, i ? "," : "[", 1);
		deliver_event_write(&event, &request->written);
		deliver_event_finish(&event);
	}
	text_append(&request->written, "]", 1);
	request->body = text_string(&request->written);
	request->body_length = request->written.length;
}

/* The name of several messages is made of all their ids in their order. */
static const char *request_name(struct deliver_request *request)
{
	OWNED(text_finish) struct text all = {0};
	char made[DELIVER_NAME_SIZE];

	if (request->count == 1)
		return copy_request_text(request, deliver_event_name(request->ids[0], made));
	for (size_t i = 0; i < request->count; i++) {
		text_add(&all, request->ids[i]);
		text_append(&all, "\n", 1);
	}
	return copy_request_text(request, deliver_event_name(text_string(&all), made));
}

void deliver_request_init(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	*request = (struct deliver_request){0};
	request->ids = arena_take(&request->memory, count * sizeof *request->ids);
	if (wire->form == DELIVER_SINGLE)
		write_single(request, wire, messages[0]);
	else
		write_batch(request, wire, messages, count);
	add_request_header(request, "Accept", "application/json");
	request->name = request_name(request);
}

void deliver_request_finish(struct deliver_request *request)
{
	arena_finish(&request->memory);
	text_finish(&request->written);
	*request = (struct deliver_request){0};
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool deliver_request_is_ambiguous(const struct deliver_request *request)
{
	owned_text const char **sorted = xcalloc(request->count, sizeof *sorted);

	memcpy(sorted, request->ids, request->count * sizeof *sorted);
	qsort(sorted, request->count, sizeof *sorted, compare_texts);
	for (size_t i = 1; i < request->count; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			return true;
	return false;
}
