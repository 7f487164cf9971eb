#include <stdio.h>
#include "commands.h"
#include "publisher_orders.h"
#include "server.h"
#include "session.h"
#include "text.h"

static bool check_create_call(const struct call *call, struct err *err)
{
	char start[MOMENT_SIZE];

	/* a reason is not required on the database, but an empty one is a mistake */
	if (call_flag(call, "reason") && text_is_blank(call_text(call, "reason", "")))
		return err_set(err, ERR_REJECT, "--reason is empty: say why, or leave it out");
	return publisher_name_check(call->arguments[0], err) &&
	       publisher_start_read(call_text(call, "start", "beginning"), start, err);
}

static void print_created(const struct call *call)
{
	int shards = (int)call_number(call, "shards", 1);

	printf("publisher %s made with %d shard%s; publish it with a section [publisher \"%s\"]\n",
	    call->arguments[0], shards, text_plural(shards), call->arguments[0]);
}

static bool create_publisher(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	char start[MOMENT_SIZE];
	struct publisher_creation creation = {.publisher = call->arguments[0],
	    .start = start,
	    .reason = call_text(call, "reason", NULL),
	    .shards = (int)call_number(call, "shards", 1)};

	if (!publisher_start_read(call_text(call, "start", "beginning"), start, err) ||
	    !publisher_create(session->pg, session->postgres, &creation, err))
		return false;
	print_created(call);
	return true;
}

static bool create_over_server(const struct call *call, struct err *err)
{
	json_t *body, *answer = NULL;
	bool done;

	if (!check_create_call(call, err))
		return false;
	if (!call_flag(call, "reason"))
		return err_set(err, ERR_REJECT, "say why: --reason TEXT is kept in outbox.audit");
	body = json_pack("{s:s, s:I, s:s}", "name", call->arguments[0], "shards",
	    (json_int_t)call_number(call, "shards", 1), "start",
	    call_text(call, "start", "beginning"));
	server_add_postgres(body, call);
	done = server_add_reason(body, call, err) &&
	       server_ask(call, "/v1/publishers", body, &answer, err);
	json_decref(body);
	json_decref(answer);
	if (done)
		print_created(call);
	return done;
}

static int run_publisher_create(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return create_over_server(call, &err) ? 0 : session_failed(&err);
	return session_run(call, check_create_call, create_publisher);
}

static const struct command_option publisher_create_options[] = {
    {"shards", "N", "Number of shards by key hash, each with an owner of its own (default 1).", 1,
	64},
    {"start", "now|beginning|TIME",
	"Publishes rows that commit from now on, every row in the table, or every row whose "
	"created_at is TIME or later, such as 2026-01-02T03:04:05Z (default: beginning)."},
    {"reason", "TEXT", "The reason, stored in outbox.audit; required with --server."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_publisher_create = {
    .name = "publisher create",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Creates a publisher: a reader of the table with its own progress.",
    .description =
	"The first migration creates the publisher \"main\". A publisher that no process runs "
	"keeps partitions from being dropped.\n"
	"A publisher that starts at a time publishes exactly the rows whose created_at is that "
	"time or later, also those of transactions that were open at that time or still are. "
	"From a transaction that wrote before and after that time it publishes only the later "
	"rows. created_at is the time of the database's clock when the row was written, not when "
	"it was committed. Rows of dropped partitions are not published. The time must not lie "
	"in the future. The command reads the partition that contains it once.\n",
    .options = publisher_create_options,
    .example = "outbox-relay publisher create billing --shards 4 --start now",
    .run = run_publisher_create,
};
