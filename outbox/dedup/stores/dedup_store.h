#pragma once
/*
 * A store is a file with a row, struct dedup_store_type: its traits and its functions. No other
 * code compares the names of stores; dedup_stores.c lists the rows, and CONTRIBUTING.md says how to
 * add one. dedup.c keeps the ids that are pending in this process, checks ids, and hashes them; a
 * store remembers the ids that are done.
 *
 * A store that is shared between machines also claims ids: an id that `look` calls new belongs to
 * this process until `add` or `give_back`, or until its lease or its session ends.
 */
#include "dedup.h"
#include "dedup_inspection.h"
#include "fingerprint.h"
#include "dedup_spec.h"
#include "errors.h"

/* An id with a valid length. */
struct dedup_item {
	struct fingerprint hash; /* with the store's seed */
	const void *id;
	size_t length;
	int64_t time_ms; /* never beyond now */
	int64_t offset;
	size_t place; /* index in the caller's call */
};

/* Each store's struct begins with this. */
struct dedup_store {
	const struct dedup_store_type *type;
	uint64_t seed;
};

struct dedup_store_type {
	struct spec_type spec; /* the name that begins a line, and settings of struct dedup_spec */
	const char *form;      /* the value of `form` that chooses this row; NULL: only one row */
	struct outbox_dedup_promise promise; /* with the traits `lossy`, `releases`, `shared` */
	bool local;                          /* its state is in a folder, one for each partition */
	bool by_position; /* tells messages apart by the header outbox-position, not by ids */
	bool in_memory;   /* without a path the ids are forgotten when the process ends */

	/* Remembers ids forever unless the line has the setting `window`. */
	bool window_optional;

	/* Do the settings fit together, beyond dedup_spec_check? Sets the store's own defaults.
	 * NULL: nothing to check. */
	bool (*check)(struct dedup_spec *spec, struct err *err);

	/* For `dedup stat` and `dedup verify`, which read its folder; NULL and 0: it has none. */
	const char *folder; /* the store's name in the folder's head */
	unsigned files;     /* kinds of its files, as bits 1 << enum state_file_kind */
	bool (*inspect)(struct dedup_inspection *inspection, struct err *err);

	/* Opens a store with a checked spec, of which it keeps copies. Errors as
	 * outbox_dedup_open. */
	struct dedup_store *(*open)(const struct dedup_spec *spec, struct err *err);
	void (*close)(struct dedup_store *store);

	/*
	 * ret_states: one for each item. No two items are equal, and none is pending in this
	 * process. A local store answers new or done only. A claim that a failed call made lasts a
	 * lease at most, and does not stop this process from claiming the id again.
	 */
	bool (*look)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    enum outbox_dedup_state *ret_states, struct err *err);
	/* Marks the items as done. On failure (ERR_RETRY) none is done, or a later call with the
	 * same items is still right. ERR_FENCED: another process took some of them. */
	bool (*add)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    struct err *err);
	/* Releases the claims. NULL: this store claims nothing. */
	bool (*give_back)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    struct err *err);
	/* Forgets done ids; an id that is not done is no error. NULL: the store cannot forget. */
	bool (*remove)(struct dedup_store *store, const struct dedup_item *items, size_t count,
	    struct err *err);
	/* outbox_dedup_take. NULL: the store has no transactions. */
	bool (*take)(struct dedup_store *store, struct pg_conn *connection,
	    const struct dedup_item *items, size_t count, enum outbox_dedup_state *ret_states,
	    struct err *err);
	/* outbox_dedup_mark, outbox_dedup_resume. NULL: the state does not fit into a line. */
	size_t (*mark)(const struct dedup_store *store, char *ret_text, size_t size);
	bool (*resume)(struct dedup_store *store, const char *text, struct err *err);
	/* outbox_dedup_flush. NULL: nothing waits in memory. */
	bool (*flush)(struct dedup_store *store, struct err *err);
	bool (*checkpoint)(struct dedup_store *store, int64_t offset, struct err *err);
	/* Fills in the figures that the store knows, except pending and found_*. Before the call
	 * newest_ms and offset are -1, and the other figures are 0. */
	void (*stats)(const struct dedup_store *store, struct outbox_dedup_stats *stats);
};

/* The store that `dedup size` plans. */
extern const struct dedup_store_type bloom_store;
