#pragma once
/*
 * The place of a message in its publisher's order: (publisher, identity, shard, epoch, tick, id).
 * It is the same after every re-read. Within each (destination partition, publisher, identity,
 * shard, epoch) it grows, if only the first occurrence of a message counts.
 *
 * The header `outbox-position` carries it as the text
 *
 *     2:publisher:identity:shard:epoch:tick:id
 *
 *   2          the version of this text; a reader ignores versions that it does not know
 *   publisher  1 to 40 of a-z 0-9 - _
 *   identity   the first eight hexadecimal digits, in lower case, of the uuid that a publisher
 *              gets when it is created: two databases may have publishers of the same name and
 *              publish to the same topic. A dump keeps it; `outbox-relay publisher rebase
 *              --new-identity` changes it
 *   shard, epoch, tick, id
 *              decimal, without a sign; shard is less than 2^31, the others less than 2^63
 *
 * This is a public header of liboutbox, for consumers that read positions. Pure functions; any
 * thread may call.
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

/* text need not be NUL-terminated. False: not a position of version 2. */
OUTBOX_PUBLIC bool outbox_position_parse(
    const char *text, size_t length, struct outbox_position *ret_position);

/*
 * Do both have the same publisher, identity, shard and epoch? Only then can they be compared.
 */
OUTBOX_PUBLIC bool outbox_position_comparable(
    const struct outbox_position *a, const struct outbox_position *b);

/* Compares two comparable positions by (tick, id): -1, 0 or 1. */
OUTBOX_PUBLIC int outbox_position_compare(
    const struct outbox_position *a, const struct outbox_position *b);
