/*
 * Any bytes are the header lines of an answer, each ended by a line feed, and the first is looked
 * for. What is found was there; the time of Retry-After is not negative.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "http_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	OWNED(text_finish) struct text lines = {0};
	const char *at = (const char *)data, *end = at + size;
	char name[200] = "";

	while (at < end) {
		const char *feed = memchr(at, '\n', (size_t)(end - at));
		size_t length = feed ? (size_t)(feed - at) + 1 : (size_t)(end - at);
		/* of its own size, as libcurl gives it: without a NUL behind it */
		owned_text char *line = xmalloc(length);

		memcpy(line, at, length);
		http_lines_add(&lines, line, length);
		if (!*name && lines.length)
			text_copy(name, sizeof name, text_string(&lines));
		at += length;
	}
	require(lines.length == 0 || text_string(&lines)[lines.length - 1] == '\0');
	if (*name)
		require(http_lines_find(&lines, 0, name) || strlen(name) == sizeof name - 1);
	require(!http_lines_find(&lines, lines.length, "a"));
	const char *after = http_lines_find(&lines, 0, "Retry-After");
	require(http_lines_retry_after_ms(after, INT64_C(1700000000000000)) >= -1);
	return 0;
}
