#pragma once
/*
 * The place of a message in its publisher's order: (publisher, identity, shard, epoch, tick, id).
 * The same after every re-read; at first occurrence it grows along each (destination partition,
 * publisher, identity, shard, epoch).
 *
 * As the header `outbox-position` it is the text
 *
 *     2:publisher:identity:shard:epoch:tick:id
 *
 *   2         the version of this text; a reader ignores versions that it does not know
 *   publisher      1 to 40 of a-z 0-9 - _
 *   identity  the first eight hexadecimal digits, in lower case, of the uuid that a publisher gets
 * when it is created: two databases may have publishers of one name and publish to one topic. A
 * dump keeps it; `outbox-relay publisher rebase --new-identity` changes it shard, epoch, tick, id
 * decimal, without a sign; shard is less than 2^31, the others than 2^63
 *
 * The public header of liboutbox, for consumers that look at positions. Pure functions: any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

#define OUTBOX_POSITION_SIZE 160 /* room for any position as text, NUL included */

struct outbox_position {
	char publisher[41];
	char identity[9];
	int32_t shard;
	int64_t epoch, tick, id;
};

/* Returns the length written, NUL excluded. */
OUTBOX_PUBLIC size_t outbox_position_format(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE]);

/* text need not end in NUL. False: not a position of version 2. */
OUTBOX_PUBLIC bool outbox_position_parse(
    const char *text, size_t length, struct outbox_position *ret_position);

/* Are both of one publisher, identity, shard and epoch? Then one is before the other, or they are
 * equal.
 */
OUTBOX_PUBLIC bool outbox_position_comparable(
    const struct outbox_position *a, const struct outbox_position *b);

/* -1, 0, 1 by (tick, id), of two that are comparable. */
OUTBOX_PUBLIC int outbox_position_compare(
    const struct outbox_position *a, const struct outbox_position *b);
