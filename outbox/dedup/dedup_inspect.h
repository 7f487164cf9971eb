#pragma once
/*
 * What is in the folder of a local store, file by file, and whether it is as it should be. Nothing
 * is locked or changed; another process may have the folder open and go on meanwhile.
 *
 * Key logs are read whole. A map is read into memory, one at a time.
 */
#include "state_folder_view.h"
#include "dedup_map_view.h"

/* A slice with its files, or a piece of a bitmap, or the file of an offset. */
struct dedup_part {
	const struct state_file *file; /* the log, or the only one */
	uint64_t ids, released;        /* of exact: what it is not, behind that */
	uint64_t bytes, map_bytes;     /* of the file, and of the map beside it */
	int64_t slice_ms;              /* it has the times of number * slice_ms on; 0: none */
	int64_t offset;                /* the largest that is durable; -1: none */
	int64_t first_ms, last_ms;     /* of its records; INT64_MAX and INT64_MIN: not known */
	bool has_map;                  /* it is of a kind that has one */
	enum dedup_map_use use;
	bool damaged; /* a finding that is not harmless was about it */
};

struct dedup_finding {
	const char *file;
	int64_t byte;  /* at which the fault begins; -1: of all of it */
	bool harmless; /* nothing is lost: who opens the store next puts it right */
	const char *what;
};

struct dedup_inspector {
	/* Each may be NULL. What it is given is valid during the call; a finding comes before its
	 * part. */
	void (*folder)(void *context, const struct state_folder_view *folder);
	void (*part)(void *context, const struct dedup_part *part);
	void (*found)(void *context, const struct dedup_finding *finding);
	void *context;
};

/* compare: is each id of a log in its map? Errors as state_folder_view_open. */
bool dedup_inspect(const char *path, bool compare, const struct dedup_inspector *inspector,
    struct err *err) MUST_CHECK;
