#pragma once
/*
 * What a window has done beside it, so that its owner never waits for a disk when a slice ends: a
 * thread makes the files of the slice that comes next, and removes those that are over. There is a
 * thread only while there is something to do.
 *
 * A slice that was made ready and is not used is removed; one that a killed process left has an
 * empty log or none, and is removed when the window is opened.
 *
 * Owned by one thread, and not moved while it works.
 */
#include <pthread.h>
#include "dedup_slice.h"

struct dedup_ahead {
	/* dedup_ahead.c's own; the thread's while it runs */
	pthread_t thread;
	bool running;
	int folder;
	struct dedup_slice_plan plan;
	struct dedup_slice slice; /* log NULL: none is ready */
	struct dedup_slice gone[BLOOM_FILTERS + 1];
	int gone_count;
};

/* folder stays the caller's. */
void dedup_ahead_init(struct dedup_ahead *ahead, int folder);
/* Waits, and removes what is not used. */
void dedup_ahead_finish(struct dedup_ahead *ahead);

/* Makes a slice by this plan ready; removes those that are over, which are its own from now on. */
void dedup_ahead_begin(struct dedup_ahead *ahead, const struct dedup_slice_plan *plan,
    const struct dedup_slice *gone, int count);

/*
 * The slice that is ready, made this one's if it is another slice's (no sub-slice), which is not
 * needed any more; false: it is to be opened by the caller, now that no thread works. Waits for the
 * thread if it has not ended.
 */
bool dedup_ahead_take(
    struct dedup_ahead *ahead, int64_t number, int sub, struct dedup_slice *ret_slice);
/* Is it ready, or being made? */
bool dedup_ahead_has(const struct dedup_ahead *ahead, int64_t number, int sub);
