#pragma once
/*
 * A store is a file with a row, struct dedup_store_type: its traits and its functions. Nobody else
 * compares the names of stores; the list of the rows is dedup_stores.c, and CONTRIBUTING.md says
 * how to add one. dedup.c keeps what is pending in this process, checks ids, and hashes them; a
 * store remembers what is done.
 *
 * A store that is shared between machines claims, too: what `look` calls new is this process's
 * until `add`, `give_back`, the end of its lease or of its session.
 */
#include "dedup.h"
#include "dedup_inspection.h"
#include "fingerprint.h"
#include "dedup_spec.h"
#include "errors.h"

/* An id that was checked: not empty, not too long. */
struct dedup_item {
	struct fingerprint hash; /* with the store's seed */
	const void *id;
	size_t length;
	int64_t time_ms; /* never beyond now */
	int64_t offset;
	size_t place; /* in the caller's row */
};

/* Each store's struct begins with this. */
struct dedup_store {
	const struct dedup_store_type *type;
	uint64_t seed;
};

struct dedup_store_type {
	struct spec_type spec; /* a line begins with its name; the settings of struct dedup_spec */
	const char *form;      /* NULL: the name says it; else one of the rows of this name */
	struct outbox_dedup_promise promise; /* with the traits `lossy`, `releases`, `shared` */
	bool local;                          /* its state is in a folder, of one partition each */
	bool by_position; /* it goes by the header outbox-position, and not by ids */
	bool in_memory;   /* without a path the ids are forgotten when the process ends */

	/* Does the spec fit together, beyond what dedup_spec_check sees? NULL: always. */
	bool (*check)(struct dedup_spec *spec, struct err *err);

	/* `dedup stat` and `dedup verify` of its folder; NULL: it has none, or none of its own. */
	const char *folder; /* its name in the folder's head */
	unsigned files;     /* kinds of files that it has there, by bits of enum state_file_kind */
	bool (*inspect)(struct dedup_inspection *inspection, struct err *err);

	/* The spec was checked; what is kept of it is copied. Errors as outbox_dedup_open. */
	struct dedup_store *(*open)(const struct dedup_spec *spec, struct err *err);
	void (*close)(struct dedup_store *store);

	/*
	 * ret_states: of each item, no two of which are equal and none of which is pending in this
	 * process. A local store says new or done only. What was claimed before a failure is
	 * claimed for a lease at most, and not from this process.
	 */
	bool (*look)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    enum outbox_dedup_state *ret_states, struct err *err);
	/* They are done. On failure (ERR_RETRY) none is, or a later call with the same items is
	 * right all the same. ERR_FENCED: they are somebody else's. */
	bool (*add)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    struct err *err);
	/* What was claimed is nobody's again. NULL: this store claims nothing. */
	bool (*give_back)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    struct err *err);
	/* What is done is forgotten; what is not, is no error. NULL: it cannot. */
	bool (*remove)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    struct err *err);
	/* outbox_dedup_take. NULL: it has no transactions. */
	bool (*take)(struct dedup_store *store, struct pg_conn *connection,
	    const struct dedup_item *items, size_t count, enum outbox_dedup_state *ret_states,
	    struct err *err);
	/* outbox_dedup_mark, outbox_dedup_resume. NULL: it is no matter of a line. */
	size_t (*mark)(const struct dedup_store *store, char *ret_text, size_t size);
	bool (*resume)(struct dedup_store *store, const char *text, struct err *err);
	/* outbox_dedup_flush. NULL: nothing waits in memory. */
	bool (*flush)(struct dedup_store *store, struct err *err);
	bool (*checkpoint)(struct dedup_store *store, int64_t offset, struct err *err);
	/* Adds what it knows: all but pending and found_*. newest_ms and offset begin with -1. */
	void (*stats)(const struct dedup_store *store, struct outbox_dedup_stats *stats);
};

/* The filter that `dedup size` plans. */
extern const struct dedup_store_type bloom_store;
