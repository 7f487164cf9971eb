#include <stdio.h>
#include "commands.h"
#include "migrate.h"
#include "session.h"

static int run_migrate_print(const struct call *call)
{
	struct err err;
	OWNED(text_finish) struct text out = {0};
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	const struct postgres_settings *postgres =
	    config ? session_postgres(call, config, &err) : NULL;
	struct migrate_options options = {.no_roles = call_flag(call, "no-roles"),
	    .max_message_bytes = call_number(call, "max-message-bytes", 0)};

	if (!postgres)
		return session_failed(&err);
	options.schema = postgres->schema;
	if (!migrate_print(&options, &out, &err))
		return session_failed(&err);
	fputs(text_string(&out), stdout);
	return 0;
}

static const struct command_option migrate_print_options[] = {
    {"no-roles", NULL, "Leaves out roles and grants."},
    {"max-message-bytes", "N", "Maximum size of a payload (default 1000000).", 1, 1000000000},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_migrate_print = {
    .name = "migrate print",
    .arguments = "",
    .summary = "Prints the whole schema as a script for psql.",
    .description =
	"Use it where somebody else applies changes to the database. The script records the "
	"migrations it applies, so that a later `migrate up` continues after them. The command "
	"connects to nothing.\n",
    .options = migrate_print_options,
    .example = "outbox-relay migrate print --no-roles",
    .run = run_migrate_print,
};
