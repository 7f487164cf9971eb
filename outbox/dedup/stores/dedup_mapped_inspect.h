#pragma once
/* Inspects a mapped file (mapped_file.h) with counters, bits or an offset; for `inspect` in the row
 * of a store (dedup_store.h). */
#include "dedup_inspection.h"
#include "errors.h"

/* Kinds in the head of a file of counters (mapped_file.h): the kind tells their width. */
enum { DEDUP_MAPPED_COUNTS = 1, DEDUP_MAPPED_COUNTS8 = 4 };

/* Of a file N.P.bits: the number in its head, so that a file under another name is noticed. P is
 * below 2^15, because `ids` is at most 10^11. */
static inline int64_t dedup_bits_number(int64_t slice, int64_t partition)
{
	return (int64_t)(((uint64_t)slice << 15) + (uint64_t)partition);
}

bool dedup_inspect_mapped(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
