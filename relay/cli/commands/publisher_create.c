#include <stdio.h>
#include "commands.h"
#include "moment.h"
#include "session.h"
#include "sql_files.h"
#include "text.h"

/* Reads --start into the form that the database takes. */
static bool read_start(const char *text, char start[MOMENT_SIZE], struct err *err)
{
	int64_t us;

	if (text_equal(text, "now") || text_equal(text, "beginning")) {
		text_copy(start, MOMENT_SIZE, text);
		return true;
	}
	if (!moment_parse(text, &us, err))
		return err_prefix(err, "--start is neither now nor beginning, and");
	moment_format_exact(us, start);
	return true;
}

static bool check_start_option(const struct call *call, struct err *err)
{
	char start[MOMENT_SIZE];

	return read_start(call_text(call, "start", "beginning"), start, err);
}

static bool create_publisher(struct session *session, struct err *err)
{
	const char *name = session->call->arguments[0];
	const char *shards = call_text(session->call, "shards", "1");
	char start[MOMENT_SIZE];
	const struct pg_param params[] = {{name}, {shards}, {start}};
	OWNED(owned_pg_result_destroy) struct pg_result *done = NULL;

	if (!read_start(call_text(session->call, "start", "beginning"), start, err))
		return false;
	done = database_query(session->pg, session->postgres, sql_publisher_create, params, 3, err);
	/* the name is the primary key (23505), and a check restricts its form (23514) */
	if (!done && text_equal(pg_sqlstate(session->pg), "23505"))
		err_set(err, ERR_REJECT, "publisher %s exists already in %s", name,
		    pg_place(session->pg));
	if (!done && text_equal(pg_sqlstate(session->pg), "23514"))
		err_set(err, ERR_REJECT,
		    "'%s' is no name for a publisher: use 1 to 40 of a-z, 0-9, - and _", name);
	if (!done)
		return false;
	printf("publisher %s made with %s shard%s; publish it with a section [publisher \"%s\"]\n",
	    name, shards, text_equal(shards, "1") ? "" : "s", name);
	return true;
}

static int run_publisher_create(const struct call *call)
{
	return session_run(call, check_start_option, create_publisher);
}

static const struct command_option publisher_create_options[] = {
    {"shards", "N", "Number of shards by key hash, each with an owner of its own (default 1).", 1,
	64},
    {"start", "now|beginning|TIME",
	"Publishes rows that commit from now on, every row in the table, or every row whose "
	"created_at is TIME or later, such as 2026-01-02T03:04:05Z (default: beginning)."},
    SESSION_POSTGRES_OPTION,
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
