#include "dedup_confirm.h"

#include <string.h>
#include "cleanup.h"
#include "hash_set.h"
#include "text.h"

struct dedup_confirmer {
	struct postgres_session server;
	char *query;
	struct pg_array ids;
	struct text id; /* the last id, with a NUL behind it */
};

/* Cuts off the advice of pg.h, which is about the relay's own tables. */
static void cut_advice(char *message)
{
	char *code = strstr(message, " (SQLSTATE ");
	char *end = code ? strchr(code, ')') : NULL;
	if (end)
		end[1] = '\0';
}

/*
 * SQLSTATE class 42 means that the query is written wrongly, except 42501: the role lacks a
 * privilege. Class 22 means that a value is invalid. 08P01 on a connection that is still usable
 * means that the query wants another number of parameters.
 */
static void judge_sqlstate(const char *sqlstate, struct err *err)
{
	bool wrong = (text_starts(sqlstate, "42") && !text_equal(sqlstate, "42501")) ||
		     text_equal(sqlstate, "08P01");
	bool value = text_starts(sqlstate, "22");
	if (text_starts(sqlstate, "42"))
		cut_advice(err->message);
	if (!wrong && !value)
		return;
	struct err said = *err;
	err_set(err, wrong ? ERR_CONFIG : ERR_REJECT, "query: %s; %s", said.message,
	    wrong ? "write it as query=\"select id from orders where id = any($1)\""
		  : "compare as text what may be asked for: where id::text = any($1)");
}

static struct pg_result *ask_confirm_query(struct dedup_confirmer *confirm, struct err *err)
{
	char sqlstate[6];
	const struct pg_param params[] = {{pg_array_end(&confirm->ids)}};
	struct pg_result *rows =
	    postgres_session_ask(&confirm->server, confirm->query, params, 1, sqlstate, err);
	if (!rows)
		judge_sqlstate(sqlstate, err);
	return rows;
}

static bool try_query(struct dedup_confirmer *confirm, struct err *err)
{
	pg_array_clear(&confirm->ids);
	OWNED(owned_pg_result_destroy) struct pg_result *rows = ask_confirm_query(confirm, err);
	if (!rows)
		return false;
	return (pg_columns(rows) == 1 && pg_rows(rows) == 0) ||
	       err_set(err, ERR_CONFIG,
		   "query: asked for no id it returns %d rows of %d columns: it is to return one "
		   "column, and of the ids in $1 those that are there, as \"select id from orders "
		   "where id = any($1)\"",
		   pg_rows(rows), pg_columns(rows));
}

bool dedup_confirm_check(const struct dedup_spec *spec, struct err *err)
{
	if (spec->confirm_sql && !spec->query)
		return err_set(err, ERR_CONFIG,
		    "query is missing: what confirm=sql asks, as query=\"select id from orders "
		    "where id = any($1)\"");
	return spec->confirm_sql || (!spec->query && !spec->dsn) ||
	       err_set(
		   err, ERR_CONFIG, "query and dsn are for confirm=sql: add it, or leave them out");
}

struct dedup_confirmer *dedup_confirm_open(const struct dedup_spec *spec, struct err *err)
{
	struct dedup_confirmer *confirm = xcalloc(1, sizeof *confirm);
	postgres_session_init(
	    &confirm->server, spec->dsn, (int)spec->timeout_ms, POSTGRES_SESSION_PLAIN);
	confirm->query = xstrdup(spec->query);
	if (try_query(confirm, err))
		return confirm;
	dedup_confirm_close(confirm);
	return NULL;
}

void dedup_confirm_close(struct dedup_confirmer *confirm)
{
	if (!confirm)
		return;
	postgres_session_finish(&confirm->server);
	pg_array_finish(&confirm->ids);
	text_finish(&confirm->id);
	free(confirm->query);
	free(confirm);
}

static bool is_valid_id_text(const char *at, size_t length)
{
	const char *end = at + length;
	uint32_t code;
	int bytes;
	while (at < end && (bytes = text_utf8(at, &code)) > 0 && code != 0)
		at += bytes;
	return at == end;
}

/* The id with a NUL behind it, valid until the next call. */
static const char *id_text_of(struct dedup_confirmer *confirm, const struct dedup_item *item)
{
	text_clear(&confirm->id);
	text_append(&confirm->id, item->id, item->length);
	return text_string(&confirm->id);
}

bool dedup_confirm_takes(
    struct dedup_confirmer *confirm, const struct dedup_item *item, struct err *err)
{
	return is_valid_id_text(id_text_of(confirm, item), item->length) ||
	       err_set(err, ERR_REJECT,
		   "id %zu of the call is no text in UTF-8, or holds a NUL, and confirm=sql asks "
		   "by "
		   "text: write ids in hexadecimal or base64, or leave confirm=sql out",
		   item->place + 1);
}

static bool refuse_unasked_row(const char *id, struct err *err)
{
	return err_set(err, ERR_CONFIG,
	    "query: it returned '%.60s', which was not asked for: it is to return ids as they "
	    "are in $1, and no others",
	    id ? id : "null");
}

/* Collects the returned ids as hashes of their text; any seed would do. */
static bool gather_confirmed_ids(const struct pg_result *rows, const struct hash_set *asked,
    struct hash_set *ret_there, struct err *err)
{
	for (int i = 0; i < pg_rows(rows); i++) {
		const char *id = pg_is_null(rows, i, 0) ? NULL : pg_value(rows, i, 0);
		struct fingerprint hash = fingerprint_of(id, id ? strlen(id) : 0, 0);
		if (!id || !hash_set_has(asked, hash))
			return refuse_unasked_row(id, err);
		hash_set_add(ret_there, hash);
	}
	return true;
}

static struct fingerprint hash_of(const struct dedup_item *item)
{
	return fingerprint_of(item->id, item->length, 0);
}

bool dedup_confirm_ask(struct dedup_confirmer *confirm, const struct dedup_item *items,
    const size_t *places, size_t count, bool *ret_there, struct err *err)
{
	OWNED(hash_set_finish) struct hash_set asked = {0}, there = {0};
	pg_array_clear(&confirm->ids);
	for (size_t i = 0; i < count; i++) {
		pg_array_add_text(&confirm->ids, id_text_of(confirm, &items[places[i]]));
		hash_set_add(&asked, hash_of(&items[places[i]]));
	}

	/* The rows come in any order, and only for ids that exist: sets match them. */
	OWNED(owned_pg_result_destroy) struct pg_result *rows = ask_confirm_query(confirm, err);
	if (!rows || !gather_confirmed_ids(rows, &asked, &there, err))
		return false;

	for (size_t i = 0; i < count; i++)
		ret_there[i] = hash_set_has(&there, hash_of(&items[places[i]]));
	return true;
}
