#include <stdio.h>
#include "commands.h"
#include "migrate.h"
#include "session.h"

static void print_applied(void *context, const char *name)
{
	int *count = context;

	(*count)++;
	printf("applied %s\n", name);
	fflush(stdout);
}

static bool migrate_database(struct session *session, struct err *err)
{
	int count = 0;
	const struct migrate_options options = {.schema = session->postgres->schema,
	    .no_roles = call_flag(session->call, "no-roles"),
	    .max_message_bytes = call_number(session->call, "max-message-bytes", 0),
	    .applied = print_applied,
	    .context = &count};

	if (!migrate_up(session->pg, &options, err))
		return false;
	if (count == 0)
		printf("nothing to do: schema %s of %s is up to date\n", options.schema,
		    pg_place(session->pg));
	return true;
}

static int run_migrate_up(const struct call *call)
{
	return session_run(call, NULL, migrate_database);
}

static const struct command_option migrate_up_options[] = {
    {"no-roles", NULL,
	"Leave out roles and grants: for a role without CREATEROLE, or a policy of your own."},
    {"max-message-bytes", "N",
	"The most that the payload of a row may weigh; 1000000 at first, "
	"then as it is.",
	1, 1000000000},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_migrate_up = {
    .name = "migrate up",
    .arguments = "",
    .summary = "Brings the database's schema up to this program.",
    .description =
	"Each file is one transaction, recorded with its checksum; a second run, also at the same "
	"time, does nothing twice. Needs a role that may create the schema, or owns it; no "
	"superuser. "
	"The schema's name is the setting `schema` of the [postgres] section.\n"
	"Refused: a file that was changed after it was applied, and a schema that needs a newer "
	"program.\n",
    .options = migrate_up_options,
    .example = "outbox-relay migrate up --config relay.ini",
    .run = run_migrate_up,
};
