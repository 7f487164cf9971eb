/*
 * Any record becomes a request: names and values of headers end with NUL, behind an empty name
 * comes the payload; the first byte says the form, and whether there are a key and an id.
 * Structured events are JSON, and headers of HTTP hold no line break.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "deliver_request.h"
#include "json_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

enum { MOST_HEADERS = 100 };

static const char *take_text(const char **at, const char *end)
{
	const char *text = *at;
	const char *nul = memchr(text, '\0', (size_t)(end - text));

	*at = nul ? nul + 1 : end;
	return nul ? text : NULL;
}

static size_t take_headers(const char **at, const char *end, struct outbox_rules_header *headers)
{
	size_t count = 0;
	const char *name, *value;

	while (count < MOST_HEADERS && (name = take_text(at, end)) && *name) {
		if (!(value = take_text(at, end)))
			break;
		headers[count++] = (struct outbox_rules_header){name, value, strlen(value)};
	}
	return count;
}

static void check_request(const struct deliver_request *request, const struct deliver_wire *wire)
{
	for (size_t i = 0; i < request->header_count; i++) {
		require(
		    request->headers[i].name[0] && !strpbrk(request->headers[i].name, "\r\n: "));
		require(!strpbrk(request->headers[i].value, "\r\n"));
	}
	require(request->name[0] && !strpbrk(request->name, "\r\n. "));
	/* a payload that is JSON is copied as it is, also with numbers that jansson does not take
	 */
	if (wire->form == DELIVER_BATCH || wire->mode == DELIVER_STRUCTURED) {
		require(json_text_is(request->body, request->body_length));
		require(*(const char *)request->body == (wire->form == DELIVER_BATCH ? '[' : '{'));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outbox_rules_header headers[MOST_HEADERS];

	if (size < 1)
		return 0;
	const struct deliver_wire wire = {.form = data[0] & 1 ? DELIVER_BATCH : DELIVER_SINGLE,
	    .mode = data[0] & 2 ? DELIVER_STRUCTURED : DELIVER_BINARY,
	    .defaults = {"", ""}};
	owned_text char *copy = xmalloc(size);
	memcpy(copy, data + 1, size - 1);
	const char *at = copy, *end = copy + size - 1;
	struct outbox_inbox_message message = {.topic = "orders",
	    .partition = 1,
	    .offset = 7,
	    .time_ms = INT64_C(1700000000000),
	    .headers = headers,
	    .attempt = 1};
	message.header_count = take_headers(&at, end, headers);
	if (data[0] & 4) {
		message.key = take_text(&at, end);
		message.key_length = message.key ? strlen(message.key) : 0;
	}
	if (data[0] & 8) {
		message.id = take_text(&at, end);
		message.id_length = message.id ? strlen(message.id) : 0;
	}
	if (data[0] & 16) {
		message.payload = at;
		message.payload_length = (size_t)(end - at);
	}
	const struct outbox_inbox_message *const messages[] = {&message};
	struct deliver_request request;
	deliver_request_init(&request, &wire, messages, 1);
	check_request(&request, &wire);
	deliver_request_finish(&request);
	return 0;
}
