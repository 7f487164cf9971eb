/*
 * An append-only log of keys in batches, each with a checksum, and the map of one unit of time in
 * it. Read [reading] for the format and for the repair of a torn tail, then [writing]: key_log_add
 * collects, key_log_write writes a batch, key_log_sync makes it durable.
 */
#include "key_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "disk_error.h"
#include "fault.h"
#include "key_log_format.h"
#include "text.h"

enum {
	SPARE_UNITS = 1 << 16, /* mapped beyond the expected units, because each batch begins with a
				  lead unit */
	BLOCK = 1024,   /* units that are proved together, along with the rest of their batches */
	PIECE = 1 << 11 /* units per write when they are written again */
};

struct key_log {
	char *name; /* for messages */
	uint64_t seed;
	int fd;
	bool dirty;     /* written but not synced */
	int failed;     /* errno of a failed sync: the result of a later sync cannot be trusted */
	uint64_t units; /* in the file */
	uint64_t durable;
	int64_t offset;
	union key_unit *map;   /* the file, and room into which it may grow */
	uint64_t mapped;       /* units */
	union key_unit *added; /* the next batch, its lead unit first */
	uint64_t added_count, added_capacity;
	uint8_t *proved; /* one bit for each block: its batches are whole */
	uint64_t proved_bytes;
};

static bool fail_key_log(const struct key_log *log, const char *what, struct err *err)
{
	return disk_error_fail(log->name, what, err);
}

/* --- the head ------------------------------------------------------------------------------- */

static struct key_log_start log_start_of(const struct key_log_head *wanted)
{
	struct key_log_start head = {.version = KEY_LOG_VERSION,
	    .sub = wanted->sub,
	    .seed = wanted->seed,
	    .slice = wanted->slice,
	    .slice_ms = wanted->slice_ms,
	    .durable = KEY_FIRST_UNIT};
	memcpy(head.magic, KEY_LOG_MAGIC, sizeof head.magic);
	head.checksum = key_log_start_sum(&head);
	head.durable_sum = key_log_durable_sum(&head);
	return head;
}

static bool check_log_start(const struct key_log *log, const struct key_log_start *there,
    const struct key_log_start *wanted, struct err *err)
{
	const char *why = key_log_start_fault(there);
	if (!why && there->seed != wanted->seed)
		why = "was written with another seed";
	else if (!why && memcmp(there, wanted, offsetof(struct key_log_start, durable)) != 0)
		why = "is of another slice, or of a window that is cut otherwise";
	return !why || err_set(err, ERR_CONFIG, "%s %s: use a new folder, and load the ids again",
			   log->name, why);
}

/* Repeats write() until all bytes are written. */
static bool write_log_bytes(int fd, const void *bytes, size_t length, uint64_t at)
{
	while (length) {
		ssize_t done = pwrite(fd, bytes, length, (off_t)at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		bytes = (const char *)bytes + done;
		length -= (size_t)done;
		at += (uint64_t)done;
	}
	return true;
}

static bool begin_file(struct key_log *log, const struct key_log_start *head, struct err *err)
{
	if (ftruncate(log->fd, 0) || !write_log_bytes(log->fd, head, sizeof *head, 0))
		return fail_key_log(log, "written", err);
	log->units = log->durable = KEY_FIRST_UNIT;
	log->dirty = true;
	return true;
}

/* The log was made ready for another slice. */
static bool is_empty(const struct key_log *log, const struct key_log_start *there)
{
	return log->units == KEY_FIRST_UNIT && !key_log_start_fault(there) &&
	       there->seed == log->seed && there->durable == KEY_FIRST_UNIT;
}

/* A file shorter than its head: the process was killed while it created the file. */
static bool look_at_file(struct key_log *log, const struct key_log_start *wanted, struct err *err)
{
	struct key_log_start there;
	struct stat state;

	if (fstat(log->fd, &state))
		return fail_key_log(log, "looked at", err);
	if (state.st_size < KEY_LOG_HEAD)
		return begin_file(log, wanted, err);

	log->units = (uint64_t)state.st_size / KEY_UNIT;
	if (pread(log->fd, &there, sizeof there, 0) != sizeof there)
		return fail_key_log(log, "read", err);

	log->durable = there.durable;
	if (is_empty(log, &there))
		return begin_file(log, wanted, err);
	return check_log_start(log, &there, wanted, err) &&
	       (log->durable <= log->units ||
		   err_set(err, ERR_CONFIG,
		       "%s is shorter than it was: ids are lost; use a new folder, and load them "
		       "again",
		       log->name));
}

/* --- the map -------------------------------------------------------------------------------- */

/* The part of the map beyond the file's end must not be read; it becomes readable as the file
 * grows. */
static bool map_units(struct key_log *log, uint64_t units, struct err *err)
{
	void *map = log->map
			? mremap(log->map, log->mapped * KEY_UNIT, units * KEY_UNIT, MREMAP_MAYMOVE)
			: mmap(NULL, units * KEY_UNIT, PROT_READ, MAP_SHARED, log->fd, 0);
	if (map == MAP_FAILED)
		return fail_key_log(log, "mapped", err);
	log->map = map;
	log->mapped = units;
	return true;
}

static bool map_for(struct key_log *log, uint64_t units, struct err *err)
{
	return units <= log->mapped || map_units(log, units + units / 2 + SPARE_UNITS, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static void begin_batch(struct key_log *log)
{
	log->added_count = 1;
	if (!log->added) {
		log->added_capacity = 64;
		log->added = xcalloc(log->added_capacity, sizeof *log->added);
	}
}

struct key_log *key_log_open(int folder, const char *name, const struct key_log_head *head,
    uint64_t expected, struct err *err)
{
	struct key_log *log = xcalloc(1, sizeof *log);
	const struct key_log_start wanted = log_start_of(head);

	log->name = xstrdup(name);
	log->seed = head->seed;
	log->offset = -1;
	log->fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	begin_batch(log);
	if (log->fd < 0)
		fail_key_log(log, "opened", err);
	else if (look_at_file(log, &wanted, err) &&
		 map_units(log, expected + expected / 8 + SPARE_UNITS, err) &&
		 map_for(log, log->units, err))
		return log;
	key_log_close(log);
	return NULL;
}

bool key_log_rename(struct key_log *log, int folder, const char *name,
    const struct key_log_head *head, struct err *err)
{
	const struct key_log_start wanted = log_start_of(head);
	assert(log->units == KEY_FIRST_UNIT);
	if (renameat(folder, log->name, folder, name))
		return fail_key_log(log, "renamed", err);
	free(log->name);
	log->name = xstrdup(name);
	return begin_file(log, &wanted, err);
}

void key_log_close(struct key_log *log)
{
	if (!log)
		return;
	if (log->map)
		munmap(log->map, log->mapped * KEY_UNIT);
	if (log->fd >= 0)
		close(log->fd);
	free(log->added);
	free(log->proved);
	free(log->name);
	free(log);
}

/* --- reading -------------------------------------------------------------------------------- */

static uint64_t batch_sum(const struct key_log *log, const union key_unit *batch, uint64_t count)
{
	const char *rest = (const char *)batch + sizeof batch->lead.checksum;
	return XXH3_64bits_withSeed(
	    rest, (count + 1) * KEY_UNIT - sizeof batch->lead.checksum, log->seed);
}

static bool batch_is_whole(const struct key_log *log, uint64_t unit)
{
	const union key_unit *batch = &log->map[unit];
	uint64_t room = log->units - unit - 1;
	return batch->lead.unit == unit && batch->lead.count <= room &&
	       batch_sum(log, batch, batch->lead.count) == batch->lead.checksum;
}

bool key_log_begins(const struct key_log *log, uint64_t unit)
{
	return unit == log->units || (unit < log->units && batch_is_whole(log, unit));
}

static bool cut_log(struct key_log *log, uint64_t units, struct err *err)
{
	struct stat state;
	if (fstat(log->fd, &state))
		return fail_key_log(log, "looked at", err);
	log->units = units;
	if ((uint64_t)state.st_size == units * KEY_UNIT)
		return true;
	log->dirty = true;
	return ftruncate(log->fd, (off_t)(units * KEY_UNIT)) == 0 || fail_key_log(log, "cut", err);
}

static bool fail_damaged(
    const struct key_log *log, uint64_t unit, enum err_kind kind, struct err *err)
{
	return err_set(err, kind,
	    "%s is damaged at byte %llu, where it was durable: ids are lost; use a new folder, and "
	    "load them again",
	    log->name, (unsigned long long)(unit * KEY_UNIT));
}

static void ignore_log_entry(void *context, uint64_t unit, const struct key_entry *entry)
{
	(void)context;
	(void)unit;
	(void)entry;
}

/* Reads whole batches, up to `end` or beyond; returns the end of the last one. */
static uint64_t show_batches(const struct key_log *log, uint64_t from, uint64_t end,
    int64_t *offset, key_log_see *see, void *context)
{
	uint64_t unit = from;
	while (unit < end && batch_is_whole(log, unit)) {
		const struct key_lead *lead = &log->map[unit].lead;
		for (uint64_t i = 1; i <= lead->count; i++)
			see(context, unit + i, &log->map[unit + i].entry);
		if (lead->offset > *offset)
			*offset = lead->offset;
		unit += lead->count + 1;
	}
	return unit;
}

/* A failed sync may have left pages that are on no disk and that the kernel no longer writes. */
static bool rewrite_log_tail(const struct key_log *log, struct err *err)
{
	for (uint64_t unit = log->durable; unit < log->units; unit += PIECE) {
		union key_unit piece[PIECE];
		uint64_t left = log->units - unit, count = left < PIECE ? left : PIECE;
		memcpy(piece, &log->map[unit], count * KEY_UNIT);
		if (!write_log_bytes(log->fd, piece, count * KEY_UNIT, unit * KEY_UNIT))
			return fail_key_log(log, "written", err);
	}
	return true;
}

bool key_log_read(struct key_log *log, uint64_t from, int64_t known, key_log_see *see,
    void *context, struct err *err)
{
	uint64_t unit = log->durable, whole = from > unit ? from : unit;

	log->offset = known;
	/* between the synced part and the part that the caller knows */
	if (unit < from)
		unit = show_batches(log, unit, from, &log->offset, ignore_log_entry, NULL);
	if (unit >= from)
		unit = show_batches(log, from, log->units, &log->offset, see, context);
	if (unit < whole)
		return fail_damaged(log, unit, ERR_CONFIG, err);

	/* sync what a killed process wrote, so that it is not durable later than the next batch */
	log->dirty |= log->durable != unit;
	return cut_log(log, unit, err) && rewrite_log_tail(log, err) && key_log_sync(log, err);
}

bool key_log_show(
    const struct key_log *log, uint64_t from, key_log_see *see, void *context, struct err *err)
{
	int64_t offset = -1;
	uint64_t unit = show_batches(log, from, log->units, &offset, see, context);
	return unit == log->units || fail_damaged(log, unit, ERR_FATAL, err);
}

/* --- proof ---------------------------------------------------------------------------------- */

/* Only a lead unit has its own number in this field. */
static uint64_t lead_before(const struct key_log *log, uint64_t unit)
{
	while (unit > KEY_FIRST_UNIT && log->map[unit].lead.unit != unit)
		unit--;
	return unit;
}

static void note_proved(struct key_log *log, uint64_t from, uint64_t end)
{
	uint64_t bytes = log->units / BLOCK / 8 + 1;
	if (bytes > log->proved_bytes) {
		log->proved = xrealloc(log->proved, bytes);
		memset(log->proved + log->proved_bytes, 0, bytes - log->proved_bytes);
		log->proved_bytes = bytes;
	}
	for (uint64_t block = (from + BLOCK - 1) / BLOCK; (block + 1) * BLOCK <= end; block++)
		log->proved[block / 8] |= (uint8_t)(1 << block % 8);
}

/* Verifies all batches of a block, so that the block is proved as a whole. */
bool key_log_is_whole_at(struct key_log *log, uint64_t unit)
{
	uint64_t block = unit / BLOCK, first = block * BLOCK, end = first + BLOCK;
	int64_t offset = -1;

	if (unit < KEY_FIRST_UNIT || unit >= log->units)
		return false;
	if (block / 8 < log->proved_bytes && log->proved[block / 8] >> block % 8 & 1)
		return true;

	/* A block may begin within a batch. */
	uint64_t from = lead_before(log, first > KEY_FIRST_UNIT ? first : KEY_FIRST_UNIT);
	end = end < log->units ? end : log->units;
	uint64_t reached = show_batches(log, from, end, &offset, ignore_log_entry, NULL);
	if (reached >= end)
		note_proved(log, from == KEY_FIRST_UNIT ? 0 : from, reached);
	return reached >= end;
}

int64_t key_log_offset(const struct key_log *log)
{
	return log->offset;
}

uint64_t key_log_written(const struct key_log *log)
{
	return log->units;
}

uint64_t key_log_added(const struct key_log *log)
{
	return log->added_count - 1;
}

const struct key_entry *key_log_added_at(const struct key_log *log, uint64_t number)
{
	return &log->added[1 + number].entry;
}

const struct key_entry *key_log_at(const struct key_log *log, uint64_t unit)
{
	return unit < log->units ? &log->map[unit].entry : NULL;
}

/* --- writing -------------------------------------------------------------------------------- */

void key_log_add(struct key_log *log, const struct key_entry *entry)
{
	if (log->added_count == log->added_capacity) {
		log->added_capacity *= 2;
		log->added = xrealloc(log->added, log->added_capacity * sizeof *log->added);
	}
	log->added[log->added_count++].entry = *entry;
}

static bool has_news(const struct key_log *log, int64_t offset)
{
	return log->added_count > 1 || offset > log->offset;
}

bool key_log_write(struct key_log *log, int64_t offset, struct err *err)
{
	if (!has_news(log, offset))
		return true;
	/* Mapped first, so that a batch that was written can always be read. */
	if (!map_for(log, log->units + log->added_count, err))
		return false;

	struct key_lead *lead = &log->added->lead;
	*lead =
	    (struct key_lead){.unit = log->units, .count = log->added_count - 1, .offset = offset};
	lead->checksum = batch_sum(log, log->added, lead->count);
	fault_point("before_key_log_write");
	if (!write_log_bytes(
		log->fd, log->added, log->added_count * KEY_UNIT, log->units * KEY_UNIT))
		return fail_key_log(log, "written", err);

	fault_point("after_key_log_write");
	log->dirty = true;
	log->units += log->added_count;
	if (offset > log->offset)
		log->offset = offset;
	begin_batch(log);
	return true;
}

static bool note_durable(struct key_log *log, struct err *err)
{
	struct key_log_start head = {.seed = log->seed, .durable = log->units};
	head.durable_sum = key_log_durable_sum(&head);
	if (!write_log_bytes(log->fd, &head.durable, sizeof head.durable + sizeof head.durable_sum,
		offsetof(struct key_log_start, durable)))
		return fail_key_log(log, "written", err);
	log->durable = log->units;
	return true;
}

bool key_log_sync(struct key_log *log, struct err *err)
{
	if (!log->dirty)
		return true;
	/* Never again after a failure: the kernel may call pages clean that are on no disk. */
	if (!log->failed && fdatasync(log->fd))
		log->failed = errno;
	if (log->failed)
		return err_set(err, ERR_FATAL,
		    "%s cannot be made durable: %s%s; mend its disk, and open the folder again",
		    log->name, strerror(log->failed), disk_error_cure(log->failed));
	/* Only after the sync: `durable` may be too small, but never too large. */
	if (log->durable != log->units && !note_durable(log, err))
		return false;

	log->dirty = false;
	return true;
}
