#pragma once
/*
 * A copy of a slice's map in memory. If the file were mapped, another process could cut it
 * meanwhile, and a look at it would end this process.
 */
#include "bloom_filter.h"
#include "dedup_map.h"
#include "key_index.h"
#include "key_view.h"

/* The use of the map when the store is opened next, with the same ids and rate. */
enum dedup_map_use {
	DEDUP_MAP_REBUILT, /* it is made anew from the log */
	DEDUP_MAP_USED,    /* it is used: the machine has not started again since */
	DEDUP_MAP_LOADED,  /* it is used: it is sealed, and its checksums are right */
	DEDUP_MAP_REFUSED, /* the store is refused: the log is shorter than it was */
};

struct dedup_map_view {
	uint64_t bytes; /* size of the file; 0: there is none */
	struct dedup_map_head head;
	struct dedup_map_known known; /* {0}: none is whole */
	struct bloom_filter filter;
	struct key_index index;
	enum dedup_map_use use;
	bool wrong_sum; /* the map was sealed, and has changed since */
	void *memory;
};

/*
 * log: the log of the slice, opened before the map, so that the map has all of the log's ids. live:
 * a process has the folder open. On failure errno has the reason. The caller closes the view in any
 * case.
 */
bool dedup_map_view_open(
    struct dedup_map_view *ret_view, int folder, const char *name, struct key_view *log, bool live);
void dedup_map_view_close(struct dedup_map_view *view);

/* Has the filter the id? Has the index this unit for the id? */
bool dedup_map_view_in_filter(const struct dedup_map_view *view, struct fingerprint hash);
bool dedup_map_view_in_index(
    const struct dedup_map_view *view, struct fingerprint hash, uint64_t unit);
/* Offsets in the file: the id's line of the filter, and its bucket of the index. */
uint64_t dedup_map_view_line(const struct dedup_map_view *view, struct fingerprint hash);
uint64_t dedup_map_view_bucket(const struct dedup_map_view *view, struct fingerprint hash);
