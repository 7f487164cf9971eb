#pragma once
/* Inspects key logs; for `inspect` in the row of a store (dedup_store.h). */
#include "dedup_inspection.h"
#include "errors.h"

/* Inspects a log of a window with its map, or a map without a log. */
bool dedup_inspect_slice(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
/* Inspects a log of the store `exact`: it has no map, and may have entries of releases. */
bool dedup_inspect_log(struct dedup_inspection *inspection, struct err *err) MUST_CHECK;
