#pragma once
/* All stores, and the line that chooses one of them. */
#include "dedup_store.h"

/* Rows, up to NULL. Rows with the same name are neighbours; a line without `form` means the first
 * of them. */
extern const struct dedup_store_type *const dedup_stores[];

/* Parses and checks a line (dedup_spec.h). The caller finishes ret_spec in any case. */
bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err) MUST_CHECK;
