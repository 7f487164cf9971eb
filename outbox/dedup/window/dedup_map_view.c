#include "dedup_map_view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cleanup.h"
#include "text.h"

static bool read_map_bytes(struct dedup_map_view *view, int fd)
{
	size_t at = 0;
	/* the filter needs aligned lines */
	view->memory = aligned_alloc(BLOOM_LINE, (view->bytes + BLOOM_LINE) & ~(BLOOM_LINE - 1ULL));
	if (!view->memory)
		return false;

	while (at < view->bytes) {
		ssize_t length = pread(fd, (char *)view->memory + at, view->bytes - at, (off_t)at);
		if (length == 0 || (length < 0 && errno != EINTR))
			break;
		at += length > 0 ? (size_t)length : 0;
	}

	view->bytes = at;
	return true;
}

/* Has the file the size that the head says? */
static bool head_fits_map(const struct dedup_map_view *view)
{
	const struct dedup_map_head *head = &view->head;
	uint64_t most = view->bytes / BLOOM_LINE;
	return head->lines > 0 && head->buckets > 0 && head->lines <= most &&
	       head->buckets <= most && dedup_map_bytes(head->lines, head->buckets) == view->bytes;
}

static bool is_sealed(const struct dedup_map_view *view, uint64_t seed)
{
	struct map_pieces pieces = dedup_map_pieces(view->memory, seed);
	map_pieces_begin(&pieces);
	bool good = view->head.checksum == dedup_map_sum(&view->head, &pieces) &&
		    map_pieces_prove_all(&pieces);
	map_pieces_finish(&pieces);
	return good;
}

static bool unit_begins_batch(struct key_view *log, uint64_t unit, uint64_t end)
{
	struct key_view_batch batch;
	const union key_unit *at = unit < log->units ? key_view_at(log, unit) : NULL;
	return unit == end || (at && at->lead.unit == unit && key_view_next(log, unit, &batch) &&
				  batch.unit == unit);
}

/* Must decide as dedup_slice.c does when it opens the slice. */
static enum dedup_map_use judge_map_use(
    struct dedup_map_view *view, struct key_view *log, bool live)
{
	const struct dedup_map_head *head = &view->head;
	/* a log that is shorter than its head was being created */
	uint64_t end = log->units > KEY_FIRST_UNIT ? log->units : KEY_FIRST_UNIT;
	bool of_this_boot = dedup_map_is_of_this_boot(head);
	view->wrong_sum = head->sealed && (head->sealed != 1 || !is_sealed(view, log->seed));

	if (live)
		return DEDUP_MAP_USED;
	if (view->wrong_sum || (!of_this_boot && !head->sealed))
		return DEDUP_MAP_REBUILT;
	if (view->known.units > end)
		return DEDUP_MAP_REFUSED;
	if (!unit_begins_batch(log, view->known.units, end))
		return DEDUP_MAP_REBUILT;
	return of_this_boot ? DEDUP_MAP_USED : DEDUP_MAP_LOADED;
}

static void lay_out(struct dedup_map_view *view)
{
	char *body = (char *)view->memory + DEDUP_MAP_HEAD;
	view->filter = (struct bloom_filter){(void *)body, view->head.lines};
	view->index =
	    (struct key_index){(void *)(body + view->head.lines * BLOOM_LINE), view->head.buckets};
}

bool dedup_map_view_open(
    struct dedup_map_view *ret_view, int folder, const char *name, struct key_view *log, bool live)
{
	struct stat state;
	owned_fd int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	*ret_view = (struct dedup_map_view){0};
	if (fd < 0 || fstat(fd, &state))
		return fd < 0 && errno == ENOENT;

	ret_view->bytes = (uint64_t)state.st_size;
	if (!read_map_bytes(ret_view, fd) || ret_view->bytes < DEDUP_MAP_HEAD)
		return ret_view->memory;

	memcpy(&ret_view->head, ret_view->memory, sizeof ret_view->head);
	if (dedup_map_fault(&ret_view->head, log->seed) || !head_fits_map(ret_view))
		return true;

	ret_view->known = *dedup_map_known(&ret_view->head, log->seed);
	lay_out(ret_view);
	ret_view->use = judge_map_use(ret_view, log, live);
	return true;
}

void dedup_map_view_close(struct dedup_map_view *view)
{
	free(view->memory);
	*view = (struct dedup_map_view){0};
}

bool dedup_map_view_in_filter(const struct dedup_map_view *view, struct fingerprint hash)
{
	return (*bloom_codes())->look(&view->filter, 1, hash) != 0;
}

static bool is_viewed_unit(void *context, uint32_t unit)
{
	return unit == *(const uint32_t *)context;
}

bool dedup_map_view_in_index(
    const struct dedup_map_view *view, struct fingerprint hash, uint64_t unit)
{
	uint32_t wanted = (uint32_t)unit;
	return key_index_find(&view->index, hash, is_viewed_unit, &wanted);
}

uint64_t dedup_map_view_line(const struct dedup_map_view *view, struct fingerprint hash)
{
	return (uint64_t)((char *)bloom_line(&view->filter, hash) - (char *)view->memory);
}

uint64_t dedup_map_view_bucket(const struct dedup_map_view *view, struct fingerprint hash)
{
	const struct key_bucket *bucket =
	    &view->index.buckets[key_index_bucket(&view->index, hash)];
	return (uint64_t)((const char *)bucket - (const char *)view->memory);
}
