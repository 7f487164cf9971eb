/*
 * Any bytes are a position, which written again gives a text that reads the same, or are refused. A
 * position that is written as the relay does, with a prefix, is the same text; leading zeros of
 * numbers are all that a second writing may drop.
 */
#include <stdlib.h>
#include <string.h>

#include "position_prefix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void write_again(const struct outbox_position *position)
{
	char whole[OUTBOX_POSITION_SIZE], parts[OUTBOX_POSITION_SIZE];
	struct outbox_position again;
	size_t length = outbox_position_format(position, whole);
	size_t prefix = position_prefix_write(position, parts);
	require(length < sizeof whole && strlen(whole) == length && !strchr(whole, ' '));
	require(position_prefix_complete(parts, prefix, position->tick, position->id) == length);
	require(strcmp(whole, parts) == 0);
	require(outbox_position_parse(whole, length, &again));
	require(outbox_position_comparable(position, &again) &&
		outbox_position_compare(position, &again) == 0);
}

/* Whatever prefix was read before, the answer is the same. */
static void read_with_memo(
    const char *first, const char *text, size_t size, const struct outbox_position *position)
{
	struct position_memo memo = {0};
	struct outbox_position read;

	require(position_prefix_parse(&memo, first, strlen(first), &read));
	/* twice: the second time the memo is of the text itself, if that is a position */
	for (int i = 0; i < 2; i++) {
		require(position_prefix_parse(&memo, text, size, &read) == (position != NULL));
		require(!position || (outbox_position_comparable(position, &read) &&
					 outbox_position_compare(position, &read) == 0));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outbox_position position;
	bool good;
	/* of its own size, so that a byte behind it would be noticed */
	char *text = malloc(size ? size : 1);
	memcpy(text, data, size);
	good = outbox_position_parse(text, size, &position);
	if (good)
		write_again(&position);
	read_with_memo("2:main:1a2b3c4d:1:7:5:6", text, size, good ? &position : NULL);
	free(text);
	return 0;
}
