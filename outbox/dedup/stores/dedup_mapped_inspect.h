#pragma once
/* Looks at a file that is memory, for the row of a store: as struct dedup_store_type has `inspect`.
 * Counters, bits, or the file of an offset (mapped_file.h). */
#include "dedup_inspection.h"
#include "errors.h"

bool dedup_inspect_mapped(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
