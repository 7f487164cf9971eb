#include "key_view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "text.h"

enum { PIECE = 1 << 12 }; /* units */

/* Reads the head before the size: then the file of this size has all units that the head calls
 * durable. */
bool key_view_open(struct key_view *ret_view, int folder, const char *name)
{
	struct stat state;

	*ret_view =
	    (struct key_view){.fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
	if (ret_view->fd < 0)
		return false;

	ret_view->piece = xmalloc(PIECE * sizeof *ret_view->piece);
	if (pread(ret_view->fd, &ret_view->start, KEY_LOG_HEAD, 0) < 0 ||
	    fstat(ret_view->fd, &state))
		return false;

	ret_view->bytes = (uint64_t)state.st_size;
	ret_view->units = ret_view->bytes / KEY_UNIT;
	ret_view->seed = ret_view->start.seed;
	return true;
}

void key_view_close(struct key_view *view)
{
	if (view->fd >= 0)
		close(view->fd);
	free(view->piece);
	*view = (struct key_view){.fd = -1};
}

static bool read_piece(struct key_view *view, uint64_t unit)
{
	uint64_t left = view->units - unit, wanted = left < PIECE ? left : PIECE;
	ssize_t length;
	do
		length = pread(view->fd, view->piece, wanted * KEY_UNIT, (off_t)(unit * KEY_UNIT));
	while (length < 0 && errno == EINTR);
	view->first = unit;
	view->count = length > 0 ? (uint64_t)length / KEY_UNIT : 0;
	return view->count > 0;
}

const union key_unit *key_view_at(struct key_view *view, uint64_t unit)
{
	bool there = unit >= view->first && unit - view->first < view->count;
	return there || read_piece(view, unit) ? &view->piece[unit - view->first] : NULL;
}

static bool has_sum(struct key_view *view, uint64_t unit, const struct key_lead *lead)
{
	XXH3_state_t state = {0};
	XXH3_64bits_reset_withSeed(&state, view->seed);
	XXH3_64bits_update(&state, &lead->unit, sizeof *lead - sizeof lead->checksum);
	for (uint64_t i = 1; i <= lead->count; i++) {
		const union key_unit *entry = key_view_at(view, unit + i);
		if (!entry)
			return false;
		XXH3_64bits_update(&state, entry, sizeof *entry);
	}
	return XXH3_64bits_digest(&state) == lead->checksum;
}

static bool viewed_batch_is_whole(struct key_view *view, uint64_t unit, struct key_lead *ret_lead)
{
	const union key_unit *at = key_view_at(view, unit);
	if (!at || at->lead.unit != unit || at->lead.count > view->units - unit - 1)
		return false;
	*ret_lead = at->lead;
	return has_sum(view, unit, ret_lead);
}

bool key_view_next(struct key_view *view, uint64_t from, struct key_view_batch *ret_batch)
{
	struct key_lead lead;
	for (uint64_t unit = from; unit < view->units; unit++)
		if (viewed_batch_is_whole(view, unit, &lead)) {
			*ret_batch = (struct key_view_batch){unit, lead.count, lead.offset};
			return true;
		}
	return false;
}
