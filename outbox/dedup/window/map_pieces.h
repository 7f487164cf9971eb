#pragma once
/*
 * Sums of the pieces of a map that was sealed, so that it need not be read whole when it is opened:
 * a piece is proved when the first of its lines is read or changed. A line of 64 bytes is in one
 * piece.
 *
 * The memory is the caller's. Owned by one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_pieces {
	const char *body;
	uint64_t bytes, seed;
	uint64_t *sums; /* one a piece: XXH3, 64 bits, with the seed */
	/* the rest is map_pieces.c's own */
	uint8_t *unproved; /* NULL: all of them are proved */
	uint64_t left;     /* of them */
};

uint64_t map_pieces_count(uint64_t bytes);

/* From now on each of them is to be proved. */
void map_pieces_begin(struct map_pieces *pieces);
/* None is any more. Takes {0} as well. */
void map_pieces_finish(struct map_pieces *pieces);

/* Is what is at this place of the body as it was when it was sealed, or proved before? */
bool map_pieces_prove_at(struct map_pieces *pieces, const void *place);
static inline bool map_pieces_prove(struct map_pieces *pieces, const void *place)
{
	return !pieces->left || map_pieces_prove_at(pieces, place);
}
bool map_pieces_prove_all(struct map_pieces *pieces);

/* Makes the sums anew, but of what was not proved. */
void map_pieces_seal(const struct map_pieces *pieces);
