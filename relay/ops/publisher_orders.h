#pragma once
/* Orders about a publisher that commands and the HTTP interface share. */
#include "database.h"
#include "moment.h"

/* The question that is answered before a rebase. */
extern const char publisher_rebase_question[];

/*
 * Pauses or resumes the publisher, or one topic of it; the owners of its shards heed it within a
 * second. topic NULL: the whole publisher. caller: of the HTTP interface; NULL: none. *ret_audit:
 * the id in outbox.audit; 0: it was paused, or not paused, before. False: *err says why.
 */
struct publisher_pause {
	const char *publisher, *topic, *reason, *caller;
	bool pauses;
};
bool publisher_pause(struct pg *pg, const struct postgres_settings *postgres,
    const struct publisher_pause *order, int64_t *ret_audit, struct err *err) MUST_CHECK;

/*
 * A new publisher. start: now, beginning or a moment, in the form that publisher_start_read makes.
 * reason NULL: none is stored.
 */
struct publisher_creation {
	const char *publisher, *start, *reason, *caller;
	int shards;
	int64_t audit; /* result: the id in outbox.audit; 0: none */
};
bool publisher_start_read(
    const char *text, char ret_start[MOMENT_SIZE], struct err *err) MUST_CHECK;
/* May this text be its name? */
bool publisher_name_check(const char *name, struct err *err) MUST_CHECK;
/* ERR_REJECT: its name is taken, or its start does not fit the database. */
bool publisher_create(struct pg *pg, const struct postgres_settings *postgres,
    struct publisher_creation *creation, struct err *err) MUST_CHECK;

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
