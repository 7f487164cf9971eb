#include "key_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fault.h"
#include "key_log_format.h"
#include "text.h"

enum { SPARE_UNITS = 1 << 16 }; /* mapped beyond what is expected: batches lead with one */

struct key_log {
	char *name; /* for messages */
	uint64_t seed;
	int fd;
	bool dirty;     /* written and not synced */
	uint64_t units; /* in the file */
	int64_t offset;
	union key_unit *map;   /* of the file, and of what it may grow to */
	uint64_t mapped;       /* units */
	union key_unit *added; /* the batch that comes next, its lead first */
	uint64_t added_count, added_capacity;
};

static bool fail(const struct key_log *log, const char *what, struct err *err)
{
	bool denied = errno == EACCES || errno == EPERM || errno == EROFS;
	return err_set(err, denied ? ERR_DENIED : ERR_RETRY, "%s cannot be %s: %s", log->name, what,
	    strerror(errno));
}

/* --- the head ------------------------------------------------------------------------------- */

static struct key_log_start head_of(const struct key_log_head *wanted)
{
	struct key_log_start head = {.version = KEY_LOG_VERSION,
	    .sub = wanted->sub,
	    .seed = wanted->seed,
	    .slice = wanted->slice,
	    .slice_ms = wanted->slice_ms};
	memcpy(head.magic, KEY_LOG_MAGIC, sizeof head.magic);
	head.checksum = key_log_start_sum(&head);
	return head;
}

static bool check_head(const struct key_log *log, const struct key_log_start *there,
    const struct key_log_start *wanted, struct err *err)
{
	const char *why = key_log_start_fault(there);
	if (!why && there->seed != wanted->seed)
		why = "was written with another seed";
	else if (!why && memcmp(there, wanted, sizeof *there) != 0)
		why = "is of another slice, or of a window that is cut otherwise";
	return !why || err_set(err, ERR_CONFIG, "%s %s: use a new folder, and load the ids again",
			   log->name, why);
}

/* write(), to its end. */
static bool write_all(int fd, const void *bytes, size_t length, uint64_t at)
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
	if (ftruncate(log->fd, 0) || !write_all(log->fd, head, sizeof *head, 0))
		return fail(log, "written", err);
	log->units = KEY_FIRST_UNIT;
	log->dirty = true;
	return true;
}

/* One that is shorter than its head was being made when the process was killed. */
static bool look_at_file(struct key_log *log, const struct key_log_start *wanted, struct err *err)
{
	struct key_log_start there;
	struct stat state;
	if (fstat(log->fd, &state))
		return fail(log, "looked at", err);
	if (state.st_size < KEY_LOG_HEAD)
		return begin_file(log, wanted, err);
	log->units = (uint64_t)state.st_size / KEY_UNIT;
	if (pread(log->fd, &there, sizeof there, 0) != sizeof there)
		return fail(log, "read", err);
	return check_head(log, &there, wanted, err);
}

/* --- the map -------------------------------------------------------------------------------- */

/* Beyond the file's end there is nothing to be read; it comes as the file grows. */
static bool map_units(struct key_log *log, uint64_t units, struct err *err)
{
	void *map = log->map
			? mremap(log->map, log->mapped * KEY_UNIT, units * KEY_UNIT, MREMAP_MAYMOVE)
			: mmap(NULL, units * KEY_UNIT, PROT_READ, MAP_SHARED, log->fd, 0);
	if (map == MAP_FAILED)
		return fail(log, "mapped", err);
	log->map = map;
	log->mapped = units;
	return true;
}

static bool map_written(struct key_log *log, struct err *err)
{
	return log->units <= log->mapped ||
	       map_units(log, log->units + log->units / 2 + SPARE_UNITS, err);
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
	const struct key_log_start wanted = head_of(head);
	log->name = xstrdup(name);
	log->seed = head->seed;
	log->offset = -1;
	log->fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	begin_batch(log);
	if (log->fd < 0)
		fail(log, "opened", err);
	else if (look_at_file(log, &wanted, err) &&
		 map_units(log, expected + expected / 8 + SPARE_UNITS, err) &&
		 map_written(log, err))
		return log;
	key_log_close(log);
	return NULL;
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
	free(log->name);
	free(log);
}

/* --- reading -------------------------------------------------------------------------------- */

static uint64_t sum_of(const struct key_log *log, const union key_unit *batch, uint64_t count)
{
	const char *rest = (const char *)batch + sizeof batch->lead.checksum;
	return XXH3_64bits_withSeed(
	    rest, (count + 1) * KEY_UNIT - sizeof batch->lead.checksum, log->seed);
}

static bool is_whole(const struct key_log *log, uint64_t unit)
{
	const union key_unit *batch = &log->map[unit];
	uint64_t room = log->units - unit - 1;
	return batch->lead.unit == unit && batch->lead.count <= room &&
	       sum_of(log, batch, batch->lead.count) == batch->lead.checksum;
}

bool key_log_begins(const struct key_log *log, uint64_t unit)
{
	return unit == log->units || (unit < log->units && is_whole(log, unit));
}

static bool cut(struct key_log *log, uint64_t units, struct err *err)
{
	struct stat state;
	if (fstat(log->fd, &state))
		return fail(log, "looked at", err);
	log->units = units;
	if ((uint64_t)state.st_size == units * KEY_UNIT)
		return true;
	return ftruncate(log->fd, (off_t)(units * KEY_UNIT)) == 0 || fail(log, "cut", err);
}

static bool cut_torn(struct key_log *log, uint64_t unit, struct err *err)
{
	for (uint64_t later = unit + 1; later < log->units; later++)
		if (is_whole(log, later))
			return err_set(err, ERR_CONFIG,
			    "%s is damaged at byte %llu, and what follows is not: ids are lost; "
			    "use a new folder, and load them again",
			    log->name, (unsigned long long)(unit * KEY_UNIT));
	return cut(log, unit, err);
}

bool key_log_read(struct key_log *log, uint64_t from, int64_t known,
    void (*see)(void *context, uint64_t unit, const struct key_entry *entry), void *context,
    struct err *err)
{
	uint64_t unit = from;
	log->offset = known;
	while (unit < log->units && is_whole(log, unit)) {
		const struct key_lead *lead = &log->map[unit].lead;
		for (uint64_t i = 1; i <= lead->count; i++)
			see(context, unit + i, &log->map[unit + i].entry);
		if (lead->offset > log->offset)
			log->offset = lead->offset;
		unit += lead->count + 1;
	}
	/* what a killed process wrote and did not sync must not be behind what comes next */
	log->dirty = true;
	return (unit < log->units ? cut_torn(log, unit, err) : cut(log, unit, err)) &&
	       key_log_sync(log, err);
}

int64_t key_log_offset(const struct key_log *log)
{
	return log->offset;
}

uint64_t key_log_written(const struct key_log *log)
{
	return log->units;
}

const struct key_entry *key_log_at(const struct key_log *log, uint64_t unit)
{
	if (unit < log->units)
		return &log->map[unit].entry;
	unit -= log->units;
	return unit < log->added_count ? &log->added[unit].entry : NULL;
}

/* --- writing -------------------------------------------------------------------------------- */

uint64_t key_log_add(struct key_log *log, const struct key_entry *entry)
{
	if (log->added_count == log->added_capacity) {
		log->added_capacity *= 2;
		log->added = xrealloc(log->added, log->added_capacity * sizeof *log->added);
	}
	log->added[log->added_count].entry = *entry;
	return log->units + log->added_count++;
}

static bool has_news(const struct key_log *log, int64_t offset)
{
	return log->added_count > 1 || offset > log->offset;
}

bool key_log_write(struct key_log *log, int64_t offset, struct err *err)
{
	if (!has_news(log, offset))
		return true;
	struct key_lead *lead = &log->added->lead;
	*lead =
	    (struct key_lead){.unit = log->units, .count = log->added_count - 1, .offset = offset};
	lead->checksum = sum_of(log, log->added, lead->count);
	fault_point("before_key_log_write");
	if (!write_all(log->fd, log->added, log->added_count * KEY_UNIT, log->units * KEY_UNIT))
		return fail(log, "written", err);
	fault_point("after_key_log_write");
	log->dirty = true;
	log->units += log->added_count;
	if (offset > log->offset)
		log->offset = offset;
	begin_batch(log);
	return map_written(log, err);
}

bool key_log_sync(struct key_log *log, struct err *err)
{
	if (!log->dirty)
		return true;
	if (fdatasync(log->fd))
		return err_set(err, ERR_FATAL, "%s cannot be made durable: %s; begin again",
		    log->name, strerror(errno));
	log->dirty = false;
	return true;
}
