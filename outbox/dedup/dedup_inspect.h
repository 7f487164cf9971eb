#pragma once
/*
 * What is in the folder of a local store, file by file, and whether it is as it should be. Nothing
 * is locked or changed; another process may have the folder open and go on meanwhile.
 *
 * Key logs are read whole. A map is read into memory, one at a time.
 */
#include "dedup_inspection.h"

/* compare: is each id of a log in its map? Errors as state_folder_view_open. */
bool dedup_inspect(const char *path, bool compare, const struct dedup_inspector *inspector,
    struct err *err) MUST_CHECK;
