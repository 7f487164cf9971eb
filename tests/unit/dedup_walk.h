#pragma once
/* Many ids through the public interface, for tests. Ids are numbers as text; their records'
 * offsets are the numbers. Fail by cmocka. */
#include "dedup.h"

extern const char *dedup_walk_prefix; /* of each id; "" unless a test changes it */

struct outbox_dedup *dedup_walk_open(const char *line);

/* An id with the memory it points to. */
struct dedup_walk_id {
	char text[64];
	struct outbox_dedup_id id;
};
void dedup_walk_name(struct dedup_walk_id *id, uint64_t number, int64_t time_ms);

/*
 * Checks ids first to first + count - 1, of records of this time (-1: now). Those that are new are
 * done then, or given up. Returns how many are new; none is pending.
 */
uint64_t dedup_walk(
    struct outbox_dedup *dedup, uint64_t first, uint64_t count, int64_t time_ms, bool finish);

struct outbox_dedup_stats dedup_walk_stats(const struct outbox_dedup *dedup);
void dedup_walk_checkpoint(struct outbox_dedup *dedup, int64_t offset);

/*
 * An id is remembered for a window that its slices do not divide. line: a store with
 * window=1009ms slices=10 in the folder, which is emptied.
 */
void dedup_walk_odd_window(const char *line, const char *folder);
