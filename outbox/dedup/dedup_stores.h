#pragma once
/* The stores that there are, and the line that chooses one of them. */
#include "dedup_store.h"

/* Rows, up to NULL. Rows with one name stand behind each other; the first is what a line without
 * `form` means. */
extern const struct dedup_store_type *const dedup_stores[];

/* The line as dedup_spec.h has it, checked. ret_spec is to be finished in any case. */
bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err) MUST_CHECK;
