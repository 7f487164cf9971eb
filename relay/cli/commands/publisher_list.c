#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "server.h"
#include "session.h"
#include "sql_files.h"

/* The figures of GET /v1/publishers are left out: `status` shows them. */
static const char *const shard_members[] = {"publisher", "shard", "shards", "split_to", "paused_at",
    "paused_topics", "owner", "url", "identity"};

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
	printf("  %s%s  identity %s\n", owner ? "owned by " : "nobody's", owner ? owner : "",
	    field_member(shard, "identity"));
}

/* Takes the list over. */
static void print_shards(const struct call *call, json_t *shards)
{
	const json_t *shard;
	size_t i;

	if (call_flag(call, "json"))
		return field_print_json("", shards, JSON_INDENT(1), "\n");
	json_array_foreach(shards, i, shard)
	{
		print_shard_line(shard);
	}
	json_decref(shards);
}

/* --- from the database ----------------------------------------------------------------------- */

/* Columns of status.sql: publisher, shard, shards, split_to, n, epoch, owner, lease_left_ms,
 * windows, elsewhere, identity, paused_at, url, paused_topics, paused_topics_text. */
static json_t *shard_row_json(const struct pg_result *rows, int i)
{
	/* the row keeps the last owner, also after its lease has run out */
	bool alive = pg_int(rows, i, 7) > 0;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "publisher",
	    field_json(rows, i, 0), "shard", field_json_number(rows, i, 1), "shards",
	    field_json_number(rows, i, 2), "split_to", field_json_number(rows, i, 3), "paused_at",
	    field_json(rows, i, 11), "paused_topics", field_json_parsed(rows, i, 13), "owner",
	    alive ? field_json(rows, i, 6) : json_null(), "url",
	    alive ? field_json(rows, i, 12) : json_null(), "identity", field_json(rows, i, 10));
}

static bool list_publishers(struct session *session, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(session->pg, session->postgres, sql_status, NULL, 0, err);
	json_t *shards;

	if (!rows)
		return false;
	shards = json_array();
	for (int i = 0; i < pg_rows(rows); i++)
		json_array_append_new(shards, shard_row_json(rows, i));
	print_shards(session->call, shards);
	return true;
}

/* --- from a relay ---------------------------------------------------------------------------- */

static json_t *shard_without_figures(const json_t *shard)
{
	json_t *object = json_object();

	for (size_t i = 0; i < sizeof shard_members / sizeof *shard_members; i++)
		json_object_set(object, shard_members[i], json_object_get(shard, shard_members[i]));
	return object;
}

/* postgres: NULL: of all databases */
static json_t *shards_of_answer(const json_t *answer, const char *postgres)
{
	json_t *shards = json_array();
	const json_t *publisher, *shard;
	size_t i, k;

	json_array_foreach(json_object_get(answer, "publishers"), i, publisher)
	{
		if (postgres && !text_equal(field_member(publisher, "postgres"), postgres))
			continue;
		json_array_foreach(json_object_get(publisher, "shards"), k, shard)
		{
			json_array_append_new(shards, shard_without_figures(shard));
		}
	}
	return shards;
}

/* A database that does not answer hides its publishers: the list is incomplete. */
static bool check_answering_databases(const json_t *answer, const char *postgres, struct err *err)
{
	const json_t *database;
	bool found = !postgres;
	size_t i;

	json_array_foreach(json_object_get(answer, "postgres"), i, database)
	{
		const char *error = json_string_value(json_object_get(database, "error"));

		if (postgres && !text_equal(field_member(database, "name"), postgres))
			continue;
		found = true;
		if (error)
			return err_set(err, ERR_RETRY, "[postgres \"%.60s\"]: %s",
			    field_member(database, "name"), error);
	}
	return found || err_set(err, ERR_REJECT,
			    "the configuration of the relay has no [postgres \"%.60s\"]", postgres);
}

static int list_over_server(const struct call *call)
{
	const char *postgres = call_text(call, "postgres", NULL);
	json_t *answer = NULL;
	struct err err;
	bool complete;

	if (!server_ask(call, "/v1/publishers", NULL, &answer, &err))
		return session_failed(&err);
	complete = check_answering_databases(answer, postgres, &err);
	/* those of the other databases are shown all the same */
	if (complete || err.kind == ERR_RETRY)
		print_shards(call, shards_of_answer(answer, postgres));
	json_decref(answer);
	return complete ? 0 : session_failed(&err);
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
