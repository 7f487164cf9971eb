#pragma once
/*
 * Migrations: the files of sql/migrations applied to a database, each in a transaction of its own
 * and recorded in outbox.migration with its checksum. Safe to run twice and by two at once: each
 * transaction locks that table, and nothing outlives a transaction, so PgBouncer may be between.
 *
 * Refused, with one line that names the file and the cure (ERR_CONFIG): a file that was changed
 * after it was applied, and a database migrated by a newer program, unless each file that this
 * program does not know says that this program may run on it (`-- oldest-program: X.Y.Z`).
 *
 * All calls block, on the caller's connection, which must be idle.
 */
#include "pg.h"
#include "text.h"

struct migrate_options {
	const char *schema;
	bool no_roles;             /* leave out roles.sql: the operator manages roles and grants */
	int64_t max_message_bytes; /* 0: unchanged (1,000,000 at first) */
	/* called for each file after its commit; NULL is fine */
	void (*applied)(void *context, const char *name);
	void *context;
};

/*
 * Applies the missing files; none missing is fine. Files that were committed before a failure stay.
 */
bool migrate_up(struct pg *pg, const struct migrate_options *options, struct err *err) MUST_CHECK;

/* For start and doctor: false when this program cannot run on the schema as it is. */
bool migrate_check(struct pg *pg, const char *schema, struct err *err) MUST_CHECK;

enum migration_state {
	MIGRATION_APPLIED,
	MIGRATION_PENDING,
	MIGRATION_CHANGED, /* numbered, and not the file that was applied */
	MIGRATION_NEWER,   /* applied by a newer program, unknown to this one */
};
const char *migration_state_name(enum migration_state state);

struct migration {
	char *name;
	enum migration_state state;
	char *applied_at, *applied_by, *program; /* "" when pending */
};
/* In the order of application; *ret_list is malloc'ed, migrate_list_free frees it. */
bool migrate_list(struct pg *pg, const char *schema, struct migration **ret_list, int *ret_count,
    struct err *err) MUST_CHECK;
void migrate_list_free(struct migration *list, int count);

/*
 * The whole of it as a script for psql and a database without the schema. It records what it does,
 * so that `migrate up` can go on from there. `applied` of the options is not used.
 */
bool migrate_print(
    const struct migrate_options *options, struct text *out, struct err *err) MUST_CHECK;
