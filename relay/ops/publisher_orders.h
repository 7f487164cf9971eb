#pragma once
/* Orders about a publisher that commands and the HTTP interface share. */
#include "database.h"

/* The question that is answered before a rebase. */
extern const char publisher_rebase_question[];

/*
 * Pauses or resumes the publisher; the owners of its shards heed it within a second. caller: of the
 * HTTP interface; NULL: none. *ret_audit: the id in outbox.audit; 0: it was paused, or not paused,
 * before. False: *err says why.
 */
struct publisher_pause {
	const char *publisher, *reason, *caller;
	bool pauses;
};
bool publisher_pause(struct pg *pg, const struct postgres_settings *postgres,
    const struct publisher_pause *order, int64_t *ret_audit, struct err *err) MUST_CHECK;

/* A rebase of all publishers of a database. caller: as above. */
struct publisher_rebase {
	const char *reason, *caller;
	bool new_identity;
	int64_t audit, restamped; /* results: the id in outbox.audit; rows that were changed */
};
/* One transaction. ERR_RETRY: a lock; nothing was changed. */
bool publisher_rebase(struct pg *pg, const struct postgres_settings *postgres,
    struct publisher_rebase *order, struct err *err) MUST_CHECK;
/* Its plan, a row for each publisher: rebase_plan.sql. NULL: *err says why. */
struct pg_result *publisher_rebase_plan(
    struct pg *pg, const struct postgres_settings *postgres, struct err *err);
