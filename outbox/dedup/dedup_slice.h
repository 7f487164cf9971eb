#pragma once
/*
 * A slice of the window, or a sub-slice: a key log, and one file beside it that is mapped, with the
 * filter and the index over the log. The map is only a hastened reading of the log: it is believed
 * while the machine has not been started again since it was written, for then the kernel has every
 * bit that a killed process set; or when it was sealed and its checksum is right. Otherwise it is
 * made again from the log.
 *
 * The map's file, little-endian:
 *
 *   head     4096   the rest of it is zero
 *     magic      8   "obkeymap"
 *     version    4   1
 *     sealed     4   1: nothing was changed since the checksum was made
 *     boot      16   id of the machine's start (/proc/sys/kernel/random/boot_id)
 *     lines      8   of the filter
 *     buckets    8   of the index
 *     units      8   of the log that are in the map
 *     ids        8   in the filter
 *     offset     8   the largest of the batches in the map; -1: none
 *     checksum   8   of the filter and the index, XXH3, 64 bits, with the seed; when sealed
 *   filter   lines * 64     bloom_filter.h
 *   index    buckets * 64   key_index.h
 *
 * Owned by one thread.
 */
#include "bloom_filter.h"
#include "key_index.h"
#include "key_log.h"

struct dedup_slice_plan {
	struct key_log_head head;
	uint64_t ids, lines; /* as planned; the filter's rate is right up to so many ids */
};

/* How it was opened. */
enum dedup_slice_origin { SLICE_NEW, SLICE_MAPPED, SLICE_SEALED, SLICE_REBUILT };

struct dedup_slice {
	struct dedup_slice_plan plan;
	struct key_log *log;
	struct bloom_filter filter;
	struct key_index index;
	enum dedup_slice_origin origin;
	/* the rest is dedup_slice.c's own */
	void *map;
	size_t map_bytes;
	int map_fd;
};

/*
 * folder: a descriptor, which stays the caller's. What is there is read, what is torn is cut, what
 * is missing is made. Errors as key_log_open; ERR_RETRY for want of room, too.
 */
bool dedup_slice_open(struct dedup_slice *ret_slice, int folder,
    const struct dedup_slice_plan *plan, struct err *err) MUST_CHECK;
/* Writes nothing. Takes {0} as well. */
void dedup_slice_close(struct dedup_slice *slice);
/* Has the kernel make its pages, so that the first ids need not wait for them. */
void dedup_slice_touch(const struct dedup_slice *slice);
/* Closes it, and removes its files. */
void dedup_slice_remove(struct dedup_slice *slice, int folder);

/* ERR_FATAL: the map is damaged, and is made anew when the slice is opened again. */
bool dedup_slice_add(
    struct dedup_slice *slice, const struct key_entry *entry, struct err *err) MUST_CHECK;
/* Is it there? Exact: by the index and the log. For an id that the filter may have. */
bool dedup_slice_has(const struct dedup_slice *slice, struct dedup_hash hash);
uint64_t dedup_slice_ids(const struct dedup_slice *slice);
uint64_t dedup_slice_bytes(const struct dedup_slice *slice); /* of both files */

int64_t dedup_slice_offset(const struct dedup_slice *slice); /* key_log_offset */

/* key_log_write, key_log_sync, and the map knows it. */
bool dedup_slice_write(struct dedup_slice *slice, int64_t offset, struct err *err) MUST_CHECK;
bool dedup_slice_sync(struct dedup_slice *slice, struct err *err) MUST_CHECK;

/*
 * Makes the map believable after the next start of the machine: its checksum and its bytes go to
 * the disk. Takes its time; in what was sealed nothing must be added.
 */
bool dedup_slice_seal(struct dedup_slice *slice, struct err *err) MUST_CHECK;
