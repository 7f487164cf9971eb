#include <stdio.h>
#include "commands.h"
#include "session.h"
#include "sql_files.h"
#include "text.h"

/* Columns of status.sql: publisher, shard, shards, split_to, n, epoch, owner, lease_left_ms. */
static bool check_unowned(
    struct pg *pg, const struct postgres_settings *postgres, const char *name, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(pg, postgres, sql_status, NULL, 0, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (text_equal(pg_value(rows, i, 0), name) && pg_int(rows, i, 7) > 0)
			return err_set(err, ERR_FENCED,
			    "publisher %s shard %s is owned by %s: stop it, or repeat with --force",
			    name, pg_value(rows, i, 1), pg_value(rows, i, 6));
	return rows != NULL;
}

/* Partitions stay for the sake of publishers that have not published their rows. */
static bool check_asked(struct pg *pg, const struct postgres_settings *postgres, const char *name,
    bool yes, bool force, struct err *err)
{
	const struct pg_param params[] = {{name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, postgres, sql_publisher_drop_check, params, 1, err);

	if (!row)
		return false;
	if (!pg_int(row, 0, 3))
		return err_set(err, ERR_REJECT, "publisher %s does not exist", name);
	if (pg_int(row, 0, 0) == 0 && !force)
		return err_set(err, ERR_REJECT,
		    "publisher %s is the last one: without a publisher nothing is published, and "
		    "rows go "
		    "with their partitions; create another one first, or repeat with --force",
		    name);
	return yes || err_set(err, ERR_REJECT,
			  "publisher drop forgets what publisher %s has published, and with it go "
			  "%s parked "
			  "and %s scheduled messages; repeat with --yes to do it",
			  name, pg_value(row, 0, 1), pg_value(row, 0, 2));
}

static bool drop_publisher(struct session *session, struct err *err)
{
	const char *name = session->call->arguments[0];
	bool force = call_flag(session->call, "force");
	const struct pg_param params[] = {{name}};
	OWNED(owned_pg_result_destroy) struct pg_result *done = NULL;

	if (!check_asked(session->pg, session->postgres, name, call_flag(session->call, "yes"),
		force, err) ||
	    (!force && !check_unowned(session->pg, session->postgres, name, err)))
		return false;
	done = database_query(session->pg, session->postgres, sql_publisher_drop, params, 1, err);
	if (done)
		printf("publisher %s dropped\n", name);
	return done != NULL;
}

static int run_publisher_drop(const struct call *call)
{
	return session_run(call, NULL, drop_publisher);
}

static const struct command_option publisher_drop_options[] = {
    {"yes", NULL, "Really drop it."},
    {"force", NULL,
	"Also while a process owns one of its shards, which that process lets go of, and also the "
	"last publisher."},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_publisher_drop = {
    .name = "publisher drop",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Drops a publisher and its progress.",
    .description =
	"Rows that it has not published stay in the table until their partition goes, and are not "
	"published by it any more. A publisher made anew under the same name begins where "
	"`--start` "
	"says.\n",
    .options = publisher_drop_options,
    .example = "outbox-relay publisher drop billing",
    .run = run_publisher_drop,
};
