#pragma once
/*
 * Reads outbox.migration and decides what follows from its rows. Internal to relay/upkeep. Pure
 * except for ledger_load, so that each refusal is tested without a database.
 */
#include "migrate.h"
#include "sql_files.h"

struct ledger_row {
	int version; /* 0: repeatable */
	char *name, *checksum, *oldest_program, *program, *applied_at, *applied_by;
};

struct ledger {
	bool exists; /* the table does */
	struct ledger_row *rows;
	int count;
};

/* On failure there is nothing to finish. */
bool ledger_load(
    struct pg *pg, const char *schema, struct ledger *ret_ledger, struct err *err) MUST_CHECK;
void ledger_finish(struct ledger *ledger);

const struct ledger_row *ledger_find(const struct ledger *ledger, const char *name);
bool ledger_knows(const struct sql_file *files, int count, const char *name);

/* "0.10.0" is newer than "0.9.1": <0, 0, >0 as a is older than, the same as, newer than b. */
int ledger_compare_programs(const char *a, const char *b);

/* Not NEWER, which no file of ours is. */
enum migration_state ledger_state(const struct ledger *ledger, const struct sql_file *file);

/* False when a program of this version with these files must not touch or use the database. */
bool ledger_accepts(const struct ledger *ledger, const struct sql_file *files, int count,
    const char *program, struct err *err) MUST_CHECK;

/*
 * The file to apply next, NULL when there is none. A repeatable one is left alone when a newer
 * program applied it or a newer one's files are there: programs of two versions must not undo each
 * other's work.
 */
const struct sql_file *ledger_next(const struct ledger *ledger, const struct sql_file *files,
    int count, const char *program, bool repeatable);
