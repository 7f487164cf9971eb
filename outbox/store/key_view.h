#pragma once
/*
 * A key log as it stands: for who only looks at it, while another process may write it. It is read
 * up to the end that it had when it was opened, and nothing in it is changed or locked.
 *
 * Owned by one thread.
 */
#include "key_log_format.h"

struct key_view {
	int fd;
	uint64_t bytes, units; /* when it was opened; whole units of them */
	uint64_t seed;
	struct key_log_start start; /* of a shorter file not all of it */
	/* the rest is key_view.c's own: a piece of the file */
	union key_unit *piece;
	uint64_t first, count;
};

/* errno says why not. To be closed in any case. */
bool key_view_open(struct key_view *ret_view, int folder, const char *name);
void key_view_close(struct key_view *view);

struct key_view_batch {
	uint64_t unit, count; /* where it begins; of ids */
	int64_t offset;
};
/* The next whole batch that begins at this unit or later; false: there is none. */
bool key_view_next(struct key_view *view, uint64_t from, struct key_view_batch *ret_batch);
/* Of a unit below view->units; NULL: the disk, or the file was cut meanwhile. Valid until the next
 * call. */
const union key_unit *key_view_at(struct key_view *view, uint64_t unit);
