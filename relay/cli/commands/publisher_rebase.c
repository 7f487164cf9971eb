/* Everything happens in one transaction; sql/migrations/0008_rebase.sql explains how and why. */
#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "confirm.h"
#include "publisher_orders.h"
#include "session.h"
#include "sql_files.h"
#include "text.h"

/*
 * A row has one transaction id, and every publisher compares it with its own progress: no publisher
 * can be rebased without the others. A name alone is enough while there is one publisher.
 */
static bool check_rebase_scope(const struct session *session, struct err *err)
{
	const char *name = session->call->argument_count ? session->call->arguments[0] : NULL;
	OWNED(owned_pg_result_destroy)
	struct pg_result *publishers =
	    database_query(session->pg, session->postgres, sql_publishers, NULL, 0, err);
	bool known = false;

	if (!publishers)
		return false;
	for (int i = 0; i < pg_rows(publishers); i++)
		known |= name && text_equal(pg_value(publishers, i, 0), name);
	if (name && !known)
		return err_set(
		    err, ERR_REJECT, "there is no publisher %s in %s", name, pg_place(session->pg));
	if (call_flag(session->call, "all") || (name && pg_rows(publishers) == 1))
		return true;
	return err_set(err, ERR_REJECT,
	    "a row has one transaction id for all publishers, and %d are there: repeat with --all",
	    pg_rows(publishers));
}

static void print_publisher(const struct pg_result *plan, int row, bool new_identity)
{
	printf("publisher %s: %s, rows to publish: %s, identity %s %s\n", pg_value(plan, row, 0),
	    text_equal(pg_value(plan, row, 1), "t") ? "carried here" : "written here",
	    pg_value(plan, row, 2), pg_value(plan, row, 3),
	    new_identity ? "becomes another" : "stays (its original must publish no more)");
}

static bool print_plan(const struct session *session, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *plan = publisher_rebase_plan(session->pg, session->postgres, err);

	for (int i = 0; plan && i < pg_rows(plan); i++)
		if (pg_is_null(plan, i, 0))
			printf("rows that every publisher has published, and that only get another "
			       "transaction id: %s\n",
			    pg_value(plan, i, 2));
		else
			print_publisher(plan, i, call_flag(session->call, "new-identity"));
	return plan != NULL;
}

static bool carry_out(const struct session *session, struct err *err)
{
	struct publisher_rebase order = {.reason = confirm_reason(session->call),
	    .new_identity = call_flag(session->call, "new-identity")};

	if (!publisher_rebase(session->pg, session->postgres, &order, err))
		return false;
	printf("rebased: rows with another transaction id: %" PRId64
	       "; every publisher has a new epoch%s (outbox.audit %" PRId64 ")\n",
	    order.restamped, order.new_identity ? " and a new identity" : "", order.audit);
	return true;
}

static bool rebase_all(struct session *session, struct err *err)
{
	bool dry = call_flag(session->call, "dry-run"), sure = call_flag(session->call, "yes");

	if (!check_rebase_scope(session, err))
		return false;
	if (dry)
		return print_plan(session, err);
	if (!sure && (!print_plan(session, err) || !confirm_ask(publisher_rebase_question, err)))
		return false;
	return carry_out(session, err);
}

static int run_publisher_rebase(const struct call *call)
{
	return session_run(call, confirm_check, rebase_all);
}

static const struct command_option publisher_rebase_options[] = {
    {"all", NULL,
	"Changes every publisher of the database; required if there are several, or "
	"none."},
    {"new-identity", NULL,
	"Gives each publisher an identity of its own: for a copy whose original continues to "
	"publish."},
    CONFIRM_OPTIONS,
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_publisher_rebase = {
    .name = "publisher rebase",
    .arguments = "[NAME]",
    .most_arguments = 1,
    .summary = "Makes a restored or copied database publish again.",
    .description =
	"Rows that came with a dump or by logical replication have transaction ids of another "
	"database cluster, and the relay publishes nothing from such a database. The command "
	"gives new transaction ids to the rows that a publisher has not published, and to rows "
	"whose ids would mean something else here, and begins a new epoch for every shard. "
	"Afterwards the publishers publish the rows that their logs do not call published, by "
	"id, and repeat no other row. Parked messages stay parked. A running split is cancelled, "
	"and unfinished replays end.\n"
	"A row has one transaction id for all publishers, so the command changes all publishers; "
	"a NAME alone is enough only if there is one. It runs one transaction that reads the "
	"whole message table and rewrites those rows, while writers continue. A relay may run.\n"
	"It is refused (65) while a process owns a publisher, and, without --new-identity, in a "
	"database that was not restored or copied. The server's clock must not be behind the "
	"clock of the server that the dump comes from.\n"
	"A publisher's identity is part of the position of each of its records, and of its "
	"transactional ids. A rebase keeps the identity, so that the publisher finds the records "
	"that it had sent and not noted. An original and its copy must not both publish with one "
	"identity. With --new-identity the publishers of the copy get identities of their own "
	"and a new epoch, and treat all records in Kafka as those of another database. That also "
	"works for a copy of the disk and for a copy in the same cluster, where it changes no "
	"row. Rows that the original had not published when it was copied are published by "
	"both.\n",
    .options = publisher_rebase_options,
    .example = "outbox-relay publisher rebase billing --dry-run",
    .run = run_publisher_rebase,
};
