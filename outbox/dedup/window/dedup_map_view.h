#pragma once
/*
 * The map of a slice as it stands, read into memory: a file that is mapped could be cut meanwhile,
 * and a look at it would end the process.
 */
#include "bloom_filter.h"
#include "dedup_map.h"
#include "key_index.h"
#include "key_view.h"

/* What becomes of it when the store is opened next, with the same ids and rate. */
enum dedup_map_use {
	DEDUP_MAP_REBUILT, /* made anew from the log */
	DEDUP_MAP_USED,    /* as it is: of this start of the machine */
	DEDUP_MAP_LOADED,  /* as it is: sealed before, and its checksums are right */
	DEDUP_MAP_REFUSED, /* its log is shorter than it was */
};

struct dedup_map_view {
	uint64_t bytes; /* of the file; 0: there is none */
	struct dedup_map_head head;
	struct dedup_map_known known; /* {0}: none is whole */
	struct bloom_filter filter;
	struct key_index index;
	enum dedup_map_use use;
	bool wrong_sum; /* it was sealed, and is not as it was then */
	void *memory;
};

/*
 * log: of the same slice, opened before, so that the map has all that is in it. live: a process has
 * it open. False: errno says why it cannot be read. To be closed in any case.
 */
bool dedup_map_view_open(
    struct dedup_map_view *ret_view, int folder, const char *name, struct key_view *log, bool live);
void dedup_map_view_close(struct dedup_map_view *view);

/* Has the filter the id, and the index this unit for it? */
bool dedup_map_view_in_filter(const struct dedup_map_view *view, struct fingerprint hash);
bool dedup_map_view_in_index(
    const struct dedup_map_view *view, struct fingerprint hash, uint64_t unit);
/* Where in the file that would be. */
uint64_t dedup_map_view_line(const struct dedup_map_view *view, struct fingerprint hash);
uint64_t dedup_map_view_bucket(const struct dedup_map_view *view, struct fingerprint hash);
