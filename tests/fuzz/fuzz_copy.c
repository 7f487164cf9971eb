/*
 * Any bytes are fields inside of the message, or an error. The first byte of the input says whether
 * the message is the first of its stream (bit 7) and how many fields are expected.
 */
#include <stddef.h>
#include <stdlib.h>
#include "copy_binary.h"

enum { MOST_FIELDS = 127 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* The fields follow each other, and their lengths account for every byte behind the count. */
static void check_row(
    const char *message, size_t length, bool first, const struct copy_field *fields, int count)
{
	size_t bytes = 2 + 4 * (size_t)count;
	const char *end = message;
	for (int i = 0; i < count; i++) {
		require(fields[i].length >= 0);
		bytes += (size_t)fields[i].length;
		if (!fields[i].data) {
			require(fields[i].length == 0);
			continue;
		}
		require(fields[i].data > end);
		end = fields[i].data + fields[i].length;
		require(end <= message + length);
	}
	require(first ? bytes + 19 <= length : bytes == length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct copy_field fields[MOST_FIELDS];
	enum copy_kind kind;
	struct err err = {0};
	if (size == 0)
		return 0;
	bool first = data[0] & 0x80;
	int count = data[0] & 0x7f;
	size_t length = size - 1;
	char *message = malloc(length ? length : 1); /* its end is known to the sanitizer */
	require(message != NULL);
	memcpy(message, data + 1, length);
	if (!copy_parse(message, (int)length, first, fields, count, &kind, &err))
		require(err.kind == ERR_FATAL && err.message[0]);
	else if (kind == COPY_ROW)
		check_row(message, length, first, fields, count);
	free(message);
	return 0;
}
