#pragma once
/*
 * Writes and reads a position's text in two parts, for callers that have one for each message: the
 * prefix "2:publisher:identity:shard:epoch:" stays the same within an epoch. Pure functions.
 */
#include "position.h"

/* Returns the prefix's length. */
size_t position_prefix_write(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE]);

/* Writes the rest after the prefix, and a NUL; returns the length of the whole text. */
size_t position_prefix_complete(
    char text[OUTBOX_POSITION_SIZE], size_t prefix, int64_t tick, int64_t id);

/* The prefix that was read last; {0}: none. */
struct position_memo {
	char prefix[OUTBOX_POSITION_SIZE];
	size_t length;
	struct outbox_position position; /* of the prefix: its tick and id do not count */
};

/* As outbox_position_parse. Reads only the two last numbers of a text whose prefix is the last one.
 */
bool position_prefix_parse(struct position_memo *memo, const char *text, size_t length,
    struct outbox_position *ret_position);
