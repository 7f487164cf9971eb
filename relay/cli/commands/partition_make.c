#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "partition_orders.h"
#include "server.h"
#include "session.h"

static void print_made_partition(void *context, const char *table, const char *from)
{
	(void)context;
	if (from)
		printf("%s: made the partition from %s\n", table, from);
	else
		printf("%s: nothing to do, it is there\n", table);
}

static bool make_partitions(struct session *session, struct err *err)
{
	struct partition_making order = {.postgres = session->postgres,
	    .table = session_table(session->call),
	    .from = call_text(session->call, "from", NULL),
	    .tell = print_made_partition};

	return partition_orders_make(session->pg, &order, err);
}

static void print_made_partitions(const json_t *made)
{
	const json_t *row;
	size_t i;

	json_array_foreach(made, i, row)
	{
		print_made_partition(NULL, field_member(row, "table"),
		    json_string_value(json_object_get(row, "from")));
	}
}

static bool make_over_server(const struct call *call, struct err *err)
{
	const char *from = call_text(call, "from", NULL), *table = session_table(call);
	json_t *body, *answer = NULL;
	bool done;

	if (!session_check_table(call, err))
		return false;
	if (text_is_blank(call_text(call, "reason", "")))
		return err_set(err, ERR_REJECT, "say why: --reason TEXT is kept in outbox.audit");
	body = json_object();
	if (from)
		json_object_set_new(body, "from", json_string(from));
	if (table)
		json_object_set_new(body, "table", json_string(table));
	server_add_postgres(body, call);
	done = server_add_reason(body, call, err) &&
	       server_ask(call, "/v1/partitions", body, &answer, err);
	json_decref(body);
	if (done)
		print_made_partitions(json_object_get(answer, "made"));
	json_decref(answer);
	return done;
}

static int run_partition_make(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return make_over_server(call, &err) ? 0 : session_failed(&err);
	return session_run(call, session_check_table, make_partitions);
}

static const struct command_option partition_make_options[] = {
    {"from", "MOMENT",
	"Creates one partition that begins at this time and is as wide as partition_every: "
	"2026-01-02 or 2026-01-02T03:00:00, UTC."},
    SESSION_TABLE_OPTION,
    {"reason", "TEXT", "With --server: the reason, stored in outbox.audit."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_partition_make = {
    .name = "partition make",
    .arguments = "",
    .summary = "Creates the missing partitions, or a given one.",
    .description =
	"Without --from it creates the partitions from now to `partitions_ahead` periods ahead, "
	"as `run` does by itself.\n",
    .options = partition_make_options,
    .example = "outbox-relay partition make --table message",
    .run = run_partition_make,
};
