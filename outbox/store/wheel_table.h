#pragma once
/*
 * A hash table of fingerprints with a time wheel: each fingerprint is in the chain of its bucket,
 * and in the list of the tick in which its time lies. A window has WHEEL_TICKS ticks, and one more
 * is alive; entries of older ticks are removed, some with each call, so that no call takes long. An
 * id takes 24 bytes and a bucket 4; room for the planned number is reserved, and its memory is used
 * as ids come. The table grows beyond that.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"

enum { WHEEL_TICKS = 64 };
#define WHEEL_MOST 2000000000U /* maximum number of planned ids */

struct wheel_entry {
	struct fingerprint hash;     /* {0, 0}: removed, but still in the list of its tick */
	uint32_t next, next_of_tick; /* indexes in entries; 0: none */
};

struct wheel_table {
	/* private to wheel_table.c */
	struct wheel_entry *entries;
	uint64_t reserved, used; /* numbers of entries, from 0, which is no entry */
	uint32_t free;           /* a list by next */
	uint32_t *buckets;
	uint64_t bucket_count; /* a power of two */
	uint64_t count;
	int64_t tick_ms, newest; /* tick; INT64_MIN: none yet */
	uint32_t ticks[WHEEL_TICKS + 1];
	uint32_t going; /* entries of expired ticks: a list by next_of_tick */
};

/* ids: the planned number; window_ms >= 1. */
void wheel_table_init(struct wheel_table *table, uint64_t ids, int64_t window_ms);
void wheel_table_finish(struct wheel_table *table);

void wheel_table_prefetch(const struct wheel_table *table, struct fingerprint hash);
bool wheel_table_has(const struct wheel_table *table, struct fingerprint hash);
/*
 * False: the table had the id already, and it stays in its tick. An id older than the window goes
 * into the oldest tick. If the table has the id only among expired entries that are not yet
 * removed, it is added a second time, and each of the two entries ends with its own tick.
 */
bool wheel_table_add(struct wheel_table *table, struct fingerprint hash, int64_t time_ms);
/* False: the table did not have the id. */
bool wheel_table_remove(struct wheel_table *table, struct fingerprint hash);
uint64_t wheel_table_bytes(const struct wheel_table *table); /* bytes in use */
