#pragma once
/*
 * What a look at the folder of a local store tells (dedup_inspect.h), and what the function
 * `inspect` of a store has to do it with: it looks at one file, reports what is wrong with it, and
 * ends the part.
 */
#include "dedup_map_view.h"
#include "state_folder_view.h"

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

struct dedup_inspection {
	const struct dedup_inspector *to;
	const struct state_folder_view *folder;
	bool compare;                 /* is each id of a log in its map? */
	bool live;                    /* a process has the folder open */
	struct dedup_part part;       /* its file is the one to look at */
	const struct state_file *map; /* of the same slice as a log; NULL: there is none */
};

enum { DEDUP_WHOLE_FILE = -1 };

/* byte: at which the fault begins, or DEDUP_WHOLE_FILE. */
void dedup_inspection_report(struct dedup_inspection *inspection, const char *file, int64_t byte,
    bool harmless, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The file is of no store, or of another one. */
void dedup_inspection_report_foreign(struct dedup_inspection *inspection);
/* By errno. True: the file is gone, since its slice was over. */
bool dedup_inspection_fail_unless_gone(const char *name, struct err *err) MUST_CHECK;
void dedup_inspection_end_part(struct dedup_inspection *inspection);
