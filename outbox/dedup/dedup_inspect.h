#pragma once
/*
 * Inspects the folder of a local store file by file, and reports damage. It locks and changes
 * nothing; another process may have the folder open and continue meanwhile.
 *
 * Key logs are read whole. A map is read into memory, one at a time.
 */
#include "dedup_inspection.h"

/* compare: also checks that each id of a log is in its map. Errors as state_folder_view_open. */
bool dedup_inspect(const char *path, bool compare, const struct dedup_inspector *inspector,
    struct err *err) MUST_CHECK;
