#pragma once
/*
 * The window: slices by time, in a folder. An id is in the slice of its record's time, so that the
 * same records make the same slices whenever they are read; the window's own time is the largest
 * that was seen, and never beyond now. An id that is older than the window goes to the oldest slice
 * that is alive. A look asks all of them; what a filter may have, the slice's log confirms.
 *
 * A slice that has as many ids as planned gets a sub-slice, with a filter that is more exact; so
 * does one that has a quarter of them when the observed rate of false hits is beyond what is
 * allowed.
 *
 *   folder/lock, folder/window   state_folder.h
 *   folder/N.S.log               slice N, sub-slice S: key_log.h
 *   folder/N.S.map               dedup_slice.h
 *
 * What was added is in the maps when it is written, and in a set of its own until then: so no map
 * has what its log has not.
 *
 * A log that is damaged is ERR_FATAL, and so is all that follows.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"
#include "errors.h"

struct dedup_window;

struct dedup_window_settings {
	const char *path;
	uint64_t ids;     /* at most that many different ones in the window, as planned */
	double rate;      /* of false positives, of the whole window */
	double alarm;     /* the observed rate beyond which slices are split; 0: never */
	int64_t slice_ms; /* the window has so many slices of this length */
	int slices;
	uint64_t hot; /* ids in the exact layer in front */
};

struct dedup_window_figures {
	uint64_t ids, bytes;    /* that are remembered; of all files */
	uint64_t memory_bytes;  /* of the filters, and of what is hot */
	int slices, sub_slices; /* alive; those are among these */
	/* since it was opened: looks at filters, what they had, and of that what logs had not */
	uint64_t looks, hits, false_hits;
	double planned_rate;  /* of false hits, of the slices as they are filled now */
	double observed_rate; /* of the last stretch of looks at what was new; 0: none was whole */
	bool alarm;           /* it is beyond what the settings allow */
	int64_t offset;       /* everything below it is durable; -1: not known */
	int64_t newest_ms;    /* the window's time; INT64_MIN: nothing was added yet */
	int mapped, rebuilt;  /* slices that were there: as they were, from their log */
};

/*
 * path: of a folder that is made if it is missing; its parent is there. NULL and err: ERR_CONFIG
 * for a folder of another window, or a damaged one; ERR_FENCED: another process has it; ERR_DENIED,
 * ERR_RETRY: the disk.
 */
struct dedup_window *dedup_window_open(
    const struct dedup_window_settings *settings, struct err *err);
/* Makes maps ready for another start of the machine. What was not checkpointed may be lost. */
void dedup_window_close(struct dedup_window *window);

uint64_t dedup_window_seed(const struct dedup_window *window);
struct fingerprint dedup_window_hash(
    const struct dedup_window *window, const void *id, size_t length);

/* Before a look at it a little later, at several in a row. */
void dedup_window_prefetch(const struct dedup_window *window, struct fingerprint hash);
/* Was it seen a moment ago? */
bool dedup_window_is_hot(const struct dedup_window *window, struct fingerprint hash);
/* The filters alone, of what is not hot; 0: none has it. */
bool dedup_window_may_have(struct dedup_window *window, struct fingerprint hash,
    uint64_t *ret_found, struct err *err) MUST_CHECK;
/* What dedup_window_may_have found (0 too) turned out to be: for the rate, and for what is hot. */
void dedup_window_judge(
    struct dedup_window *window, struct fingerprint hash, uint64_t found, bool there);
/* Is it remembered? */
bool dedup_window_has(struct dedup_window *window, struct fingerprint hash, bool *ret_there,
    struct err *err) MUST_CHECK;
/* It is done. time_ms: of its record; now_ms: the wall clock. ERR_RETRY: no room for a new slice.
 */
bool dedup_window_add(struct dedup_window *window, struct fingerprint hash, int64_t offset,
    int64_t time_ms, int64_t now_ms, struct err *err) MUST_CHECK;
/* Writes what was added, and does not wait for the disk. */
bool dedup_window_flush(struct dedup_window *window, struct err *err) MUST_CHECK;
/*
 * Makes durable what was added. offset: all records below it are done, or -1. ERR_RETRY: nothing
 * is forgotten, again later; ERR_FATAL: open it anew.
 */
bool dedup_window_checkpoint(
    struct dedup_window *window, int64_t offset, struct err *err) MUST_CHECK;

void dedup_window_figures(
    const struct dedup_window *window, struct dedup_window_figures *ret_figures);
