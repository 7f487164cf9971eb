#include <stdio.h>
#include "commands.h"
#include "migrate.h"
#include "session.h"
#include "text.h"

struct applied {
	int count;
	bool is_new; /* the schema was not there before */
};

static void print_applied(void *context, const char *name)
{
	struct applied *applied = context;

	applied->count++;
	/* the first migration is applied only where the schema was missing */
	applied->is_new |= text_starts(name, "0001_");
	printf("applied %s\n", name);
	/* a long migration may follow, and somebody may be watching */
	fflush(stdout);
}

/* The roles, topics and commands that a new schema needs before it publishes. */
static void print_next_steps(bool no_roles)
{
	puts("\nNext steps:");
	if (no_roles)
		puts("  1. Create the roles and grants of your own: `outbox-relay migrate print` "
		     "ends "
		     "with those\n     that this command left out.");
	else
		puts("  1. In this database, create a login for the relay, and let the "
		     "application's role (here shop) write:\n"
		     "       psql \"$DATABASE_URL\" -c \"create role relay login password '...' in "
		     "role outbox_relay\"\n"
		     "       psql \"$DATABASE_URL\" -c \"grant outbox_writer to shop\"");

	puts("  2. Create the topics in Kafka.\n"
	     "  3. With the relay's login in DATABASE_URL, and the brokers in\n"
	     "     OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS:\n"
	     "       outbox-relay doctor\n"
	     "       outbox-relay run");
}

static bool migrate_database(struct session *session, struct err *err)
{
	struct applied applied = {0};
	const struct migrate_options options = {.schema = session->postgres->schema,
	    .no_roles = call_flag(session->call, "no-roles"),
	    .max_message_bytes = call_number(session->call, "max-message-bytes", 0),
	    .applied = print_applied,
	    .context = &applied};

	if (!migrate_up(session->pg, &options, err))
		return false;

	/* an upgrade needs none of these steps again */
	if (applied.is_new)
		print_next_steps(options.no_roles);
	if (applied.count == 0)
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
	"Leaves out roles and grants: for a role without CREATEROLE, or a policy of your own."},
    {"max-message-bytes", "N",
	"Maximum size of a payload (default 1000000 for a new schema, else unchanged).", 1,
	1000000000},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_migrate_up = {
    .name = "migrate up",
    .arguments = "",
    .summary = "Brings the database's schema up to this program's version.",
    .description =
	"Each migration file runs in one transaction and is recorded with its checksum, so a "
	"second run, even at the same time, applies nothing twice. After creating a new schema "
	"the command prints the next steps: which login needs which role. It needs a role that "
	"may create the schema or owns it, but no superuser. The key `schema` of the [postgres] "
	"section names the schema.\n"
	"It refuses a file that was changed after it was applied, and a schema that needs a "
	"newer program.\n",
    .options = migrate_up_options,
    .example = "outbox-relay migrate up --config relay.ini",
    .no_server = "it needs the login of the schema's owner; call it with that login",
    .run = run_migrate_up,
};
