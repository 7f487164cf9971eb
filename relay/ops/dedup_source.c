#include "dedup_source.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "script.h"
#include "sql_files.h"
#include "text.h"

enum { CONNECT_MS = 10000 };
static const char example[] =
    "write one query of an id and perhaps a time, as \"select id, created_at from orders\"";

/* Reports errors caused by the user's query as such. A missing table of ours is not one. */
static bool blame_user_query(const struct dedup_source *source, struct err *err)
{
	const char *sqlstate = pg_sqlstate(source->pg);
	/* syntax and names except a missing permission (42), data (22), unsupported features
	 * (0A), and a write in the read-only transaction (25006) */
	bool at_fault = (text_starts(sqlstate, "42") && !text_equal(sqlstate, "42501")) ||
			text_starts(sqlstate, "22") || text_starts(sqlstate, "0A") ||
			text_equal(sqlstate, "25006");

	/* a lost connection is no error of the query, whatever the last SQLSTATE was */
	if (pg_state(source->pg) != PG_IDLE || !at_fault)
		return false;

	/* text behind the SQLSTATE would come between the error and the example */
	char *code = strstr(err->message, "(SQLSTATE ");
	char *end = code ? strchr(code, ')') : NULL;
	if (end)
		end[1] = '\0';
	struct err said = *err;
	return err_set(err, ERR_REJECT, "--sql: %s; %s", said.message, example);
}

static struct pg_result *query_source(struct dedup_source *source, const char *sql, struct err *err)
{
	struct pg_result *rows = pg_query(source->pg, sql, NULL, 0, err);
	if (!rows)
		blame_user_query(source, err);
	return rows;
}

static struct pg_result *ask_about(
    struct dedup_source *source, const char *template, const char *query, struct err *err)
{
	const struct script_place places[] = {{"query", query, true},
	    {"blank", source->timed ? "" : ", null::pg_catalog.timestamptz", true}, {NULL}};
	owned_text char *sql = script_fill(template, places);
	return query_source(source, sql, err);
}

/* --- the columns of the query --------------------------------------------------------------- */

static bool check_shape(struct dedup_source *source, const char *query, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_about(source, sql_dedup_load_shape, query, err);
	if (!rows)
		return false;
	int columns = pg_columns(rows);
	source->timed = columns == 2;
	return columns == 1 || columns == 2 ||
	       err_set(err, ERR_REJECT, "--sql returns %d columns; %s", columns, example);
}

static bool is_one_of(const char *type, const char *const *types)
{
	for (; *types; types++)
		if (text_equal(*types, type))
			return true;
	return false;
}

static bool check_types(struct dedup_source *source, const char *query, struct err *err)
{
	static const char *const types[] = {
	    "text", "character varying", "bytea", "uuid", "bigint", "integer", "smallint", NULL};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_about(source, sql_dedup_load_types, query, err);

	if (!rows)
		return false;

	const char *id = pg_value(rows, 0, 0), *at = pg_value(rows, 0, 1);
	/* dedup compares bytes: the text of other types may depend on settings of the session */
	if (!is_one_of(id, types))
		return err_set(err, ERR_REJECT,
		    "--sql: its first column is of type %s, and an id is text, bytea, uuid or a "
		    "whole number: cast it to what consumers see, as id::text",
		    id);
	return text_equal(at, "timestamp with time zone") ||
	       err_set(err, ERR_REJECT,
		   "--sql: its second column is of type %s, and a time is timestamptz: cast it, as "
		   "created_at at time zone 'UTC'",
		   at);
}

/* --- life ----------------------------------------------------------------------------------- */

/* The query without its final semicolon and blanks, since it is put into brackets. */
static char *trim_query(const char *query)
{
	char *copy = xstrdup(query);
	size_t length = strlen(copy);
	while (length && (isspace((unsigned char)copy[length - 1]) || copy[length - 1] == ';'))
		copy[--length] = '\0';
	return copy;
}

static bool declare_cursor(struct dedup_source *source, const char *query, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_about(source, sql_dedup_load_declare, query, err);
	return rows;
}

bool dedup_source_open(struct dedup_source *ret_source, const char *dsn, const char *query,
    int64_t batch, struct err *err)
{
	owned_text char *trimmed = trim_query(query), *number = xformat("%" PRId64, batch);
	const struct script_place places[] = {{"batch", number, true}, {NULL}};
	*ret_source = (struct dedup_source){.fetch = script_fill(sql_dedup_load_fetch, places)};
	ret_source->pg = pg_connect_plain(dsn, "outbox-relay dedup load", CONNECT_MS, err);
	/* the shape comes first: it tells the other statements whether they add a time */
	return ret_source->pg && pg_script(ret_source->pg, sql_dedup_load_begin, err) &&
	       check_shape(ret_source, trimmed, err) && check_types(ret_source, trimmed, err) &&
	       declare_cursor(ret_source, trimmed, err);
}

void dedup_source_close(struct dedup_source *source)
{
	pg_destroy(source->pg);
	free(source->fetch);
	*source = (struct dedup_source){0};
}

struct pg_result *dedup_source_next(struct dedup_source *source, struct err *err)
{
	return query_source(source, source->fetch, err);
}
