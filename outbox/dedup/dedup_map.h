#pragma once
/* The head of a slice's map (dedup_slice.h), for who keeps it and for who only looks at it. */
#include <stdbool.h>
#include <stdint.h>

enum { DEDUP_MAP_VERSION = 1, DEDUP_MAP_HEAD = 4096, DEDUP_MAP_BOOT = 16 };
#define DEDUP_MAP_MAGIC "obkeymap"

struct dedup_map_head {
	char magic[8];
	uint32_t version, sealed;
	uint8_t boot[DEDUP_MAP_BOOT];
	uint64_t lines, buckets, units, ids;
	int64_t offset;
	uint64_t checksum;
};

/* What is wrong with it, of whatever plan it is; NULL: nothing. */
const char *dedup_map_fault(const struct dedup_map_head *head);

/* Which start of the machine this is; false: it cannot be told, and no map is believed. */
bool dedup_map_boot(uint8_t ret_boot[DEDUP_MAP_BOOT]);
bool dedup_map_is_of_this_boot(const struct dedup_map_head *head);
