#pragma once
/*
 * Gives a publisher another number of shards while relays run. The shards drain to one snapshot;
 * then the new ones begin.
 */
#include "database.h"

struct publisher_split {
	const struct postgres_settings *postgres;
	struct pg *pg; /* the caller's, and replaced when it is lost during a cancellation */
	const char *publisher;
	int shards;
	int64_t owners_ms;  /* how long shards may be without an owner before it is refused */
	int64_t timeout_ms; /* then the split is cancelled */
	/* Waits ms milliseconds between two looks. True: the split is cancelled. NULL: only waits.
	 */
	bool (*wait)(void *context, int64_t behind, int64_t since_ms, int ms);
	void *context;
};

/* Blocks. Whatever ends the wait early cancels the split: the publisher goes on as before. */
bool publisher_split_run(struct publisher_split *split, struct err *err) MUST_CHECK;
/* Ends a split whose process was killed. *ret_changed: false: no split was under way. */
bool publisher_split_cancel(
    struct publisher_split *split, bool *ret_changed, struct err *err) MUST_CHECK;
