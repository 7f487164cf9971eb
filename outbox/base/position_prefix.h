#pragma once
/*
 * Writes a position's text in two parts, for callers that write one for each message: the prefix
 * "2:publisher:identity:shard:epoch:" stays the same within an epoch. Pure functions.
 */
#include "position.h"

/* Returns the prefix's length. */
size_t position_prefix_write(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE]);

/* Writes the rest after the prefix, and a NUL; returns the length of the whole text. */
size_t position_prefix_complete(
    char text[OUTBOX_POSITION_SIZE], size_t prefix, int64_t tick, int64_t id);
