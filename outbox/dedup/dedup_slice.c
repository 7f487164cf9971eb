#include "dedup_slice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dedup_map.h"
#include "text.h"

enum { NAME = 64, AHEAD = 16 };

static struct dedup_map_head *head_of(const struct dedup_slice *slice)
{
	return slice->map;
}

static void name_file(const struct dedup_slice_plan *plan, const char *end, char name[NAME])
{
	snprintf(name, NAME, "%lld.%d.%s", (long long)plan->head.slice, plan->head.sub, end);
}

static bool fail(const char *name, const char *what, struct err *err)
{
	bool denied = errno == EACCES || errno == EPERM || errno == EROFS;
	return err_set(err, denied ? ERR_DENIED : ERR_RETRY, "%s cannot be %s: %s", name, what,
	    strerror(errno));
}

/* --- the map -------------------------------------------------------------------------------- */

static uint64_t sum_of(const struct dedup_slice *slice)
{
	return XXH3_64bits_withSeed((const char *)slice->map + DEDUP_MAP_HEAD,
	    slice->map_bytes - DEDUP_MAP_HEAD, slice->plan.head.seed);
}

/* A file of another size is that of another plan, or was being made. */
static bool open_map(struct dedup_slice *slice, const char *name, int folder, struct err *err)
{
	struct stat state;
	slice->map_fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (slice->map_fd < 0 || fstat(slice->map_fd, &state))
		return fail(name, "opened", err);
	/* a page that finds no room on the disk later would be a SIGBUS */
	if ((uint64_t)state.st_size != slice->map_bytes &&
	    (ftruncate(slice->map_fd, 0) ||
		(errno = posix_fallocate(slice->map_fd, 0, (off_t)slice->map_bytes))))
		return fail(name, "made", err);
	slice->map =
	    mmap(NULL, slice->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slice->map_fd, 0);
	if (slice->map == MAP_FAILED) {
		slice->map = NULL;
		return fail(name, "mapped", err);
	}
	char *filter = (char *)slice->map + DEDUP_MAP_HEAD;
	slice->filter.words = (void *)filter;
	slice->index.buckets = (void *)(filter + slice->filter.lines * BLOOM_LINE);
	return true;
}

static bool is_of_plan(const struct dedup_slice *slice)
{
	const struct dedup_map_head *head = head_of(slice);
	return !dedup_map_fault(head) && head->lines == slice->filter.lines &&
	       head->buckets == slice->index.count;
}

static enum dedup_slice_origin judge_map(const struct dedup_slice *slice)
{
	const struct dedup_map_head *head = head_of(slice);
	if (!is_of_plan(slice))
		return key_log_written(slice->log) == KEY_FIRST_UNIT ? SLICE_NEW : SLICE_REBUILT;
	if (dedup_map_is_of_this_boot(head))
		return SLICE_MAPPED;
	bool sealed = head->sealed == 1 && head->checksum == sum_of(slice);
	return sealed ? SLICE_SEALED : SLICE_REBUILT;
}

static bool begin_map(struct dedup_slice *slice, const char *name, struct err *err)
{
	/* zeroes, without touching each page */
	if (ftruncate(slice->map_fd, 0) ||
	    (errno = posix_fallocate(slice->map_fd, 0, (off_t)slice->map_bytes)))
		return fail(name, "made", err);
	struct dedup_map_head *head = head_of(slice);
	head->version = DEDUP_MAP_VERSION;
	head->lines = slice->filter.lines;
	head->buckets = slice->index.count;
	head->units = KEY_FIRST_UNIT;
	head->offset = -1;
	memcpy(head->magic, DEDUP_MAP_MAGIC, sizeof head->magic);
	return true;
}

/* What a killed process wrote is there as long as the machine runs, and what a map that was sealed
 * knows of was durable before. */
static bool check_log(const struct dedup_slice *slice, const char *name, struct err *err)
{
	return (slice->origin != SLICE_MAPPED && slice->origin != SLICE_SEALED) ||
	       head_of(slice)->units <= key_log_written(slice->log) ||
	       err_set(err, ERR_CONFIG,
		   "%s: its key log is shorter than it was: ids are lost; use a new folder, and "
		   "load them again",
		   name);
}

/* A head that is damaged says something that no process writes: the log is read from its beginning.
 */
static bool is_plausible(const struct dedup_slice *slice)
{
	const struct dedup_map_head *head = head_of(slice);
	return slice->origin == SLICE_NEW || (head->ids <= head->units - KEY_FIRST_UNIT &&
						 key_log_begins(slice->log, head->units));
}

/* --- what is in the log --------------------------------------------------------------------- */

/* A ring: the lines and buckets of what is behind come from memory meanwhile. */
struct filling {
	struct dedup_slice *slice;
	const struct bloom_code *code;
	struct {
		struct dedup_hash hash;
		uint32_t unit;
	} ring[AHEAD];
	uint64_t seen, done;
	bool full; /* an id had no room */
};

static void fill_one(struct filling *filling)
{
	int place = (int)(filling->done++ % AHEAD);
	filling->code->add(&filling->slice->filter, filling->ring[place].hash);
	/* it has half as much again as ids are planned: only one that is damaged is full */
	if (!key_index_add(
		&filling->slice->index, filling->ring[place].hash, filling->ring[place].unit))
		filling->full = true;
	head_of(filling->slice)->ids++;
}

static void see_entry(void *context, uint64_t unit, const struct key_entry *entry)
{
	struct filling *filling = context;
	if (filling->seen - filling->done == AHEAD)
		fill_one(filling);
	int place = (int)(filling->seen++ % AHEAD);
	filling->ring[place].hash = entry->hash;
	filling->ring[place].unit = (uint32_t)unit;
	__builtin_prefetch(bloom_line(&filling->slice->filter, entry->hash), 1);
	key_index_prefetch(&filling->slice->index, entry->hash);
}

/* Nothing of it is believed by the next who opens it. */
static bool fail_full(struct dedup_slice *slice, struct err *err)
{
	memset(head_of(slice)->magic, 0, sizeof head_of(slice)->magic);
	return err_set(err, ERR_FATAL,
	    "%lld.%d.map is damaged: open the window again, and it is made anew from its log",
	    (long long)slice->plan.head.slice, slice->plan.head.sub);
}

static bool fill_from_log(struct dedup_slice *slice, struct err *err)
{
	struct dedup_map_head *head = head_of(slice);
	struct filling filling = {.slice = slice, .code = *bloom_codes()};
	if (!key_log_read(slice->log, head->units, head->offset, see_entry, &filling, err))
		return false;
	while (filling.done < filling.seen)
		fill_one(&filling);
	if (filling.full)
		return fail_full(slice, err);
	head->units = key_log_written(slice->log);
	head->offset = key_log_offset(slice->log);
	return true;
}

/* --- life ----------------------------------------------------------------------------------- */

static bool open_files(struct dedup_slice *slice, int folder, struct err *err)
{
	char log[NAME], map[NAME];
	name_file(&slice->plan, "log", log);
	name_file(&slice->plan, "map", map);
	slice->log = key_log_open(folder, log, &slice->plan.head, slice->plan.ids, err);
	if (!slice->log || !open_map(slice, map, folder, err))
		return false;
	slice->origin = judge_map(slice);
	if (!check_log(slice, map, err))
		return false;
	if (!is_plausible(slice))
		slice->origin = SLICE_REBUILT;
	bool fresh = slice->origin == SLICE_NEW || slice->origin == SLICE_REBUILT;
	if (fresh && !begin_map(slice, map, err))
		return false;
	struct dedup_map_head *head = head_of(slice);
	head->sealed = 0;
	if (!fill_from_log(slice, err))
		return false;
	/* not before: one that was half filled is made again */
	if (!dedup_map_boot(head->boot))
		memset(head->boot, 0, sizeof head->boot);
	return true;
}

bool dedup_slice_open(
    struct dedup_slice *ret_slice, int folder, const struct dedup_slice_plan *plan, struct err *err)
{
	*ret_slice = (struct dedup_slice){.plan = *plan, .map_fd = -1};
	ret_slice->filter.lines = plan->lines;
	ret_slice->index.count = key_index_buckets(plan->ids);
	ret_slice->map_bytes =
	    DEDUP_MAP_HEAD + plan->lines * BLOOM_LINE + ret_slice->index.count * KEY_BUCKET;
	if (open_files(ret_slice, folder, err))
		return true;
	dedup_slice_close(ret_slice);
	return false;
}

void dedup_slice_close(struct dedup_slice *slice)
{
	key_log_close(slice->log);
	if (slice->map)
		munmap(slice->map, slice->map_bytes);
	if (slice->map_bytes && slice->map_fd >= 0)
		close(slice->map_fd);
	*slice = (struct dedup_slice){0};
}

void dedup_slice_touch(const struct dedup_slice *slice)
{
	size_t step = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t at = 0; at < slice->map_bytes; at += step) {
		volatile char *page = (char *)slice->map + at;
		*page = *page;
	}
}

void dedup_slice_remove(struct dedup_slice *slice, int folder)
{
	char log[NAME], map[NAME];
	name_file(&slice->plan, "log", log);
	name_file(&slice->plan, "map", map);
	dedup_slice_close(slice);
	unlinkat(folder, map, 0);
	unlinkat(folder, log, 0);
}

/* --- use ------------------------------------------------------------------------------------ */

bool dedup_slice_add(struct dedup_slice *slice, const struct key_entry *entry, struct err *err)
{
	struct filling one = {.slice = slice, .code = *bloom_codes()};
	see_entry(&one, key_log_add(slice->log, entry), entry);
	fill_one(&one);
	return !one.full || fail_full(slice, err);
}

struct question {
	const struct key_log *log;
	struct dedup_hash hash;
};

static bool is_it(void *context, uint32_t unit)
{
	const struct question *question = context;
	const struct key_entry *entry = key_log_at(question->log, unit);
	return entry && entry->hash.low == question->hash.low &&
	       entry->hash.high == question->hash.high;
}

bool dedup_slice_has(const struct dedup_slice *slice, struct dedup_hash hash)
{
	struct question question = {slice->log, hash};
	return key_index_find(&slice->index, hash, is_it, &question);
}

uint64_t dedup_slice_ids(const struct dedup_slice *slice)
{
	return head_of(slice)->ids;
}

uint64_t dedup_slice_bytes(const struct dedup_slice *slice)
{
	return slice->map_bytes + key_log_written(slice->log) * KEY_UNIT;
}

int64_t dedup_slice_offset(const struct dedup_slice *slice)
{
	return key_log_offset(slice->log);
}

bool dedup_slice_write(struct dedup_slice *slice, int64_t offset, struct err *err)
{
	if (!key_log_write(slice->log, offset, err))
		return false;
	head_of(slice)->units = key_log_written(slice->log);
	head_of(slice)->offset = key_log_offset(slice->log);
	return true;
}

bool dedup_slice_sync(struct dedup_slice *slice, struct err *err)
{
	return key_log_sync(slice->log, err);
}

bool dedup_slice_seal(struct dedup_slice *slice, struct err *err)
{
	struct dedup_map_head *head = head_of(slice);
	head->checksum = sum_of(slice);
	head->sealed = 1;
	return msync(slice->map, slice->map_bytes, MS_SYNC) == 0 ||
	       fail("the map of a slice", "made durable", err);
}
