#pragma once
/*
 * A read-only view of a key log that another process may be writing. The view reads up to the end
 * that the log had when it was opened, and changes and locks nothing.
 *
 * Owned by one thread.
 */
#include "key_log_format.h"

struct key_view {
	int fd;
	uint64_t bytes, units; /* size when it was opened, in bytes and in whole units */
	uint64_t seed;
	struct key_log_start start; /* incomplete if the file is shorter */
	/* private to key_view.c: a piece of the file */
	union key_unit *piece;
	uint64_t first, count;
};

/* On failure errno has the reason. The caller closes the view in any case. */
bool key_view_open(struct key_view *ret_view, int folder, const char *name);
void key_view_close(struct key_view *view);

struct key_view_batch {
	uint64_t unit, count; /* where the batch begins; number of ids */
	int64_t offset;
};
/* Finds the next whole batch that begins at this unit or later; false: there is none. */
bool key_view_next(struct key_view *view, uint64_t from, struct key_view_batch *ret_batch);
/* The entry at a unit below view->units, valid until the next call; NULL: a disk error, or the file
 * was cut meanwhile. */
const union key_unit *key_view_at(struct key_view *view, uint64_t unit);
