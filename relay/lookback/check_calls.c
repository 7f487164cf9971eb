#include "check_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include "cleanup.h"
#include "pg_array.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

static const char figures_bound[] = "200000", figures_tombstones[] = "1000";

enum { TYPE, ID, PREPARED_AT, RESULT, ERROR, COUNTS, NEXT_MS, PARKS, COLUMNS };

struct check_calls {
	const struct config_lookback *lookback;
	struct link_statement claims[2], settles[2];
	char *claim, *settle, *figures;
	struct pg_array types, most, columns[COLUMNS];
	struct text clean;
};

struct check_calls *check_calls_create(const struct config_lookback *lookback)
{
	struct check_calls *calls = xcalloc(1, sizeof *calls);
	const char *schema = lookback->postgres->schema;

	calls->lookback = lookback;
	calls->claim = schema_text(sql_lookback_claim, schema);
	calls->settle = schema_text(sql_lookback_settle, schema);
	calls->figures = schema_text(sql_lookback_figures, schema);
	calls->claims[0] = (struct link_statement){"lookback_claim", calls->claim};
	calls->settles[0] = (struct link_statement){"lookback_settle", calls->settle};

	/* The server counts types by their place in this array, from 1 on (check_calls_claimed). */
	for (int i = 0; i < lookback->types.count; i++)
		pg_array_add_text(&calls->types, lookback->types.items[i]);
	pg_array_end(&calls->types);
	return calls;
}

void check_calls_destroy(struct check_calls *calls)
{
	if (!calls)
		return;
	pg_array_finish(&calls->types);
	pg_array_finish(&calls->most);
	for (int i = 0; i < COLUMNS; i++)
		pg_array_finish(&calls->columns[i]);
	text_finish(&calls->clean);
	free(calls->claim);
	free(calls->settle);
	free(calls->figures);
	free(calls);
}

const struct link_statement *check_calls_claims(const struct check_calls *calls)
{
	return calls->claims;
}

const struct link_statement *check_calls_settles(const struct check_calls *calls)
{
	return calls->settles;
}

static bool send_link_statement(const struct link *link, const struct link_statement *statement,
    const struct pg_param *params, int count, struct err *err)
{
	return link->prepared ? pg_send_prepared(link->pg, statement->name, params, count, err)
			      : pg_send(link->pg, statement->sql, params, count, err);
}

bool check_calls_claim(struct check_calls *calls, const struct link *link, const int *most,
    int64_t claim, struct err *err)
{
	owned_text char *number = xformat("%lld", (long long)claim);
	owned_text char *length = xformat("%lld", (long long)calls->lookback->claim_ms);

	pg_array_clear(&calls->most);
	for (int i = 0; i < calls->lookback->types.count; i++)
		pg_array_add_int(&calls->most, most[i]);
	const struct pg_param params[] = {{calls->lookback->name}, {pg_array_end(&calls->types)},
	    {pg_array_end(&calls->most)}, {number}, {length}};
	return send_link_statement(link, calls->claims, params, 5, err);
}

/* Makes a peer's text valid UTF-8, which it may not be: it may be cut within a character. */
static const char *clean_peer_text(struct check_calls *calls, const char *text)
{
	text_clear(&calls->clean);
	while (*text) {
		uint32_t code;
		int length = text_utf8(text, &code);

		text_append(&calls->clean, length ? text : "?", length ? (size_t)length : 1);
		text += length ? length : 1;
	}
	return text_string(&calls->clean);
}

static void add_settled_row(struct check_calls *calls, const struct schedule_row *row)
{
	struct pg_array *columns = calls->columns;
	const struct check_verdict *verdict = row->verdict;
	const char *result = verdict->decision ? verdict->decision : verdict->result;

	pg_array_add_text(&columns[TYPE], calls->lookback->types.items[row->type]);
	pg_array_add_text(&columns[ID], row->biz_id);
	pg_array_add_text(&columns[PREPARED_AT], row->prepared_at);
	pg_array_add_text(&columns[RESULT], clean_peer_text(calls, result));
	pg_array_add_text(
	    &columns[ERROR], verdict->error[0] ? clean_peer_text(calls, verdict->error) : NULL);
	pg_array_add_text(&columns[COUNTS], verdict->counts ? "t" : "f");
	pg_array_add_int(&columns[NEXT_MS], verdict->next_ms);
	pg_array_add_text(&columns[PARKS], verdict->parks ? "t" : "f");
}

bool check_calls_settle(struct check_calls *calls, const struct link *link,
    const struct schedule_row *rows, struct err *err)
{
	owned_text char *claim = xformat("%lld", (long long)rows->claim);
	struct pg_param params[2 + COLUMNS] = {{calls->lookback->name}, {claim}};

	for (int i = 0; i < COLUMNS; i++)
		pg_array_clear(&calls->columns[i]);
	for (const struct schedule_row *row = rows; row; row = row->next)
		add_settled_row(calls, row);
	for (int i = 0; i < COLUMNS; i++)
		params[2 + i] = (struct pg_param){pg_array_end(&calls->columns[i])};
	return send_link_statement(link, calls->settles, params, 2 + COLUMNS, err);
}

bool check_calls_figures(struct check_calls *calls, const struct link *link, struct err *err)
{
	const struct pg_param params[] = {{calls->lookback->name}, {pg_array_end(&calls->types)},
	    {figures_bound}, {figures_tombstones}};

	return pg_send(link->pg, calls->figures, params, 4, err);
}

bool check_calls_usable(const struct check_calls *calls, enum check_answer_of what,
    const struct pg_result *result, struct err *err)
{
	static const char *const shapes[] = {
	    [CHECK_ANSWER_CLAIMS] = "ittiittbl",
	    [CHECK_ANSWER_FIGURES] = "illlll",
	    [CHECK_ANSWER_SETTLED] = "iiiii",
	};

	if (!pg_has_shape(result, shapes[what], err))
		return false;
	for (int row = 0; what != CHECK_ANSWER_SETTLED && row < pg_rows(result); row++) {
		int32_t place = pg_int4(result, row, 0);

		if (place < 1 || place > calls->lookback->types.count)
			return err_set(err, ERR_FATAL,
			    "the server's answer names type number %d of %d", (int)place,
			    calls->lookback->types.count);
	}
	return true;
}

static const char *text_or_null(const struct pg_result *result, int row, int column)
{
	return pg_is_null(result, row, column) ? NULL : pg_value(result, row, column);
}

struct schedule_claimed check_calls_claimed(
    const struct pg_result *result, int row, const char **ret_service)
{
	*ret_service = text_or_null(result, row, 5);
	return (struct schedule_claimed){
	    .type = pg_int4(result, row, 0) - 1,
	    .biz_id = pg_value(result, row, 1),
	    .prepared_at = pg_value(result, row, 2),
	    .attempts = pg_int4(result, row, 3),
	    .pendings = pg_int4(result, row, 4),
	    .url = text_or_null(result, row, 6),
	    .expired = *pg_value(result, row, 7) != 0,
	    .age_ms = pg_int8(result, row, 8),
	};
}

struct check_settled check_calls_settled(const struct pg_result *result)
{
	return (struct check_settled){
	    .won = pg_int4(result, 0, 0),
	    .lost = pg_int4(result, 0, 1),
	    .strange = pg_int4(result, 0, 2),
	    .duplicates = pg_int4(result, 0, 4),
	};
}

int check_calls_parked(const struct pg_result *result, int row)
{
	return row < pg_rows(result) ? pg_int4(result, row, 3) : 0;
}

struct check_type_figures check_calls_type(const struct pg_result *result, int row)
{
	return (struct check_type_figures){
	    .type = pg_int4(result, row, 0) - 1,
	    .overdue = pg_int8(result, row, 1),
	    .parked = pg_int8(result, row, 2),
	    .oldest_ms = pg_int8(result, row, 3),
	    .unprepared = pg_int8(result, row, 4),
	    .conflicts = pg_int8(result, row, 5),
	};
}
