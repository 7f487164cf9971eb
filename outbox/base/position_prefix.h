#pragma once
/*
 * A position's text in two parts, for who writes one for each message: the prefix
 * "2:publisher:identity:shard:epoch:" stays the same for as long as the epoch does. Pure functions.
 */
#include "position.h"

/* Returns the prefix's length. */
size_t position_prefix_write(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE]);

/* Writes what follows the prefix, and NUL; returns the length of the whole text. */
size_t position_prefix_complete(
    char text[OUTBOX_POSITION_SIZE], size_t prefix, int64_t tick, int64_t id);
