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

static void add_application_header(
    void *context, const char *name, size_t name_length, const void *value, size_t length)
{
	append_header(context, name, name_length, value, length);
}

bool record_headers_begin(
    struct record_headers *headers, const struct message *message, struct err *err)
{
	headers->count = 0;
	return !message->headers ||
	       message_headers(message, &headers->bytes, add_application_header, headers, err);
}

void record_headers_add_id(struct record_headers *headers, const struct message *message)
{
	uuid_write(message->event_id, headers->id);
	record_headers_add(headers, "outbox-id", headers->id, sizeof headers->id);
}
