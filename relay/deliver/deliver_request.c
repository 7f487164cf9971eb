#include "deliver_request.h"

#include <stdlib.h>
#include <string.h>
#include "http_peer.h"

enum { OWN_HEADERS = 2 };

/* The text belongs to the request from now on. */
static const char *keep(struct deliver_request *request, char *text)
{
	size_t size = (request->text_count + 1) * sizeof *request->texts;

	request->texts = xrealloc(request->texts, size);
	request->texts[request->text_count++] = text;
	return text;
}

static void make_room(struct deliver_request *request, size_t attributes)
{
	size_t most = attributes + OWN_HEADERS + HTTP_PEER_HEADERS;

	request->headers = xcalloc(most, sizeof *request->headers);
}

static void add_header(struct deliver_request *request, const char *name, const char *value)
{
	request->headers[request->header_count++] = (struct http_header){name, value};
}

static void add_id(struct deliver_request *request, const struct deliver_event *event)
{
	request->ids[request->count++] = xstrdup(event->id);
}

static void add_attribute(
    struct deliver_request *request, const struct deliver_attribute *attribute)
{
	const char *name = keep(request, xformat("ce-%s", attribute->name));
	struct text value = {0};

	deliver_event_encode(&value, attribute->value);
	add_header(request, name, keep(request, value.data));
}

/* An empty body has a content type all the same when there is a payload. */
static void write_binary(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *message)
{
	struct deliver_event event;

	deliver_event_init(&event, message, &wire->defaults);
	make_room(request, event.count);
	add_id(request, &event);
	for (size_t i = 0; i < event.count; i++)
		add_attribute(request, &event.attributes[i]);
	if (event.content_type)
		add_header(request, "Content-Type", keep(request, xstrdup(event.content_type)));
	request->body = event.payload ? event.payload : "";
	request->body_length = event.length;
	deliver_event_finish(&event);
}

static void write_event(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *message)
{
	struct deliver_event event;

	deliver_event_init(&event, message, &wire->defaults);
	add_id(request, &event);
	deliver_event_write(&event, &request->written);
	deliver_event_finish(&event);
}

static void write_structured(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	bool batch = wire->form == DELIVER_BATCH;

	make_room(request, 0);
	add_header(request, "Content-Type",
	    batch ? "application/cloudevents-batch+json; charset=utf-8"
		  : "application/cloudevents+json; charset=utf-8");
	text_add(&request->written, batch ? "[" : "");
	for (size_t i = 0; i < count; i++) {
		text_add(&request->written, i ? "," : "");
		write_event(request, wire, messages[i]);
	}
	text_add(&request->written, batch ? "]" : "");
	request->body = text_string(&request->written);
	request->body_length = request->written.length;
}

/* Of several messages it is made of all their ids in their order. */
static char *name_of(const struct deliver_request *request)
{
	struct text all = {0};
	char *name;

	if (request->count == 1)
		return deliver_event_name(request->ids[0]);
	for (size_t i = 0; i < request->count; i++)
		text_addf(&all, "%s\n", request->ids[i]);
	name = deliver_event_name(text_string(&all));
	text_finish(&all);
	return name;
}

void deliver_request_init(struct deliver_request *request, const struct deliver_wire *wire,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	*request = (struct deliver_request){.ids = xcalloc(count, sizeof *request->ids)};
	if (wire->form == DELIVER_SINGLE && wire->mode == DELIVER_BINARY)
		write_binary(request, wire, messages[0]);
	else
		write_structured(request, wire, messages, count);
	add_header(request, "Accept", "application/json");
	request->name = name_of(request);
}

void deliver_request_finish(struct deliver_request *request)
{
	for (size_t i = 0; i < request->text_count; i++)
		free(request->texts[i]);
	for (size_t i = 0; i < request->count; i++)
		free(request->ids[i]);
	free(request->texts);
	free(request->ids);
	free(request->headers);
	free(request->name);
	text_finish(&request->written);
	*request = (struct deliver_request){0};
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

bool deliver_request_is_ambiguous(const struct deliver_request *request)
{
	owned_text char **sorted = xcalloc(request->count, sizeof *sorted);

	memcpy(sorted, request->ids, request->count * sizeof *sorted);
	qsort(sorted, request->count, sizeof *sorted, compare_texts);
	for (size_t i = 1; i < request->count; i++)
		if (strcmp(sorted[i - 1], sorted[i]) == 0)
			return true;
	return false;
}
