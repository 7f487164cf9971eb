#pragma once
/*
 * Which records of a partition are finished. They are taken in the order of their offsets, which
 * may have gaps (compaction, marks of transactions), and finished in any order. All before the
 * first that is not finished can be committed; what is finished beyond it goes along with the
 * commit as a text, so that the next owner of the partition does not do it again.
 *
 * The text is empty, or a letter and digits of 6 bits, A-Z a-z 0-9 - _, the lowest bits first:
 *
 *   r  lengths of runs, from the committed offset on: not finished, finished, not finished, …,
 *      finished. A length is digits of 5 bits; the bit 32 says that another one follows
 *   b  a bit for each offset from the committed one on: finished
 *
 * The shorter of the two. What is behind its end is not finished.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct offsets {
	int64_t done;        /* all before it are finished */
	int64_t next;        /* behind the last that was taken */
	int64_t end;         /* behind the last that is finished, taken or not; at least done */
	uint64_t unfinished; /* that were taken */
	/* offsets.c's own: a bit for each offset from origin on, finished */
	uint64_t *words;
	int64_t origin; /* a multiple of 64 */
	size_t capacity;
};

/* committed: where the partition goes on; text: that of the commit, "" if there is none. False: it
 * is none of ours, and counts as empty. */
bool offsets_init(struct offsets *offsets, int64_t committed, const char *text);
void offsets_finish(struct offsets *offsets);

/*
 * How far a record that is taken may be behind one that is not finished: so far the text goes, and
 * so much memory is spent, 16 MiB.
 */
enum { OFFSETS_REACH = 1 << 26 };
bool offsets_reaches(const struct offsets *offsets, int64_t offset);
/* There is nothing to take before this offset, which is in reach. */
void offsets_skip(struct offsets *offsets, int64_t offset);
/* Larger than all before, and in reach. False: it is finished already. */
bool offsets_take(struct offsets *offsets, int64_t offset);
/* It was taken, and is finished once. */
void offsets_finished(struct offsets *offsets, int64_t offset);
bool offsets_is_finished(const struct offsets *offsets, int64_t offset);

/*
 * The text for a commit of offsets->done; returns its length without NUL. What does not fit into
 * size - 1 bytes is left out from the end, and would be done again: runs are, so that it is short
 * when few are not finished. *ret_needed: the length that all of it takes.
 */
size_t offsets_text(const struct offsets *offsets, char *ret_text, size_t size, size_t *ret_needed);
