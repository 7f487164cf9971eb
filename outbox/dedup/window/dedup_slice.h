#pragma once
/*
 * A slice of the window, or a sub-slice: a key log, and a map, which is a mapped file with the
 * filter and the index over the log. The map only makes the log faster to read, and records how
 * much of the log it has. It is believed while the machine has not been started again since it was
 * written, because then the kernel has every bit that a killed process set; or when it was sealed
 * and its checksums are right. Otherwise it is made again from the log.
 *
 * The bytes of a log and of a sealed map are verified when they are read: when the store is opened,
 * or, where that would take too long, when the first id comes that reads them.
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
 *     known     64   twice, written by turns; the one with more units is valid:
 *       units    8   number of units of the log that are in the map
 *       ids      8   number of ids among them
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
	uint64_t ids, lines; /* as planned: with more than `ids` the filter exceeds its rate */
};

/* How a slice was opened. */
enum dedup_slice_origin { SLICE_NEW, SLICE_MAPPED, SLICE_SEALED, SLICE_REBUILT };

struct dedup_slice {
	struct dedup_slice_plan plan;
	struct key_log *log;
	struct bloom_filter filter;
	struct key_index index;
	enum dedup_slice_origin origin;
	bool doubted;     /* an alarm came: the next checkpoint measures the filter */
	double bits_rate; /* bloom_measured_rate when it was measured last; 0: never */
	/* the rest is private to dedup_slice.c */
	struct dedup_map_known known; /* as stored in the map */
	struct map_pieces pieces;
	void *map;
	size_t map_bytes;
	int map_fd;
};

/*
 * Opens the files: reads existing ones, cuts a torn tail, and creates missing ones. folder: a
 * descriptor, which stays the caller's. Errors as key_log_open; also ERR_RETRY: no room on the
 * disk.
 */
bool dedup_slice_open(struct dedup_slice *ret_slice, int folder,
    const struct dedup_slice_plan *plan, struct err *err) MUST_CHECK;
/* Writes nothing. Takes {0} as well. */
void dedup_slice_close(struct dedup_slice *slice);
/* Makes the kernel provide the map's pages, so that the first ids need not wait for them. */
void dedup_slice_touch(const struct dedup_slice *slice);
/* Turns an empty slice into that of another time; on failure the slice is closed. */
bool dedup_slice_rename(
    struct dedup_slice *slice, int folder, int64_t number, struct err *err) MUST_CHECK;
/* Closes the slice, and removes its files. */
void dedup_slice_remove(struct dedup_slice *slice, int folder);

/* Keeps the entry in memory; the next dedup_slice_write puts it into log, filter and index. */
void dedup_slice_add(struct dedup_slice *slice, const struct key_entry *entry);
/* Call this before a look at the filter: it verifies the id's line, and makes a damaged map anew
 * from the log. ERR_FATAL: the log is damaged. */
bool dedup_slice_prove(struct dedup_slice *slice, struct fingerprint hash, struct err *err);
/*
 * Is the id written? The answer is exact, by the index and the log; call this for an id that the
 * filter may have. ERR_FATAL: the log is damaged where the id may be; the slice is refused when it
 * is opened again.
 */
bool dedup_slice_has(struct dedup_slice *slice, struct fingerprint hash, bool *ret_there,
    struct err *err) MUST_CHECK;
bool dedup_slice_is_full(const struct dedup_slice *slice);   /* the index takes no further unit */
uint64_t dedup_slice_ids(const struct dedup_slice *slice);   /* including ids not yet written */
uint64_t dedup_slice_bytes(const struct dedup_slice *slice); /* size of both files */

int64_t dedup_slice_offset(const struct dedup_slice *slice); /* key_log_offset */

/* Like key_log_write and key_log_sync; they also keep the map. After ERR_FATAL the slice is to be
 * closed. */
bool dedup_slice_write(struct dedup_slice *slice, int64_t offset, struct err *err) MUST_CHECK;
bool dedup_slice_sync(struct dedup_slice *slice, struct err *err) MUST_CHECK;

/*
 * Makes the map anew from the log, with this number of lines (at least as many as it has).
 * ERR_RETRY: the disk has no room, and the map is as it was. ERR_FATAL: the log is damaged.
 */
bool dedup_slice_remake(struct dedup_slice *slice, uint64_t lines, struct err *err) MUST_CHECK;
/* Makes the next opening make the map anew. */
void dedup_slice_distrust(struct dedup_slice *slice);

/*
 * Makes the map valid after the next start of the machine: the log's units that it has, its
 * checksums and its bytes go to the disk. This is slow. Add nothing to a sealed slice.
 */
bool dedup_slice_seal(struct dedup_slice *slice, struct err *err) MUST_CHECK;
