#include "map_pieces.h"

#include <stdlib.h>
#include <string.h>
#include "fingerprint.h"
#include "text.h"

enum { PIECE = 1 << 16 };

uint64_t map_pieces_count(uint64_t bytes)
{
	return (bytes + PIECE - 1) / PIECE;
}

void map_pieces_begin(struct map_pieces *pieces)
{
	pieces->left = map_pieces_count(pieces->bytes);
	pieces->unproved = xmalloc(pieces->left);
	memset(pieces->unproved, 1, pieces->left);
}

void map_pieces_finish(struct map_pieces *pieces)
{
	free(pieces->unproved);
	pieces->unproved = NULL;
	pieces->left = 0;
}

static uint64_t piece_sum(const struct map_pieces *pieces, uint64_t number)
{
	uint64_t begin = number * PIECE, left = pieces->bytes - begin;
	return XXH3_64bits_withSeed(
	    pieces->body + begin, left < PIECE ? left : PIECE, pieces->seed);
}

static bool prove_piece(struct map_pieces *pieces, uint64_t number)
{
	if (!pieces->unproved[number])
		return true;
	if (piece_sum(pieces, number) != pieces->sums[number])
		return false;
	pieces->unproved[number] = 0;
	if (--pieces->left == 0)
		map_pieces_finish(pieces);
	return true;
}

bool map_pieces_prove_at(struct map_pieces *pieces, const void *place)
{
	return prove_piece(pieces, (uint64_t)((const char *)place - pieces->body) / PIECE);
}

bool map_pieces_prove_all(struct map_pieces *pieces)
{
	for (uint64_t i = 0; pieces->left && i < map_pieces_count(pieces->bytes); i++)
		if (!prove_piece(pieces, i))
			return false;
	return true;
}

void map_pieces_seal(const struct map_pieces *pieces)
{
	for (uint64_t i = 0; i < map_pieces_count(pieces->bytes); i++)
		if (!pieces->unproved || !pieces->unproved[i])
			pieces->sums[i] = piece_sum(pieces, i);
}
