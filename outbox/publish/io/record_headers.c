#include "record_headers.h"

#include <stdlib.h>
#include <string.h>

void record_headers_finish(struct record_headers *headers)
{
	free(headers->list);
	text_finish(&headers->bytes);
	*headers = (struct record_headers){0};
}

static void append_header(struct record_headers *headers, const char *name, size_t name_length,
    const void *value, size_t length)
{
	if (headers->count == headers->capacity) {
		headers->capacity = headers->capacity ? headers->capacity * 2 : 8;
		headers->list =
		    xrealloc(headers->list, (size_t)headers->capacity * sizeof *headers->list);
	}
	headers->list[headers->count++] =
	    (struct producer_header){name, (int32_t)name_length, value, (int32_t)length};
}

void record_headers_add(
    struct record_headers *headers, const char *name, const void *value, size_t length)
{
	append_header(headers, name, strlen(name), value, length);
}

/* All names and values are in one buffer, which may move while it grows: so these are offsets. */
struct header_place {
	size_t name, name_length, value, length;
	bool null;
};

struct header_places {
	struct text *bytes;
	struct header_place *list;
	int count;
};

static void note_header(void *context, const char *name, const void *value, size_t length)
{
	struct header_places *places = context;
	places->list = xrealloc(places->list, (size_t)(places->count + 1) * sizeof *places->list);
	struct header_place *place = &places->list[places->count++];

	*place = (struct header_place){.name = places->bytes->length,
	    .name_length = strlen(name),
	    .length = length,
	    .null = !value};
	text_append(places->bytes, name, place->name_length);
	place->value = places->bytes->length;
	/* An empty value needs an address as well: only NULL means null. */
	text_append(places->bytes, value ? value : "", length);
	text_append(places->bytes, "", 1);
}

static bool add_application_headers(
    struct record_headers *headers, const struct message *message, struct err *err)
{
	struct header_places places = {.bytes = &headers->bytes};
	text_clear(&headers->bytes);
	bool good = message_headers(message, note_header, &places, err);
	for (int i = 0; i < places.count; i++) {
		const struct header_place *place = &places.list[i];
		const char *bytes = headers->bytes.data;
		append_header(headers, bytes + place->name, place->name_length,
		    place->null ? NULL : bytes + place->value, place->length);
	}
	free(places.list);
	return good;
}

bool record_headers_begin(
    struct record_headers *headers, const struct message *message, struct err *err)
{
	headers->count = 0;
	return !message->headers || add_application_headers(headers, message, err);
}

void record_headers_add_id(struct record_headers *headers, const struct message *message)
{
	uuid_write(message->event_id, headers->id);
	record_headers_add(headers, "outbox-id", headers->id, sizeof headers->id);
}
