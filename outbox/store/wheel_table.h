#pragma once
/*
 * A hash table of fingerprints with a time wheel: each is in a chain of its bucket, and in a list
 * of the tick in which its time lies. A window has WHEEL_TICKS ticks, of which one more is alive;
 * what is in an older one is removed, some with each call, so that no call takes long. 24 bytes an
 * id and 4 a bucket; room for the planned number is reserved, and its memory used as ids come.
 * Grows beyond that.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"

enum { WHEEL_TICKS = 64 };
#define WHEEL_MOST 2000000000U /* ids that may be planned for */

struct wheel_entry {
	struct fingerprint hash;     /* {0, 0}: it was removed, and is still in its tick's list */
	uint32_t next, next_of_tick; /* places in entries; 0: none */
};

struct wheel_table {
	/* wheel_table.c's own */
	struct wheel_entry *entries;
	uint64_t reserved, used; /* entries from 0, which is none */
	uint32_t free;           /* a list by next */
	uint32_t *buckets;
	uint64_t bucket_count; /* a power of two */
	uint64_t count;
	int64_t tick_ms, newest; /* tick; INT64_MIN: none yet */
	uint32_t ticks[WHEEL_TICKS + 1];
	uint32_t going; /* a list by next_of_tick, of ticks that are over */
};

/* ids: as planned; window_ms >= 1. */
void wheel_table_init(struct wheel_table *table, uint64_t ids, int64_t window_ms);
void wheel_table_finish(struct wheel_table *table);

void wheel_table_prefetch(const struct wheel_table *table, struct fingerprint hash);
bool wheel_table_has(const struct wheel_table *table, struct fingerprint hash);
/*
 * False: it was there, and stays in its tick. What is older than the window is in the oldest. While
 * some of what is over was not removed yet, an id that is there may be among it: it is added beside
 * that, and each of the two ends with its own tick.
 */
bool wheel_table_add(struct wheel_table *table, struct fingerprint hash, int64_t time_ms);
/* False: it was not there. */
bool wheel_table_remove(struct wheel_table *table, struct fingerprint hash);
uint64_t wheel_table_bytes(const struct wheel_table *table); /* that are used */
