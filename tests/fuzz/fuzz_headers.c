/*
 * Any bytes are the headers of a row, or are refused. Each has a name without NUL, and a value or
 * null.
 */
#include <stdlib.h>
#include <string.h>
#include "message.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void see(
    void *context, const char *name, size_t name_length, const void *value, size_t length)
{
	size_t *seen = context;

	require(name && !memchr(name, '\0', name_length) && (value || length == 0));
	*seen += 1 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* of its own size, so that a byte behind it would be noticed */
	char *json = malloc(size ? size : 1);
	struct message message = {.id = 7, .headers = json, .headers_length = (int32_t)size};
	struct text scratch = {0};
	struct err err = {0};
	size_t seen = 0;

	memcpy(json, data, size);
	if (message_headers(&message, &scratch, see, &seen, &err))
		require(seen <= size);
	else
		require(err.kind == ERR_REJECT && err.message[0]);
	text_finish(&scratch);
	free(json);
	return 0;
}
