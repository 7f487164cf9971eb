#pragma once
/* Looks at key logs, for the row of a store: as struct dedup_store_type has `inspect`. */
#include "dedup_inspection.h"
#include "errors.h"

/* A log of a window, with its map; or a map that has no log. */
bool dedup_inspect_slice(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
/* A log without a map, in which ids may be released. */
bool dedup_inspect_log(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
