#include <stdio.h>
#include "commands.h"
#include "confirm.h"
#include "partitions.h"
#include "session.h"
#include "sql_files.h"
#include "text.h"

static const char *const force_words[] = {"owned", "last", "configured", NULL};

/* Columns of status.sql: publisher, shard, shards, split_to, n, epoch, owner, lease_left_ms. */
static bool check_unowned(struct session *session, const char *name, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(session->pg, session->postgres, sql_status, NULL, 0, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (text_equal(pg_value(rows, i, 0), name) && pg_int(rows, i, 7) > 0 &&
		    !confirm_is_forced(session->call, "owned"))
			return err_set(err, ERR_FENCED,
			    "publisher %s shard %s is owned by %s: stop it; --force owned drops "
			    "the publisher all the same",
			    name, pg_value(rows, i, 1), pg_value(rows, i, 6));
	return rows != NULL;
}

/* `run` ends at its start when a publisher of its configuration is not in the database. */
static bool check_not_configured(const struct session *session, const char *name, struct err *err)
{
	const struct config_publisher *publisher = config_find_publisher(session->config, name);

	if (!publisher || publisher->settings.postgres != session->postgres ||
	    config_is_default(publisher->origin) || confirm_is_forced(session->call, "configured"))
		return true;
	return err_set(err, ERR_REJECT,
	    "publisher %s is in the configuration (%s), and `run` would not start without it; "
	    "remove its section first, or force it with --force configured",
	    name, publisher->origin);
}

/* Partitions stay for the sake of publishers that have not published their rows. */
static bool plan_drop(struct session *session, const char *name, struct text *plan, struct err *err)
{
	owned_text char *bound = xformat("%d", COUNTED_ROWS);
	const struct pg_param params[] = {{name}, {bound}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = database_query(
	    session->pg, session->postgres, sql_publisher_drop_check, params, 2, err);

	if (!row)
		return false;
	if (!pg_int(row, 0, 3))
		return err_set(err, ERR_REJECT, "publisher %s does not exist", name);
	text_addf(plan,
	    "drop of publisher %s: its progress is forgotten, and with it go %s%s parked and %s%s "
	    "scheduled messages\n",
	    name, pg_int(row, 0, 1) == COUNTED_ROWS ? "at least " : "", pg_value(row, 0, 1),
	    pg_int(row, 0, 2) == COUNTED_ROWS ? "at least " : "", pg_value(row, 0, 2));

	/* only publishers keep partitions: without one, unpublished rows are dropped by age */
	if (pg_int(row, 0, 0) == 0 && !confirm_is_forced(session->call, "last"))
		return err_set(err, ERR_REJECT,
		    "publisher %s is the last one: without a publisher nothing is published, and "
		    "rows go with their partitions; create another one first, or force it with "
		    "--force last",
		    name);
	return true;
}

static bool drop_publisher(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	const char *name = call->arguments[0];
	const struct pg_param params[] = {
	    {name}, {call_text(call, "force", "")}, {confirm_reason(call)}};
	owned_text char *question = xformat("Drop publisher %s?", name);
	OWNED(text_finish) struct text plan = {0};
	OWNED(owned_pg_result_destroy) struct pg_result *done = NULL;

	/* the checks come before the question, so that a yes is not refused afterwards */
	if (!plan_drop(session, name, &plan, err) || !check_not_configured(session, name, err) ||
	    !check_unowned(session, name, err) || !confirm_check(call, err))
		return false;
	fputs(text_string(&plan), stdout);
	if (call_flag(call, "dry-run")) {
		puts("nothing was changed: --dry-run");
		return true;
	}
	if (!confirm_call(call, question, err))
		return false;
	done = database_query(session->pg, session->postgres, sql_publisher_drop, params, 3, err);
	if (done)
		printf("publisher %s dropped\n", name);
	return done != NULL;
}

static bool check_publisher_force(const struct call *call, struct err *err)
{
	return confirm_check_force(call, force_words, err);
}

static int run_publisher_drop(const struct call *call)
{
	return session_run(call, check_publisher_force, drop_publisher);
}

static const struct command_option publisher_drop_options[] = {
    CONFIRM_OPTIONS,
    {"force", "WORD,…",
	"owned: also while a process owns one of its shards (the process then releases it); "
	"last: also the last publisher; configured: also one that the configuration names."},
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
	"The command shows everything that it would drop, and asks; outbox.audit stores the "
	"operator and the reason. The publisher's unpublished rows are not published by it any "
	"longer; they stay in the table until their partition is dropped. A new publisher of the "
	"same name begins where its `--start` says.\n",
    .options = publisher_drop_options,
    .example = "outbox-relay publisher drop billing",
    .run = run_publisher_drop,
};
