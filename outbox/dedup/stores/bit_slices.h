#pragma once
/*
 * The bits of a bitmap, in files that are mapped into memory (mapped_file.h). With a window, each
 * of its slices has bits of its own (slice_time.h), and an id is in the slice of its record's time.
 * Without a window all bits are in slice 0.
 *
 * The bits of a slice are in partitions of 2^22, each in a file N.P.bits (slice, partition) that is
 * created when the first of its bits is set.
 *
 * A slice that ended can have a thousand files and more, and removing each takes the kernel about a
 * millisecond. So the slice is taken out of the looks at once, and a thread removes its files. The
 * thread runs only while there is work.
 *
 * Owned by one thread, and not moved. Errors are those of mapped_file.h, with the path of the
 * folder before them.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "dedup_spec.h"
#include "errors.h"
#include "mapped_file.h"
#include "slice_time.h"
#include "state_folder.h"

enum { BIT_PARTITION_SHIFT = 22 };
#define BIT_PARTITION (UINT64_C(1) << BIT_PARTITION_SHIFT)

struct bit_part {
	struct mapped_file file; /* {0}: none of its bits is set */
	bool dirty;
};

struct bit_slice {
	int64_t number;
	uint64_t files, ids;    /* existing files, set bits */
	struct bit_slice *next; /* in the list `gone` */
	struct bit_part parts[];
};

/* `slices` + 1 are alive, and one that begins is there before the oldest is taken out. */
enum { MOST_BIT_SLICES = DEDUP_MOST_SLICES + 2 };

struct bit_slices {
	const struct state_folder *folder;
	uint64_t part_count; /* partitions of a slice */
	struct slice_time time;
	struct bit_slice *slices[MOST_BIT_SLICES]; /* sorted by number */
	int count;
	bool folder_dirty; /* files were created, and a loss of power may remove them */
	pthread_t remover;
	bool removing;          /* remover is to be joined */
	struct bit_slice *gone; /* slices that ended; the thread's while it runs */
	_Atomic uint64_t gone_files;
};

/*
 * Opens the files of the folder, which stays the caller's and must outlive the bits; its head has
 * the window. size: bits of a slice. ERR_CONFIG: files are missing or of another slice, or there
 * are bits beyond size. The caller closes the bits in any case.
 */
bool bit_slices_open(struct bit_slices *ret_bits, const struct state_folder *folder, uint64_t size,
    struct err *err) MUST_CHECK;
/* Waits until the files of all slices that ended are removed. */
void bit_slices_close(struct bit_slices *bits);

static inline uint64_t *bit_part_word(const struct bit_part *part, uint64_t bit)
{
	return (uint64_t *)part->file.bytes + (bit & (BIT_PARTITION - 1)) / 64;
}

static inline bool bit_slice_has(const struct bit_slice *slice, uint64_t bit)
{
	const struct bit_part *part = &slice->parts[bit >> BIT_PARTITION_SHIFT];
	return part->file.head && *bit_part_word(part, bit) >> bit % 64 & 1;
}

/* Is the bit set in any slice that is alive? */
static inline bool bit_slices_have(const struct bit_slices *bits, uint64_t bit)
{
	bool found = false;
	/* No end at the first that has it: the waits for memory run side by side. */
	for (int i = 0; i < bits->count; i++)
		found |= bit_slice_has(bits->slices[i], bit);
	return found;
}

/* Sets the bit in the slice of the time. A later time than all before ends old slices; if the files
 * of those before are still being removed, the call waits for that. */
bool bit_slices_set(
    struct bit_slices *bits, uint64_t bit, int64_t time_ms, struct err *err) MUST_CHECK;
/* Clears the bit in all slices that are alive. */
void bit_slices_clear(const struct bit_slices *bits, uint64_t bit);
/* Makes all bits durable, then the list of files. */
bool bit_slices_sync(struct bit_slices *bits, struct err *err) MUST_CHECK;
/* Number of files, also of slices that ended and are being removed. */
uint64_t bit_slices_files(const struct bit_slices *bits);
