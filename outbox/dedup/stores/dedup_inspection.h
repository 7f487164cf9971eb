#pragma once
/*
 * The results of inspecting the folder of a local store (dedup_inspect.h), and the calls for the
 * function `inspect` of a store, which inspects one file, reports its faults, and ends the part.
 */
#include "dedup_map_view.h"
#include "state_folder_view.h"

/* A slice with its files, or a piece of a bitmap, or the file of an offset. */
struct dedup_part {
	const struct state_file *file; /* the log, or the only file */
	uint64_t ids, released;        /* ids that it has; entries of releases (store `exact`) */
	uint64_t bytes, map_bytes;     /* size of the file, and of the map of a log */
	int64_t slice_ms;              /* its times begin at number * slice_ms; 0: it has none */
	int64_t offset;                /* the largest durable offset; -1: none */
	int64_t first_ms, last_ms;     /* times of its records; INT64_MAX, INT64_MIN: not known */
	double false_rate; /* share of new ids that its bits take for done; -1: not known */
	int counter_bits;  /* width of its counters; 0: it has none */
	uint64_t counters, saturated; /* their number; those that are at their maximum */
	bool has_map;                 /* files of its kind have a map */
	enum dedup_map_use use;
	bool damaged; /* it has a finding that is not harmless */
};

struct dedup_finding {
	const char *file;
	int64_t byte;  /* offset of the fault in the file; DEDUP_WHOLE_FILE: all of it */
	bool harmless; /* nothing is lost: opening the store repairs it */
	const char *what;
};

struct dedup_inspector {
	/* Each may be NULL. Arguments are valid during the call; the findings of a part come before
	 * the part. */
	void (*folder)(void *context, const struct state_folder_view *folder);
	void (*part)(void *context, const struct dedup_part *part);
	void (*found)(void *context, const struct dedup_finding *finding);
	void *context;
};

struct dedup_inspection {
	const struct dedup_inspector *to;
	const struct state_folder_view *folder;
	bool compare;                 /* is each id of a log in its map? */
	bool live;                    /* a process has the folder open */
	struct dedup_part part;       /* part.file is the file to inspect */
	const struct state_file *map; /* the map of a log; NULL: none */
};

enum { DEDUP_WHOLE_FILE = -1 };

/* Reports a finding. byte: offset of the fault in the file, or DEDUP_WHOLE_FILE. */
void dedup_inspection_report(struct dedup_inspection *inspection, const char *file, int64_t byte,
    bool harmless, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Reports that the part's file belongs to no store, or to another one. */
void dedup_inspection_report_foreign(struct dedup_inspection *inspection);
/* Judges errno. True: the file does not exist, because its slice ended and it was removed. */
bool dedup_inspection_fail_unless_gone(const char *name, struct err *err) MUST_CHECK;
/* Hands the part to the inspector. */
void dedup_inspection_end_part(struct dedup_inspection *inspection);
