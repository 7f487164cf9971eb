#pragma once
/*
 * The ids of a slice that are done, in the order in which they were: a file that only grows. What
 * is in it is what an id is confirmed by, and what all else is rebuilt from.
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
 *   durable    8   units: what is before that was synced
 *   its sum    8   XXH3, 64 bits, with the seed, of the 8 bytes before it
 *
 * Batches follow, each as it was written at once: a unit that leads, and one for each id.
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
 * A batch that is cut off, or whose checksum is wrong, behind what is durable is the torn tail of a
 * crash: it was never said to be durable, and is cut with all that follows, of which some may have
 * come to the disk before it. In what is durable it is damage, and the file is refused.
 *
 * `durable` is written when a sync has ended, and is durable itself with the next one: after a loss
 * of power it may say less than is true, and never more.
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
 * folder: a descriptor, which stays the caller's. A file that is not there is made, and one that is
 * must have this head. expected: so many ids, for the size of what is mapped; more may come.
 * ERR_CONFIG: a file of something else, or one that is shorter than it was, with the cure;
 * ERR_RETRY: the disk.
 */
struct key_log *key_log_open(int folder, const char *name, const struct key_log_head *head,
    uint64_t expected, struct err *err);
/*
 * Makes one that is empty that of another slice, under another name. Who is killed meanwhile leaves
 * an empty log with one of the heads, which is anybody's.
 */
bool key_log_rename(struct key_log *log, int folder, const char *name,
    const struct key_log_head *head, struct err *err) MUST_CHECK;
/* What was not written is lost. */
void key_log_close(struct key_log *log);

typedef void key_log_see(void *context, uint64_t unit, const struct key_entry *entry);
/*
 * Reads the file from a unit on, at which a batch begins or the file ends: verifies the batches and
 * shows their entries; cuts a torn tail, and makes durable what is there. What is before `from` is
 * known to be whole. known: the largest offset of the batches before. Once, before anything is
 * added. ERR_CONFIG: what was durable is damaged.
 */
bool key_log_read(struct key_log *log, uint64_t from, int64_t known, key_log_see *see,
    void *context, struct err *err) MUST_CHECK;
/* Verifies and shows what is written from a batch on. ERR_FATAL: it is damaged. */
bool key_log_show(const struct key_log *log, uint64_t from, key_log_see *see, void *context,
    struct err *err) MUST_CHECK;

/* Does the file end there, or a whole batch begin? */
bool key_log_begins(const struct key_log *log, uint64_t unit);
/* Is the entry at this unit as it was written? Its batch is read for that, once. */
bool key_log_is_whole_at(struct key_log *log, uint64_t unit);

/* The largest offset that a batch which was read or written says to be durable; -1: none. */
int64_t key_log_offset(const struct key_log *log);
/* Units that are in the file; those added come behind. */
uint64_t key_log_written(const struct key_log *log);

void key_log_add(struct key_log *log, const struct key_entry *entry);
uint64_t key_log_added(const struct key_log *log); /* and not written */
const struct key_entry *key_log_added_at(const struct key_log *log, uint64_t number); /* from 0 */
/* NULL: it is not written. */
const struct key_entry *key_log_at(const struct key_log *log, uint64_t unit);

/*
 * Writes what was added, or a batch without ids when there is nothing new but the offset. It may be
 * repeated after a failure (ERR_RETRY: no room on the disk, for instance); nothing is forgotten
 * meanwhile.
 */
bool key_log_write(struct key_log *log, int64_t offset, struct err *err) MUST_CHECK;
/*
 * Makes durable what was written. ERR_FATAL: the kernel may have dropped what it could not write,
 * and would say the next time that all is well; who opens the file again writes it once more.
 * Until then each sync fails.
 */
bool key_log_sync(struct key_log *log, struct err *err) MUST_CHECK;
