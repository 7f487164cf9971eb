#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "migrate.h"
#include "session.h"

static json_t *migration_json(const struct migration *migration)
{
	bool applied = migration->applied_at[0];

	return json_pack("{s:s, s:s, s:s?, s:s?, s:s?}", "state",
	    migration_state_name(migration->state), "name", migration->name, "applied_at",
	    applied ? migration->applied_at : NULL, "applied_by",
	    applied ? migration->applied_by : NULL, "program", applied ? migration->program : NULL);
}

static bool print_migrations(struct session *session, struct err *err)
{
	struct migration *list = NULL;
	int count = 0, undone = 0;
	json_t *json;

	if (!migrate_list(session->pg, session->postgres->schema, &list, &count, err))
		return false;
	json = call_flag(session->call, "json") ? json_array() : NULL;
	for (int i = 0; i < count; i++) {
		/* migrations of a newer program do not count: this one cannot apply them */
		undone += list[i].state == MIGRATION_PENDING || list[i].state == MIGRATION_CHANGED;
		if (json) {
			json_array_append_new(json, migration_json(&list[i]));
			continue;
		}
		printf("%-8s  %-20s", migration_state_name(list[i].state), list[i].name);
		if (list[i].applied_at[0])
			printf("  %s by %s with %s", list[i].applied_at, list[i].applied_by,
			    list[i].program);
		putchar('\n');
	}
	if (json)
		field_print_json("", json, JSON_INDENT(1), "\n");
	migrate_list_free(list, count);
	session->status = undone > 0 ? EXIT_FOUND : 0;
	return true;
}

static int run_migrate_status(const struct call *call)
{
	return session_run(call, NULL, print_migrations);
}

static const struct command_option migrate_status_options[] = {
    {"json", NULL, "Prints a JSON array with an object for each migration."},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_migrate_status = {
    .name = "migrate status",
    .arguments = "",
    .summary = "Lists the migrations and the state of each.",
    .description = "Exits with 1 if a migration is pending, or was changed after it was applied.\n",
    .options = migrate_status_options,
    .example = "outbox-relay migrate status --config relay.ini",
    .no_server = "it compares the schema with this program; call it with a login of the database",
    .run = run_migrate_status,
};
