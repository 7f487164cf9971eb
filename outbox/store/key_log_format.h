#pragma once
/* The file format of key_log.h, for the writer and for read-only views. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "key_log.h"

enum { KEY_LOG_VERSION = 2, KEY_LOG_HEAD = KEY_UNIT * KEY_FIRST_UNIT };
#define KEY_LOG_MAGIC "obkeylog"

struct key_log_start {
	char magic[8];
	uint32_t version;
	int32_t sub;
	uint64_t seed;
	int64_t slice, slice_ms;
	uint64_t checksum; /* covers the bytes before it */
	uint64_t durable, durable_sum;
};
_Static_assert(sizeof(struct key_log_start) == KEY_LOG_HEAD, "the head is as the format has it");

struct key_lead {
	uint64_t checksum, unit, count;
	int64_t offset;
};
_Static_assert(sizeof(struct key_lead) == KEY_UNIT, "what leads a batch is a unit");

union key_unit {
	struct key_lead lead;
	struct key_entry entry;
};

static inline uint64_t key_log_start_sum(const struct key_log_start *start)
{
	return XXH3_64bits(start, offsetof(struct key_log_start, checksum));
}

static inline uint64_t key_log_durable_sum(const struct key_log_start *start)
{
	return XXH3_64bits_withSeed(&start->durable, sizeof start->durable, start->seed);
}

/* The fault of a head, whichever log it belongs to; NULL: none. */
static inline const char *key_log_start_fault(const struct key_log_start *start)
{
	if (memcmp(start->magic, KEY_LOG_MAGIC, sizeof start->magic) != 0)
		return "is no key log";
	if (start->version != KEY_LOG_VERSION)
		return "is of another version of the format than this program's";
	bool whole = start->checksum == key_log_start_sum(start) &&
		     start->durable_sum == key_log_durable_sum(start) &&
		     start->durable >= KEY_FIRST_UNIT;
	return whole ? NULL : "has a damaged head";
}
