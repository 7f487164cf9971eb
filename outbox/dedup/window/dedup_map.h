#pragma once
/* The head of a slice's map (dedup_slice.h), for who keeps it and for who only looks at it. */
#include <stdbool.h>
#include <stdint.h>
#include "map_pieces.h"

enum { DEDUP_MAP_VERSION = 2, DEDUP_MAP_HEAD = 4096, DEDUP_MAP_BOOT = 16 };
#define DEDUP_MAP_MAGIC "obkeymap"

/* What of the log is in the map. */
struct dedup_map_known {
	uint64_t units, ids;
	int64_t offset;
	uint64_t checksum;
};

struct dedup_map_head {
	char magic[8];
	uint32_t version, sealed;
	uint8_t boot[DEDUP_MAP_BOOT];
	uint64_t lines, buckets, checksum;
	struct dedup_map_known known[2]; /* written by turns: one of them is whole */
};

/* Of the file, with its sums. */
uint64_t dedup_map_bytes(uint64_t lines, uint64_t buckets);
/* Where the pieces and their sums are in the memory of a map of that size. */
struct map_pieces dedup_map_pieces(void *map, uint64_t seed);

/* What is wrong with it, of whatever plan it is; NULL: nothing. */
const char *dedup_map_fault(const struct dedup_map_head *head, uint64_t seed);
/* The newer one of those that are whole; NULL: none is. */
const struct dedup_map_known *dedup_map_known(const struct dedup_map_head *head, uint64_t seed);
/* In the place of the older one. */
void dedup_map_note(struct dedup_map_head *head, struct dedup_map_known known, uint64_t seed);

/* Is it a whole one of a log without ids: was it made ready, and not used? */
bool dedup_map_is_empty(int folder, const char *name, uint64_t seed);

/* Of what a map that is sealed is proved by: the lines, the buckets, the sums of the pieces. */
uint64_t dedup_map_sum(const struct dedup_map_head *head, const struct map_pieces *pieces);

/* Which start of the machine this is; false: it cannot be told, and no map is believed. */
bool dedup_map_boot(uint8_t ret_boot[DEDUP_MAP_BOOT]);
bool dedup_map_is_of_this_boot(const struct dedup_map_head *head);
