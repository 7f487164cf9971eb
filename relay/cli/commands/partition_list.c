#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cleanup.h"
#include "commands.h"
#include "field.h"
#include "partition_page.h"
#include "server.h"
#include "session.h"

static void print_listed_partition(const json_t *row)
{
	const char *place = json_string_value(json_object_get(row, "place"));
	const char *holder = json_string_value(json_object_get(row, "held_by"));
	const char *from = json_string_value(json_object_get(row, "from"));
	const char *to = json_string_value(json_object_get(row, "to"));
	const char *counted = place ? "rows" : "rows_estimated";
	char rows[24] = "unknown";

	if (!json_is_null(json_object_get(row, counted)))
		snprintf(rows, sizeof rows, "%" PRId64, field_number(row, counted));
	printf("%-24s  %-20s  %-20s  %12" PRId64 "  %12s  ", field_member(row, "partition"),
	    from ? from : "", to ? to : "", field_number(row, "bytes"), rows);
	if (place)
		printf("%s: %s\n", field_member(row, "state"), place);
	else
		printf("%s\n", holder ? holder : "");
}

static void print_partition_list(const struct call *call, json_t *list)
{
	const json_t *row;
	size_t i;

	if (call_flag(call, "json"))
		return field_print_json("", json_incref(list), JSON_INDENT(1), "\n");
	printf("%-24s  %-20s  %-20s  %12s  %12s  %s\n", "partition", "from", "to", "bytes",
	    "rows ~", "held by");
	json_array_foreach(list, i, row)
	{
		print_listed_partition(row);
	}
}

static bool list_partitions(struct session *session, struct err *err)
{
	OWNED(partition_page_finish)
	struct partition_page page = {.table = session_table(session->call)};

	if (!partition_page_load(session->pg, session->postgres, &page, err))
		return false;
	print_partition_list(session->call, page.rows);
	return true;
}

/* The HTTP interface writes 64-bit numbers as texts. */
static void numbers_of_texts(json_t *list)
{
	static const char *const names[] = {"bytes", "rows", "rows_estimated"};
	json_t *row;
	size_t i;

	json_array_foreach(list, i, row)
	{
		for (size_t k = 0; k < sizeof names / sizeof *names; k++)
			if (json_is_string(json_object_get(row, names[k])))
				json_object_set_new(
				    row, names[k], json_integer(field_number(row, names[k])));
	}
}

static bool list_partitions_over_server(const struct call *call, struct err *err)
{
	OWNED(text_finish) struct text path = {0};
	json_t *list;

	if (!session_check_table(call, err))
		return false;
	text_add(&path, "/v1/partitions");
	server_add_argument(&path, "table", session_table(call));
	server_add_argument(&path, "postgres", call_text(call, "postgres", NULL));
	if (!server_ask_list(call, text_string(&path), &list, err))
		return false;

	numbers_of_texts(list);
	print_partition_list(call, list);
	json_decref(list);
	return true;
}

static int run_partition_list(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return list_partitions_over_server(call, &err) ? 0 : session_failed(&err);
	return session_run(call, session_check_table, list_partitions);
}

static const struct command_option partition_list_options[] = {
    {"json", NULL, "Prints a JSON array with an object for each partition and each archive."},
    SESSION_TABLE_OPTION,
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_partition_list = {
    .name = "partition list",
    .arguments = "",
    .summary = "Lists the partitions of the tables that are partitioned by time.",
    .description =
	"Shows the time that each partition covers (UTC), its size, and the reason why it is "
	"kept: in the message table a publisher and shard with unpublished rows, in the "
	"look-back's tables a section with an undecided prepare, in the table of processed ids a "
	"consumer whose window has not passed. For an archived partition it shows the size and "
	"the place of its file.\n",
    .options = partition_list_options,
    .example = "outbox-relay partition list --table message",
    .run = run_partition_list,
};
