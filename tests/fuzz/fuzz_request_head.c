/*
 * Any bytes are a head of a request, the beginning of one, or none. A head ends at the same place
 * however it comes; one that is taken has lines that end with CR LF, one Host, and no NUL.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "request_head.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static ssize_t span_in_pieces(const char *bytes, size_t size, size_t piece)
{
	size_t scanned = 0, length = 0;
	const char *why = NULL;
	ssize_t span = 0;

	while (span == 0 && length < size) {
		length = length + piece < size ? length + piece : size;
		span = request_head_span(bytes, length, &scanned, &why);
	}
	require(span >= 0 || (why && !strpbrk(why, "\"\\")));
	return span;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *bytes = (const char *)data, *why = NULL;
	ssize_t span = span_in_pieces(bytes, size, size);
	struct request_head head;
	owned_text char *copy = NULL;

	for (size_t piece = 1; piece < 4; piece++)
		require(span_in_pieces(bytes, size, piece) == span);
	if (span <= 0)
		return 0;
	/* No byte behind the head may be read. */
	copy = xmalloc((size_t)span);
	memcpy(copy, bytes, (size_t)span);
	if (!request_head_parse(copy, (size_t)span, &head, &why)) {
		require(why && !strpbrk(why, "\"\\"));
		return 0;
	}
	require(head.host >= copy && head.host < copy + span && *head.host);
	require(head.host[strspn(head.host,
		    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:")] == '\0');
	require(!memchr(bytes, '\0', (size_t)span));
	require(memcmp(bytes + span - 4, "\r\n\r\n", 4) == 0);
	for (ssize_t i = 0; i < span; i++)
		require((bytes[i] == '\n') == (i > 0 && bytes[i - 1] == '\r'));
	return 0;
}
