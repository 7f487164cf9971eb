/*
 * Everything happens in one transaction; sql/migrations/0008_rebase.sql explains how and why. Begin
 * at rebase_all for the database, and at rebase_over_server for --server.
 */
#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "confirm.h"
#include "field.h"
#include "publisher_call.h"
#include "publisher_orders.h"
#include "server.h"
#include "session.h"
#include "sql_files.h"
#include "text.h"

#define REBASE_SCOPE                                                                               \
	"a row has one transaction id for all publishers, and %d are there: repeat with --all"

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
	return err_set(err, ERR_REJECT, REBASE_SCOPE, pg_rows(publishers));
}

struct plan_row {
	const char *publisher; /* NULL: rows that every publisher has published */
	bool carried;
	const char *rows, *identity;
};

static void print_plan_row(const struct plan_row *row, bool new_identity)
{
	if (row->publisher)
		printf("publisher %s: %s, rows to publish: %s, identity %s %s\n", row->publisher,
		    row->carried ? "carried here" : "written here", row->rows, row->identity,
		    new_identity ? "becomes another" : "stays (its original must publish no more)");
	else
		printf("rows that every publisher has published, and that only get another "
		       "transaction id: %s\n",
		    row->rows);
}

static bool print_plan(const struct session *session, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *plan = publisher_rebase_plan(session->pg, session->postgres, err);

	for (int i = 0; plan && i < pg_rows(plan); i++) {
		const struct plan_row row = {
		    .publisher = pg_is_null(plan, i, 0) ? NULL : pg_value(plan, i, 0),
		    .carried = text_equal(pg_value(plan, i, 1), "t"),
		    .rows = pg_value(plan, i, 2),
		    .identity = pg_value(plan, i, 3)};

		print_plan_row(&row, call_flag(session->call, "new-identity"));
	}
	return plan != NULL;
}

static void print_rebased(const struct call *call, int64_t restamped, int64_t audit)
{
	printf("rebased: rows with another transaction id: %" PRId64
	       "; every publisher has a new epoch%s (outbox.audit %" PRId64 ")\n",
	    restamped, call_flag(call, "new-identity") ? " and a new identity" : "", audit);
}

static bool carry_out(const struct session *session, struct err *err)
{
	struct publisher_rebase order = {.reason = confirm_reason(session->call),
	    .new_identity = call_flag(session->call, "new-identity")};

	if (!publisher_rebase(session->pg, session->postgres, &order, err))
		return false;
	print_rebased(session->call, order.restamped, order.audit);
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

/* --- over --server --------------------------------------------------------------------------- */

/* The route names one publisher of the database, and rebases all. NULL: *err says why. */
static char *any_publisher(const struct call *call, struct err *err)
{
	const char *postgres = call_text(call, "postgres", NULL);
	const json_t *row;
	json_t *answer;
	char *name = NULL;
	size_t i;

	if (call->argument_count > 0)
		return xstrdup(call->arguments[0]);
	if (!server_ask(call, "/v1/publishers", NULL, &answer, err))
		return NULL;
	json_array_foreach(json_object_get(answer, "publishers"), i, row)
	{
		if (!name && json_is_true(json_object_get(row, "configured")) &&
		    (!postgres || text_equal(postgres, field_member(row, "postgres"))))
			name = xstrdup(field_member(row, "name"));
	}
	json_decref(answer);
	if (!name)
		err_set(err, ERR_REJECT, "the relay has no publisher there: name one");
	return name;
}

static bool send_rebase(
    const struct call *call, const char *publisher, bool dry, json_t **ret_answer, struct err *err)
{
	json_t *body = json_pack("{s:b, s:b}", "all", call_flag(call, "all"), "new_identity",
	    call_flag(call, "new-identity"));

	server_add_confirm(body, dry ? NULL : publisher_rebase_question);
	return publisher_call_send(call, publisher, "rebase", body, ret_answer, err);
}

/* The number of publishers of the plan, which is printed unless nobody would read it. */
static int print_server_plan(const struct call *call, const json_t *plan, bool prints)
{
	const json_t *member;
	int publishers = 0;
	size_t i;

	json_array_foreach(plan, i, member)
	{
		const struct plan_row row = {
		    .publisher = json_string_value(json_object_get(member, "publisher")),
		    .carried = json_is_true(json_object_get(member, "carried")),
		    .rows = field_member(member, "rows"),
		    .identity = field_member(member, "identity")};

		publishers += row.publisher != NULL;
		if (prints)
			print_plan_row(&row, call_flag(call, "new-identity"));
	}
	return publishers;
}

static bool check_server_scope(const struct call *call, const json_t *plan, struct err *err)
{
	int publishers = print_server_plan(call, plan, false);

	return call_flag(call, "all") || (call->argument_count > 0 && publishers == 1) ||
	       err_set(err, ERR_REJECT, REBASE_SCOPE, publishers);
}

static bool rebase_over_server(const struct call *call, struct err *err)
{
	bool dry = call_flag(call, "dry-run"), sure = call_flag(call, "yes"), done;
	owned_text char *publisher = NULL;
	json_t *answer = NULL;

	if (!confirm_check(call, err))
		return false;
	publisher = any_publisher(call, err);
	if (!publisher || !send_rebase(call, publisher, true, &answer, err))
		return false;
	done = check_server_scope(call, json_object_get(answer, "plan"), err);
	if (done && (dry || !sure))
		print_server_plan(call, json_object_get(answer, "plan"), true);
	json_decref(answer);
	if (!done || dry)
		return done;
	if ((!sure && !confirm_ask(publisher_rebase_question, err)) ||
	    !send_rebase(call, publisher, false, &answer, err))
		return false;
	print_rebased(call, field_number(answer, "rows"), field_number(answer, "audit"));
	json_decref(answer);
	return true;
}

static int run_publisher_rebase(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return rebase_over_server(call, &err) ? 0 : session_failed(&err);
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
    SERVER_OPTIONS,
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
