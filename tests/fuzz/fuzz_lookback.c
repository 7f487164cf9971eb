/*
 * Any bytes are a request or are refused with a code. The first byte says in which form: 'J' a
 * record's JSON, 'B' the body of a request, else headers, each a name and a value that end with a
 * newline, and behind an empty line the payload.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "wire.h"

enum { MOST_HEADERS = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* The line at *at, ended with NUL; *at goes behind it. NULL: there is no whole one. */
static char *take_line(char **at, char *end, size_t *ret_length)
{
	char *line = *at;
	char *newline = memchr(line, '\n', (size_t)(end - line));

	if (!newline)
		return NULL;
	*newline = '\0';
	*ret_length = (size_t)(newline - line);
	*at = newline + 1;
	return line;
}

static void take_headers(
    struct lookback_input *input, struct lookback_header *headers, char *at, char *end)
{
	size_t length;
	char *name;

	while (input->header_count < MOST_HEADERS && (name = take_line(&at, end, &length)) &&
	       length > 0) {
		char *value = take_line(&at, end, &length);

		headers[input->header_count++] =
		    (struct lookback_header){name, value, value ? length : 0};
	}
	input->headers = headers;
	input->value = at;
	input->value_length = (size_t)(end - at);
}

static void check(const struct lookback_request *request)
{
	owned_text char *key = lookback_wire_key(request);
	unsigned char uuid[UUID_BYTES];

	require(strlen(request->biz_type) <= 100 && strchr(request->biz_type, ':') == NULL);
	require(request->biz_id[0] != '\0' && strlen(request->biz_id) <= 500);
	require(request->op != LOOKBACK_PREPARE || request->topic);
	require(request->check_after_ms >= -1 && request->expires_after_ms >= -1);
	require(!request->unique_key ||
		(strlen(request->unique_key) >= 1 && strlen(request->unique_key) <= 512));
	require(request->op != LOOKBACK_PREPARE ||
		(request->unique_key ? request->within_ms > 0
				     : request->within_ms == -1 && !request->while_pending));
	require(!request->headers || strlen(request->headers) <= 32768);
	require(strlen(key) == strlen(request->biz_type) + 1 + strlen(request->biz_id));
	lookback_event_id(request->biz_type, request->biz_id, uuid);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lookback_header headers[MOST_HEADERS];
	struct lookback_request request;
	struct refusal refusal = {0};

	if (size == 0)
		return 0;
	/* The end is known to the sanitizer; records of librdkafka and bodies end with NUL as well.
	 */
	owned_text char *text = xmalloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	struct lookback_input input = {
	    .key = "order:42", .key_length = 8, .value = text, .value_length = size - 1};
	input.is_body = data[0] == 'B';
	if (data[0] != 'B' && data[0] != 'J')
		take_headers(&input, headers, text, text + size - 1);
	if (lookback_wire_read(&input, &request, &refusal))
		check(&request);
	else
		require(refusal.code && refusal.text[0] && !request.biz_id && !request.topic);
	lookback_request_finish(&request);
	return 0;
}
