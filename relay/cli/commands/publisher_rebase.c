/* Everything happens in one transaction; sql/migrations/0008_rebase.sql explains how and why. */
#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "confirm.h"
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
	printf("publisher %s: %s, %s rows to be published, identity %s %s\n",
	    pg_value(plan, row, 0),
	    text_equal(pg_value(plan, row, 1), "t") ? "carried here" : "written here",
	    pg_value(plan, row, 2), pg_value(plan, row, 3),
	    new_identity ? "becomes another" : "stays (its original must publish no more)");
}

static bool print_plan(const struct session *session, struct err *err)
{
	OWNED(owned_pg_result_destroy) struct pg_result *plan = NULL;

	if (!pg_script(session->pg, sql_rebase_begin, err))
		return false;
	plan = database_query(session->pg, session->postgres, sql_rebase_plan, NULL, 0, err);
	for (int i = 0; plan && i < pg_rows(plan); i++)
		if (pg_is_null(plan, i, 0))
			printf(
			    "published by every publisher, and only given another transaction id: "
			    "%s rows\n",
			    pg_value(plan, i, 2));
		else
			print_publisher(plan, i, call_flag(session->call, "new-identity"));
	return plan && pg_script(session->pg, "commit", err);
}

static bool carry_out(const struct session *session, struct err *err)
{
	bool new_identity = call_flag(session->call, "new-identity");
	const struct pg_param params[] = {
	    {confirm_reason(session->call)}, {new_identity ? "t" : "f"}};
	OWNED(owned_pg_result_destroy) struct pg_result *done = NULL;

	if (!pg_script(session->pg, sql_rebase_begin, err))
		return false;
	done = database_query(session->pg, session->postgres, sql_rebase, params, 2, err);
	if (!done && (text_equal(pg_sqlstate(session->pg), "55P03") ||
			 text_equal(pg_sqlstate(session->pg), "23505")))
		return err_set(err, ERR_RETRY,
		    "upkeep, or somebody else, was at work on the table or the log, and nothing "
		    "was "
		    "done: repeat the call");
	if (!done || !pg_script(session->pg, "commit", err))
		return false;
	printf("rebased: %s rows have another transaction id, every publisher a new epoch%s "
	       "(outbox.audit %s)\n",
	    pg_value(done, 0, 1), new_identity ? " and a new identity" : "", pg_value(done, 0, 0));
	return true;
}

static bool rebase_all(struct session *session, struct err *err)
{
	bool dry = call_flag(session->call, "dry-run"), sure = call_flag(session->call, "yes");

	if (!check_rebase_scope(session, err))
		return false;
	if (dry)
		return print_plan(session, err);
	if (!sure && (!print_plan(session, err) || !confirm_ask("Rebase all publishers?", err)))
		return false;
	return carry_out(session, err);
}

static int run_publisher_rebase(const struct call *call)
{
	return session_run(call, confirm_check, rebase_all);
}

static const struct command_option publisher_rebase_options[] = {
    {"all", NULL, "Every publisher of the database. Needed where there are several, or none."},
    {"new-identity", NULL,
	"For a copy whose original goes on publishing: each publisher gets an identity of its "
	"own."},
    CONFIRM_OPTIONS,
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_publisher_rebase = {
    .name = "publisher rebase",
    .arguments = "[NAME]",
    .most_arguments = 1,
    .summary = "Goes on after a dump was restored, or makes a copy independent of its original.",
    .description =
	"Rows that a dump or logical replication carried here have transaction ids of another "
	"database cluster, and the relay publishes nothing of such a database. This gives new ones "
	"to the rows that a publisher has not published, and to those whose own would mean "
	"something "
	"else here, and begins a new epoch for every shard: what no publisher had published by its "
	"log comes next, by id, and nothing else comes again. Parked messages stay parked, a split "
	"under way is cancelled, replays that had not finished are over.\n"
	"A row has one transaction id for all publishers, so it is done for all of them: a NAME "
	"alone "
	"is "
	"enough only where there is one publisher. It is one transaction that reads the whole "
	"message table and rewrites those rows; writers go on meanwhile. A relay may run.\n"
	"Refused (65) in a database that nothing was carried into, unless --new-identity is given, "
	"and while a publisher is owned. The clock of the server must not be behind the one that "
	"the "
	"dump comes from.\n"
	"A publisher's identity is in the position of each of its records, and in its "
	"transactional "
	"ids. A rebase keeps it, so that the publisher finds what it had sent and not noted; two "
	"databases of which one is a copy of the other must not both publish with it. With "
	"--new-identity the publishers of the copy get identities of their own, and a new epoch: "
	"to "
	"them all records in Kafka are those of another database. It works for a copy of the disk "
	"and for one in the same cluster as well, where it changes no row. Rows that the original "
	"had not published when it was copied come from both.\n",
    .options = publisher_rebase_options,
    .example = "outbox-relay publisher rebase billing --dry-run",
    .run = run_publisher_rebase,
};
