#pragma once
/*
 * Which records of a partition are finished. They are taken in the order of their offsets, which
 * may have gaps (compaction, marks of transactions), and finished in any order. All records before
 * the first unfinished one can be committed. The text of the commit lists the records that are
 * finished beyond it, so that the next owner of the partition does not handle them again.
 *
 * The text is empty, or a letter and digits of 6 bits, A-Z a-z 0-9 - _, the lowest bits first:
 *
 *   r  lengths of runs, from the committed offset on: not finished, finished, not finished, …,
 *      finished. A length is digits of 5 bits; the bit 32 says that another one follows
 *   b  a bit for each offset from the committed one on: finished
 *
 * The shorter of the two is used. Records behind the end of the text are not finished.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct offsets {
	int64_t done;        /* all offsets before it are finished */
	int64_t next;        /* offset behind the last record taken */
	int64_t end;         /* offset behind the last finished one, taken or not; at least done */
	uint64_t unfinished; /* records taken and not finished */
	/* private to offsets.c: a bit for each offset from origin on; set: finished */
	uint64_t *words;
	int64_t origin; /* a multiple of 64 */
	size_t capacity;
};

/* committed: the offset at which the partition continues; text: that of the commit, "" if there is
 * none. False: the inbox did not write the text, which then counts as empty. */
bool offsets_init(struct offsets *offsets, int64_t committed, const char *text);
void offsets_finish(struct offsets *offsets);

/*
 * How far a taken record may be behind an unfinished one. The limit bounds the text, and the memory
 * to 16 MiB.
 */
enum { OFFSETS_REACH = 1 << 26 };
bool offsets_reaches(const struct offsets *offsets, int64_t offset);
/* No record before this offset will be taken; the offset is in reach. */
void offsets_skip(struct offsets *offsets, int64_t offset);
/* The offset is larger than all before, and in reach. False: it is finished already. */
bool offsets_take(struct offsets *offsets, int64_t offset);
/* The offset was taken, and is finished only once. */
void offsets_finished(struct offsets *offsets, int64_t offset);
bool offsets_is_finished(const struct offsets *offsets, int64_t offset);

/*
 * The text for a commit of offsets->done; returns its length without NUL. If the text does not fit
 * into size - 1 bytes, its end is left out, and those records would be handled again. The form is
 * runs then, which are short when few records are unfinished. *ret_needed: the length of the whole
 * text.
 */
size_t offsets_text(const struct offsets *offsets, char *ret_text, size_t size, size_t *ret_needed);
