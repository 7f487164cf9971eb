#pragma once
/*
 * What dedup.c needs of a store: one row of functions each. dedup.c keeps what is pending in this
 * process, checks ids, and hashes them; a store remembers what is done.
 *
 * A store that is shared between machines claims, too: what `look` calls new is this process's
 * until `add`, `give_back`, the end of its lease or of its session.
 */
#include "dedup.h"
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
	struct outbox_dedup_promise promise;

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

extern const struct dedup_store_type bloom_store;
extern const struct dedup_store_type exact_store;
extern const struct dedup_store_type counting_store;
extern const struct dedup_store_type bitmap_store;
extern const struct dedup_store_type bitmap_hash_store;
extern const struct dedup_store_type redis_store;
extern const struct dedup_store_type redis_bitmap_store;
extern const struct dedup_store_type redis_bloom_store;
extern const struct dedup_store_type postgres_store;
extern const struct dedup_store_type sequence_store;
