#pragma once
/*
 * The finished ids of a slice, in the order in which they were finished, in a file that only grows.
 * The file confirms whether an id is done, and all other data is rebuilt from it.
 *
 * The file is a row of units of 32 bytes, little-endian. Unit 0 and 1 are its head:
 *
 *   magic      8   "obkeylog"
 *   version    4   2
 *   sub        4   0: the slice itself; 1, 2, …: its sub-slices
 *   seed       8   of the hash
 *   slice      8   its number: the time divided by slice_ms
 *   slice_ms   8
 *   checksum   8   XXH3, 64 bits, of the 40 bytes before it
 *   durable    8   number of units that are synced
 *   its sum    8   XXH3, 64 bits, with the seed, of the 8 bytes before it
 *
 * Batches follow, each written at once: a lead unit, and a unit for each id.
 *
 *   checksum   8   XXH3, 64 bits, with the seed, of the rest of the batch
 *   unit       8   the number of this unit
 *   count      8   of ids
 *   offset     8   everything below it is durable once this batch is; -1: says nothing
 *
 *   low, high  16  the hash of the id
 *   offset     8   of its record
 *   time       8   of its record, in milliseconds since 1970
 *
 * A batch behind the durable part that is cut off, or whose checksum is wrong, is the torn tail of
 * a crash. It was never reported as durable, and is cut together with everything behind it, some of
 * which may have reached the disk earlier. Such a batch in the durable part is damage, and the file
 * is refused.
 *
 * `durable` is written when a sync has ended, and is itself durable with the next sync: after a
 * loss of power it may be too small, but never too large.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"
#include "errors.h"

struct key_entry {
	struct fingerprint hash;
	int64_t offset, time_ms;
};
enum { KEY_UNIT = 32, KEY_FIRST_UNIT = 2 };
_Static_assert(sizeof(struct key_entry) == KEY_UNIT, "an entry is a unit of the file");

struct key_log_head {
	int32_t sub;
	uint64_t seed;
	int64_t slice, slice_ms;
};

struct key_log;

/*
 * folder: a descriptor, which stays the caller's. A missing file is created; an existing one must
 * have this head. expected: number of ids for which memory is mapped; more may come. ERR_CONFIG:
 * the file has another content, or is shorter than it was (the error has the cure); ERR_RETRY: the
 * disk.
 */
struct key_log *key_log_open(int folder, const char *name, const struct key_log_head *head,
    uint64_t expected, struct err *err);
/*
 * Turns an empty log into that of another slice, under another name. If the process is killed
 * meanwhile, an empty log with one of the two heads remains, which any process may use.
 */
bool key_log_rename(struct key_log *log, int folder, const char *name,
    const struct key_log_head *head, struct err *err) MUST_CHECK;
/* Closes the log; added ids that were not written are lost. */
void key_log_close(struct key_log *log);

typedef void key_log_see(void *context, uint64_t unit, const struct key_entry *entry);
/*
 * Reads the file from the unit `from`, where a batch begins or the file ends: verifies the batches
 * and shows their entries, cuts a torn tail, and makes the rest durable. The caller knows that the
 * part before `from` is whole. known: the largest offset in the batches before `from`. Called once,
 * before anything is added. ERR_CONFIG: the durable part is damaged.
 */
bool key_log_read(struct key_log *log, uint64_t from, int64_t known, key_log_see *see,
    void *context, struct err *err) MUST_CHECK;
/* Verifies and shows all written entries from a batch on. ERR_FATAL: the file is damaged. */
bool key_log_show(const struct key_log *log, uint64_t from, key_log_see *see, void *context,
    struct err *err) MUST_CHECK;

/* Does the file end at this unit, or does a whole batch begin there? */
bool key_log_begins(const struct key_log *log, uint64_t unit);
/* Is the entry at this unit as it was written? The first call reads its batch. */
bool key_log_is_whole_at(struct key_log *log, uint64_t unit);

/* The largest durable offset in the batches that were read or written; -1: none. */
int64_t key_log_offset(const struct key_log *log);
/* Number of units in the file; added ones come behind. */
uint64_t key_log_written(const struct key_log *log);

void key_log_add(struct key_log *log, const struct key_entry *entry);
uint64_t key_log_added(const struct key_log *log); /* number of ids added but not written */
const struct key_entry *key_log_added_at(const struct key_log *log, uint64_t number); /* from 0 */
/* NULL: the unit is not written. */
const struct key_entry *key_log_at(const struct key_log *log, uint64_t unit);

/*
 * Writes the added ids, or a batch without ids if only the offset is new. The caller may repeat it
 * after a failure (for example ERR_RETRY: no room on the disk); no id is forgotten meanwhile.
 */
bool key_log_write(struct key_log *log, int64_t offset, struct err *err) MUST_CHECK;
/*
 * Makes the written units durable. ERR_FATAL: the kernel may have dropped pages that it could not
 * write, and would report success the next time. Each sync fails until the file is opened again,
 * which writes it once more.
 */
bool key_log_sync(struct key_log *log, struct err *err) MUST_CHECK;
