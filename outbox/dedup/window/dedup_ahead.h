#pragma once
/*
 * Prepares slices in a thread, so that the owner of a window never waits for a disk when a slice
 * ends: the thread creates the files of the next slice, and removes the files of expired slices. It
 * runs only while there is work.
 *
 * A slice that was made ready and is not used is removed. A slice that a killed process left has an
 * empty log or none, and is removed when the window is opened.
 *
 * Owned by one thread, and not moved while the work is under way.
 */
#include <pthread.h>
#include "dedup_slice.h"

struct dedup_ahead {
	/* private to dedup_ahead.c; while the thread runs, the thread's */
	pthread_t thread;
	bool running;
	int folder;
	struct dedup_slice_plan plan;
	struct dedup_slice slice; /* log NULL: none is ready */
	struct dedup_slice gone[BLOOM_FILTERS + 1];
	int gone_count;
};

/* folder: a descriptor, which stays the caller's. */
void dedup_ahead_init(struct dedup_ahead *ahead, int folder);
/* Waits for the thread, and removes the slice that is ready. */
void dedup_ahead_finish(struct dedup_ahead *ahead);

/* Waits for the work before, then begins to make a slice of this plan ready, and to remove the
 * expired slices `gone`, which it owns from now on. */
void dedup_ahead_begin(struct dedup_ahead *ahead, const struct dedup_slice_plan *plan,
    const struct dedup_slice *gone, int count);

/*
 * Waits for the thread, and takes the slice that is ready. If that is another slice (no sub-slice),
 * it is no longer needed, and is renamed to this number. False: the caller opens the slice itself,
 * now that no thread works.
 */
bool dedup_ahead_take(
    struct dedup_ahead *ahead, int64_t number, int sub, struct dedup_slice *ret_slice);
/* The planned ids of the slice that is ready, or being made. */
uint64_t dedup_ahead_ids(const struct dedup_ahead *ahead);
/* Is this slice ready, or being made? */
bool dedup_ahead_has(const struct dedup_ahead *ahead, int64_t number, int sub);
