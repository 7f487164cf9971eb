#pragma once
/*
 * The place of a message in its slot's order: (slot, shard, epoch, tick, id). The same after every
 * re-read; at first occurrence it grows along each (destination partition, slot, shard, epoch).
 * As the header `outbox-position` it is the text  1:slot:shard:epoch:tick:id  (version first,
 * numbers in decimal; a slot's name has no colon). A reader ignores versions it does not know.
 *
 * The public header of liboutbox, for consumers that look at positions. Pure functions: any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

#define OUTBOX_POSITION_SIZE 160 /* room for any position as text, NUL included */

struct outbox_position {
	char slot[41];
	int32_t shard;
	int64_t epoch, tick, id;
};

/* Returns the length written, NUL excluded. */
OUTBOX_PUBLIC size_t outbox_position_format(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE]);

/* text need not end in NUL. False: not a position of version 1. */
OUTBOX_PUBLIC bool outbox_position_parse(
    const char *text, size_t length, struct outbox_position *ret_position);

/* -1, 0, 1 by (tick, id); both must be of one slot, shard and epoch. */
OUTBOX_PUBLIC int outbox_position_compare(
    const struct outbox_position *a, const struct outbox_position *b);
