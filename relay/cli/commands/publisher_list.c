#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "server.h"
#include "session.h"
#include "sql_files.h"

static void print_publishers_json(const struct pg_result *rows)
{
	json_t *list = json_array();

	for (int i = 0; i < pg_rows(rows); i++)
		json_array_append_new(
		    list, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "publisher",
			      field_json(rows, i, 0), "shard", field_json_number(rows, i, 1),
			      "shards", field_json_number(rows, i, 2), "split_to",
			      field_json_number(rows, i, 3), "paused_at", field_json(rows, i, 11),
			      "paused_topics", json_loads(pg_value(rows, i, 13), 0, NULL), "owner",
			      pg_int(rows, i, 7) > 0 ? field_json(rows, i, 6) : json_null(), "url",
			      pg_int(rows, i, 7) > 0 ? field_json(rows, i, 12) : json_null(),
			      "identity", field_json(rows, i, 10)));
	field_print_json("", list, JSON_INDENT(1), "\n");
}

/* Columns of status.sql: publisher, shard, shards, split_to, n, epoch, owner, lease_left_ms,
 * windows, elsewhere, identity, paused_at, url, paused_topics, paused_topics_text. */
static bool list_publishers(struct session *session, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(session->pg, session->postgres, sql_status, NULL, 0, err);

	if (!rows)
		return false;
	if (call_flag(session->call, "json")) {
		print_publishers_json(rows);
		return true;
	}
	for (int i = 0; i < pg_rows(rows); i++) {
		/* the row keeps the last owner, also after its lease has run out */
		bool alive = pg_int(rows, i, 7) > 0;

		printf("%s/%s of %s%s%s%s%s%s  %s%s  identity %s\n", pg_value(rows, i, 0),
		    pg_value(rows, i, 1), pg_value(rows, i, 2),
		    pg_is_null(rows, i, 3) ? "" : ", being split to ",
		    pg_is_null(rows, i, 3) ? "" : pg_value(rows, i, 3),
		    pg_is_null(rows, i, 11) ? "" : ", paused",
		    pg_is_null(rows, i, 14) ? "" : ", paused topics: ", pg_value(rows, i, 14),
		    alive ? "owned by " : "nobody's", alive ? pg_value(rows, i, 6) : "",
		    pg_value(rows, i, 10));
	}
	return true;
}

/* The line of a shard, from GET /v1/publishers. */
static void print_shard_line(const json_t *shard)
{
	const json_t *split = json_object_get(shard, "split_to");
	const char *owner = json_string_value(json_object_get(shard, "owner"));
	const char *topic;
	json_t *since;
	bool first = true;

	printf("%s/%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT,
	    field_member(shard, "publisher"), json_integer_value(json_object_get(shard, "shard")),
	    json_integer_value(json_object_get(shard, "shards")));
	if (json_is_integer(split))
		printf(", being split to %" JSON_INTEGER_FORMAT, json_integer_value(split));
	if (json_is_string(json_object_get(shard, "paused_at")))
		printf(", paused");
	json_object_foreach(json_object_get(shard, "paused_topics"), topic, since)
	{
		printf("%s%s since %s", first ? ", paused topics: " : ", ", topic,
		    json_string_value(since));
		first = false;
	}
	printf("  %s%s\n", owner ? "owned by " : "nobody's", owner ? owner : "");
}

/* Removes the rows of other databases than --postgres. */
static void keep_database(json_t *rows, const char *member, const char *postgres)
{
	for (size_t i = json_array_size(rows); i > 0; i--)
		if (!text_equal(field_member(json_array_get(rows, i - 1), member), postgres))
			json_array_remove(rows, i - 1);
}

static bool choose_listed(const struct call *call, json_t *answer, struct err *err)
{
	const char *postgres = call_text(call, "postgres", NULL);
	json_t *databases = json_object_get(answer, "postgres");

	if (!postgres)
		return true;
	keep_database(json_object_get(answer, "publishers"), "postgres", postgres);
	keep_database(databases, "name", postgres);
	return json_array_size(databases) > 0 ||
	       err_set(err, ERR_REJECT,
		   "the configuration of the relay has no [postgres \"%.60s\"]", postgres);
}

static int list_over_server(const struct call *call)
{
	json_t *answer = NULL;
	const json_t *publisher, *shard;
	struct err err;
	size_t i, k;

	if (!server_ask(call, "/v1/publishers", NULL, &answer, &err))
		return session_failed(&err);
	if (!choose_listed(call, answer, &err)) {
		json_decref(answer);
		return session_failed(&err);
	}
	if (call_flag(call, "json")) {
		field_print_json("", answer, JSON_INDENT(1), "\n");
		return 0;
	}
	json_array_foreach(json_object_get(answer, "publishers"), i, publisher)
	{
		json_array_foreach(json_object_get(publisher, "shards"), k, shard)
		{
			print_shard_line(shard);
		}
	}
	json_decref(answer);
	return 0;
}

static int run_publisher_list(const struct call *call)
{
	if (server_is_used(call))
		return list_over_server(call);
	return session_run(call, NULL, list_publishers);
}

static const struct command_option publisher_list_options[] = {
    {"json", NULL, "Prints a JSON array with an object for each shard."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_publisher_list = {
    .name = "publisher list",
    .arguments = "",
    .summary = "Lists the publishers in the database and who owns their shards.",
    .description = "`status` shows more: lag, partitions, rates.\n",
    .options = publisher_list_options,
    .example = "outbox-relay publisher list",
    .run = run_publisher_list,
};
