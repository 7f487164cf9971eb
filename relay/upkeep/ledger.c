#include "ledger.h"
#include <stdlib.h>
#include <string.h>
#include "schema_query.h"

static char *value_at(const struct pg_result *result, int row, int column)
{
	return xstrdup(pg_value(result, row, column));
}

static bool load_rows(struct pg *pg, const char *schema, struct ledger *ledger, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql_migration_state, NULL, 0, err);

	if (!result)
		return false;

	ledger->count = pg_rows(result);
	ledger->rows = xcalloc((size_t)ledger->count, sizeof *ledger->rows);
	for (int i = 0; i < ledger->count; i++)
		ledger->rows[i] = (struct ledger_row){
		    .version = (int)pg_int(result, i, 0),
		    .name = value_at(result, i, 1),
		    .checksum = value_at(result, i, 2),
		    .oldest_program = value_at(result, i, 3),
		    .program = value_at(result, i, 4),
		    .applied_at = value_at(result, i, 5),
		    .applied_by = value_at(result, i, 6),
		};
	return true;
}

bool ledger_load(struct pg *pg, const char *schema, struct ledger *ret_ledger, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql_migration_exists, NULL, 0, err);
	if (!result)
		return false;
	*ret_ledger = (struct ledger){.exists = text_equal(pg_value(result, 0, 0), "t")};
	return !ret_ledger->exists || load_rows(pg, schema, ret_ledger, err);
}

void ledger_finish(struct ledger *ledger)
{
	for (int i = 0; i < ledger->count; i++) {
		struct ledger_row *row = &ledger->rows[i];
		free(row->name);
		free(row->checksum);
		free(row->oldest_program);
		free(row->program);
		free(row->applied_at);
		free(row->applied_by);
	}
	free(ledger->rows);
	*ledger = (struct ledger){0};
}

const struct ledger_row *ledger_find(const struct ledger *ledger, const char *name)
{
	for (int i = 0; i < ledger->count; i++)
		if (text_equal(ledger->rows[i].name, name))
			return &ledger->rows[i];
	return NULL;
}

bool ledger_knows(const struct sql_file *files, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (text_equal(files[i].name, name))
			return true;
	return false;
}

int ledger_compare_programs(const char *a, const char *b)
{
	for (int part = 0; part < 3; part++) {
		char *a_end, *b_end;
		unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
		if (x != y)
			return x < y ? -1 : 1;
		/* A missing part counts as 0. */
		a = a_end + (*a_end == '.');
		b = b_end + (*b_end == '.');
	}
	return 0;
}

enum migration_state ledger_state(const struct ledger *ledger, const struct sql_file *file)
{
	const struct ledger_row *row = ledger_find(ledger, file->name);
	if (!row)
		return MIGRATION_PENDING;
	if (text_equal(row->checksum, file->checksum))
		return MIGRATION_APPLIED;
	return file->version ? MIGRATION_CHANGED : MIGRATION_PENDING;
}

bool ledger_accepts(const struct ledger *ledger, const struct sql_file *files, int count,
    const char *program, struct err *err)
{
	for (int i = 0; i < ledger->count; i++) {
		const struct ledger_row *row = &ledger->rows[i];
		/* A newer program's migration may have changed what this program relies on. */
		if (!ledger_knows(files, count, row->name) &&
		    ledger_compare_programs(program, row->oldest_program) < 0)
			return err_set(err, ERR_CONFIG,
			    "migration %s, applied by outbox-relay %s, needs outbox-relay %s or "
			    "newer and this is %s; upgrade this program",
			    row->name, row->program, row->oldest_program, program);
	}

	for (int i = 0; i < count; i++) {
		if (ledger_state(ledger, &files[i]) != MIGRATION_CHANGED)
			continue;
		const struct ledger_row *row = ledger_find(ledger, files[i].name);
		return err_set(err, ERR_CONFIG,
		    "sql/migrations/%s.sql is not the file that outbox-relay %s applied on %s "
		    "(checksum %.12s there, %.12s here); put the file back as it was and write the "
		    "change as a new migration",
		    row->name, row->program, row->applied_at, row->checksum, files[i].checksum);
	}
	return true;
}

static bool may_repeat(const struct ledger *ledger, const struct sql_file *files, int count,
    const struct sql_file *file, const char *program)
{
	const struct ledger_row *row = ledger_find(ledger, file->name);
	if (row && ledger_compare_programs(row->program, program) > 0)
		return false;
	/* A repeatable file of ours could undo what that unknown migration has set up. */
	for (int i = 0; i < ledger->count; i++)
		if (!ledger_knows(files, count, ledger->rows[i].name))
			return false;
	return true;
}

const struct sql_file *ledger_next(const struct ledger *ledger, const struct sql_file *files,
    int count, const char *program, bool repeatable)
{
	for (int i = 0; i < count; i++) {
		const struct sql_file *file = &files[i];
		if (ledger_state(ledger, file) != MIGRATION_PENDING)
			continue;
		if (file->version ||
		    (repeatable && may_repeat(ledger, files, count, file, program)))
			return file;
	}
	return NULL;
}
