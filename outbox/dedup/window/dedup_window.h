#pragma once
/*
 * The window: slices by time, in a folder. An id is in the slice of its record's time, so that the
 * same records make the same slices whenever they are read. The window's own time is the largest
 * time that was seen, and never beyond now. An id that is older than the window goes to the oldest
 * slice that is alive. A look asks all slices; if a filter may have the id, the slice's log
 * confirms it.
 *
 * A slice that has as many ids as planned gets a sub-slice, with a filter that is more exact, and
 * the next slices are planned for as many ids as came.
 *
 * If the observed rate of false hits is beyond the allowed one, there is an alarm. The next
 * checkpoints measure the filters and make those anew from their logs that are overfilled or
 * damaged; a filter is never replaced by one without all ids of its log, because its answers would
 * be wrong. An alarm makes no sub-slices: they always say that more ids came than planned.
 *
 *   folder/lock, folder/window   state_folder.h
 *   folder/N.S.log               slice N, sub-slice S: key_log.h
 *   folder/N.S.map               dedup_slice.h
 *
 * An added id is in a set of its own until it is written, and in a map afterwards: so no map has an
 * id that its log does not have.
 *
 * A damaged log is ERR_FATAL, and so is every later call.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"
#include "errors.h"

struct dedup_window;

struct dedup_window_settings {
	const char *path;
	uint64_t ids;     /* planned maximum of different ids in the window */
	double rate;      /* false positive rate of the whole window */
	double alarm;     /* the observed rate beyond which filters are made anew; 0: never */
	int64_t slice_ms; /* length of a slice */
	int slices;       /* number of slices of the window */
	uint64_t hot;     /* number of ids in the exact layer in front */
};

struct dedup_window_figures {
	uint64_t ids, bytes;    /* remembered ids; size of all files */
	uint64_t memory_bytes;  /* memory of the filters, the hot layer and the unwritten ids */
	int slices, sub_slices; /* slices that are alive; sub_slices are among them */
	/* since the window was opened: looks at filters, their hits, hits that no log confirmed */
	uint64_t looks, hits, false_hits;
	double planned_rate;  /* planned rate of false hits, as the slices are filled now */
	double observed_rate; /* in the last stretch of looks for new ids; 0: none was whole */
	bool alarm;           /* observed_rate is beyond the setting `alarm` */
	bool repairing;       /* the next checkpoints measure and repair filters */
	/* since the window was opened: how often `alarm` became true; filters that were made anew
	 */
	uint64_t alarms, repairs;
	double alarm_rate;   /* the observed rate of the last alarm */
	int64_t offset;      /* everything below it is durable; -1: not known */
	int64_t newest_ms;   /* the window's time; INT64_MIN: nothing was added yet */
	int mapped, rebuilt; /* existing slices: with their own map, with one made from the log */
};

/*
 * path: a folder, which is created if it is missing; its parent must exist. NULL and err:
 * ERR_CONFIG for a folder of another window, or a damaged one; ERR_FENCED: another process has it
 * open; ERR_DENIED, ERR_RETRY: the disk.
 */
struct dedup_window *dedup_window_open(
    const struct dedup_window_settings *settings, struct err *err);
/* Seals the maps for the machine's next start. Ids added since the last checkpoint may be lost. */
void dedup_window_close(struct dedup_window *window);

uint64_t dedup_window_seed(const struct dedup_window *window);
struct fingerprint dedup_window_hash(
    const struct dedup_window *window, const void *id, size_t length);

/* Prefetches the id for a look a little later; for looks at several ids in a row. */
void dedup_window_prefetch(const struct dedup_window *window, struct fingerprint hash);
/* Was the id seen a moment ago? */
bool dedup_window_is_hot(const struct dedup_window *window, struct fingerprint hash);
/* Looks into the filters alone, for an id that is not hot. ret_found: a bit for each slice that may
 * have it. */
bool dedup_window_may_have(struct dedup_window *window, struct fingerprint hash,
    uint64_t *ret_found, struct err *err) MUST_CHECK;
/* Notes the truth about the result of dedup_window_may_have, also about 0: for the observed rate
 * and for the hot layer. */
void dedup_window_judge(
    struct dedup_window *window, struct fingerprint hash, uint64_t found, bool there);
/* Is the id remembered? */
bool dedup_window_has(struct dedup_window *window, struct fingerprint hash, bool *ret_there,
    struct err *err) MUST_CHECK;
/* Adds a done id. time_ms: time of its record; now_ms: the wall clock. ERR_RETRY: a new slice has
 * no room. */
bool dedup_window_add(struct dedup_window *window, struct fingerprint hash, int64_t offset,
    int64_t time_ms, int64_t now_ms, struct err *err) MUST_CHECK;
/* Writes the added ids, and does not wait for the disk. */
bool dedup_window_flush(struct dedup_window *window, struct err *err) MUST_CHECK;
/*
 * Makes the added ids durable. offset: all records below it are done, or -1. During an alarm a call
 * makes filters anew, for 100 ms and at least one: a second for about 30 M ids. ERR_RETRY: no id is
 * forgotten, call again later; ERR_FATAL: open the window again.
 */
bool dedup_window_checkpoint(
    struct dedup_window *window, int64_t offset, struct err *err) MUST_CHECK;

void dedup_window_figures(
    const struct dedup_window *window, struct dedup_window_figures *ret_figures);
