#pragma once
/*
 * A slice of the window, or a sub-slice: a key log, and one file beside it that is mapped, with the
 * filter and the index over the log. The map is only a hastened reading of the log, and knows what
 * is written there: it is believed while the machine has not been started again since it was
 * written, for then the kernel has every bit that a killed process set; or when it was sealed and
 * its checksums are right. Otherwise it is made again from the log.
 *
 * What a log or a sealed map has is verified when it is read: when the store is opened, or, where
 * that would take too long, when the first id comes that reads it.
 *
 * The map's file, little-endian:
 *
 *   head     4096   the rest of it is zero
 *     magic      8   "obkeymap"
 *     version    4   2
 *     sealed     4   1: nothing was changed since the checksums were made; else 0
 *     boot      16   id of the machine's start (/proc/sys/kernel/random/boot_id)
 *     lines      8   of the filter
 *     buckets    8   of the index
 *     checksum   8   when sealed: XXH3, 64 bits, of the checksums behind the index; its seed is the
 *                    XXH3, 64 bits, with the seed, of lines and buckets
 *     known     64   twice, written by turns; the one with more units counts:
 *       units    8   of the log that are in the map
 *       ids      8   of them
 *       offset   8   the largest of the batches in the map; -1: none
 *       checksum 8   XXH3, 64 bits, with the seed, of the 24 bytes before it
 *   filter   lines * 64     bloom_filter.h
 *   index    buckets * 64   key_index.h
 *   checksums    8   for each 65,536 bytes of filter and index: XXH3, 64 bits, with the seed; when
 *                    sealed
 *
 * Owned by one thread.
 */
#include "bloom_filter.h"
#include "dedup_map.h"
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
	struct dedup_map_known known; /* as the map has it */
	struct map_pieces pieces;
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
/* Makes one that is empty that of another time; on failure it is closed. */
bool dedup_slice_rename(
    struct dedup_slice *slice, int folder, int64_t number, struct err *err) MUST_CHECK;
/* Closes it, and removes its files. */
void dedup_slice_remove(struct dedup_slice *slice, int folder);

/* Comes into the file, and so into filter and index, with the next dedup_slice_write. */
void dedup_slice_add(struct dedup_slice *slice, const struct key_entry *entry);
/* Before a look at the filter: the line of the id is as it was, or the map is made anew from the
 * log. ERR_FATAL: that is damaged. */
bool dedup_slice_prove(struct dedup_slice *slice, struct fingerprint hash, struct err *err);
/*
 * Is it written? Exact: by the index and the log. For an id that the filter may have. ERR_FATAL:
 * the log is damaged where it may be; the slice is refused when it is opened again.
 */
bool dedup_slice_has(struct dedup_slice *slice, struct fingerprint hash, bool *ret_there,
    struct err *err) MUST_CHECK;
bool dedup_slice_is_full(const struct dedup_slice *slice); /* no unit behind fits into the index */
uint64_t dedup_slice_ids(const struct dedup_slice *slice); /* with those that were added */
uint64_t dedup_slice_bytes(const struct dedup_slice *slice); /* of both files */

int64_t dedup_slice_offset(const struct dedup_slice *slice); /* key_log_offset */

/* key_log_write, key_log_sync, and the map knows it. Once one was ERR_FATAL, it is closed. */
bool dedup_slice_write(struct dedup_slice *slice, int64_t offset, struct err *err) MUST_CHECK;
bool dedup_slice_sync(struct dedup_slice *slice, struct err *err) MUST_CHECK;

/*
 * Makes the map believable after the next start of the machine: what it knows of, its checksums and
 * its bytes go to the disk. Takes its time; in what was sealed nothing must be added.
 */
bool dedup_slice_seal(struct dedup_slice *slice, struct err *err) MUST_CHECK;
