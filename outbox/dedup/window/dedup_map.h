#pragma once
/* The head of a slice's map (dedup_slice.h), for dedup_slice.c and for the read-only view. */
#include <stdbool.h>
#include <stdint.h>
#include "map_pieces.h"

enum { DEDUP_MAP_VERSION = 2, DEDUP_MAP_HEAD = 4096, DEDUP_MAP_BOOT = 16 };
#define DEDUP_MAP_MAGIC "obkeymap"

/* The part of the log that is in the map. */
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

/* The size of the file, including the checksums. */
uint64_t dedup_map_bytes(uint64_t lines, uint64_t buckets);
/* The places of the pieces and their checksums in a map, by the sizes in its head. */
struct map_pieces dedup_map_pieces(void *map, uint64_t seed);

/* The fault of a head, for any plan; NULL: none. */
const char *dedup_map_fault(const struct dedup_map_head *head, uint64_t seed);
/* The newer `known` of those that are whole; NULL: none is whole. */
const struct dedup_map_known *dedup_map_known(const struct dedup_map_head *head, uint64_t seed);
/* Writes in the place of the older one. */
void dedup_map_note(struct dedup_map_head *head, struct dedup_map_known known, uint64_t seed);

/* The lines and buckets of an existing map. False: the file does not exist, its head has a fault,
 * or it has another size than its head says. */
bool dedup_map_sizes(
    int folder, const char *name, uint64_t seed, uint64_t *ret_lines, uint64_t *ret_buckets);
/* Is the file a whole map without ids, which was made ready and not used? */
bool dedup_map_is_empty(int folder, const char *name, uint64_t seed);

/* The checksum of a sealed map, over lines, buckets and the checksums of the pieces. */
uint64_t dedup_map_sum(const struct dedup_map_head *head, const struct map_pieces *pieces);

/* The id of the machine's present start; false: it cannot be read, and no map is believed. */
bool dedup_map_boot(uint8_t ret_boot[DEDUP_MAP_BOOT]);
bool dedup_map_is_of_this_boot(const struct dedup_map_head *head);
