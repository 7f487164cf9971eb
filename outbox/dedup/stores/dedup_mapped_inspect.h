#pragma once
/* Inspects a mapped file (mapped_file.h) with counters, bits or an offset; for `inspect` in the row
 * of a store (dedup_store.h). */
#include "dedup_inspection.h"
#include "errors.h"

/* Kinds in the head of a file of counters (mapped_file.h): the kind tells their width. */
enum { DEDUP_MAPPED_COUNTS = 1, DEDUP_MAPPED_COUNTS8 = 4 };

bool dedup_inspect_mapped(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
