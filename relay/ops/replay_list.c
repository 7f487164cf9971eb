#include <stdio.h>
#include "replay_row.h"
#include "database.h"
#include "sql_files.h"

/* Columns of replay_list.sql. */
enum {
	LIST_ID,
	LIST_CREATED,
	LIST_ASKED_BY,
	LIST_REASON,
	LIST_PUBLISHER,
	LIST_FILTER,
	LIST_TARGET,
	LIST_STATE,
	LIST_DONE,
	LIST_TOTAL,
	LIST_LAST_ID,
	LIST_UPTO_ID,
	LIST_OWNER
};

static void print_replay_row(const struct pg_result *rows, int i)
{
	const char *target = pg_value(rows, i, LIST_TARGET);
	const char *reason = pg_value(rows, i, LIST_REASON);
	const char *state = pg_value(rows, i, LIST_STATE);

	printf("replay %s: %s, %s of %s rows, id %s of %s, to %s\n", pg_value(rows, i, LIST_ID),
	    state, pg_value(rows, i, LIST_DONE), pg_value(rows, i, LIST_TOTAL),
	    pg_value(rows, i, LIST_LAST_ID), pg_value(rows, i, LIST_UPTO_ID),
	    *target ? target : "their own topics");
	printf("  filter %s, publisher %s\n", pg_value(rows, i, LIST_FILTER),
	    pg_value(rows, i, LIST_PUBLISHER));
	printf("  asked by %s at %s%s%s\n", pg_value(rows, i, LIST_ASKED_BY),
	    pg_value(rows, i, LIST_CREATED), *reason ? ": " : "", reason);
	if (text_equal(state, "running"))
		printf("  run by %s\n", pg_value(rows, i, LIST_OWNER));
}

bool replay_print_list(struct pg *pg, const struct config_postgres *postgres, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(pg, postgres, sql_replay_list, NULL, 0, err);

	if (!rows)
		return false;
	for (int i = 0; i < pg_rows(rows); i++)
		print_replay_row(rows, i);
	if (pg_rows(rows) == 0)
		puts("there was no replay");
	return true;
}
