#pragma once
/*
 * Checksums of the pieces of a sealed map, so that the map need not be read whole when it is
 * opened: a piece is proved when the first of its lines is read or changed. A line of 64 bytes is
 * within one piece.
 *
 * The memory is the caller's. Owned by one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_pieces {
	const char *body;
	uint64_t bytes, seed;
	uint64_t *sums; /* one for each piece: XXH3, 64 bits, with the seed */
	/* the rest is private to map_pieces.c */
	uint8_t *unproved; /* one for each piece; NULL: all pieces are proved */
	uint64_t left;     /* number of unproved pieces */
};

uint64_t map_pieces_count(uint64_t bytes);

/* From now on each piece is to be proved. */
void map_pieces_begin(struct map_pieces *pieces);
/* From now on no piece is to be proved. Takes {0} as well. */
void map_pieces_finish(struct map_pieces *pieces);

/* Is the piece at this place of the body proved, or is it as it was when it was sealed? */
bool map_pieces_prove_at(struct map_pieces *pieces, const void *place);
static inline bool map_pieces_prove(struct map_pieces *pieces, const void *place)
{
	return !pieces->left || map_pieces_prove_at(pieces, place);
}
bool map_pieces_prove_all(struct map_pieces *pieces);

/* Computes the checksums again, except those of unproved pieces. */
void map_pieces_seal(const struct map_pieces *pieces);
