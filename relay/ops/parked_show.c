#include "parked_show.h"

#include <inttypes.h>
#include "cleanup.h"
#include "field_json.h"
#include "parked_row.h"
#include "sql_files.h"
#include "text.h"

/* Columns of parked_show.sql behind those of enum parked_column. */
enum {
	SHOW_SHARD = PARKED_COLUMNS,
	SHOW_CREATED,
	SHOW_EVENT_ID,
	SHOW_PARTITION,
	SHOW_HEADERS,
	SHOW_HEAD_ID, /* null: it is the head */
	SHOW_HEAD_STATE,
	SHOW_HEAD_ERROR,
	SHOW_BETWEEN,
	SHOW_FOLLOWERS,
	SHOW_MAY_READ
};

static json_t *head_json(const struct pg_result *row)
{
	json_t *object;

	if (pg_is_null(row, 0, SHOW_HEAD_ID))
		return json_null();
	object = json_object();
	json_object_set_new(object, "id", field_json(row, 0, SHOW_HEAD_ID));
	json_object_set_new(object, "state", field_json(row, 0, SHOW_HEAD_STATE));
	json_object_set_new(object, "error", field_json(row, 0, SHOW_HEAD_ERROR));
	json_object_set_new(object, "rows_between", field_json(row, 0, SHOW_BETWEEN));
	return object;
}

/* A tombstone has no payload, nor has a row that was deleted since. */
static bool add_parked_payload(
    struct parked *parked, const struct pg_param *params, json_t *object, struct err *err)
{
	OWNED(field_payload_finish) struct field_payload payload = {.form = "null"};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(parked, sql_parked_payload, params, 2, err);

	if (!row)
		return false;
	if (pg_rows(row) > 0 && !pg_is_null(row, 0, 0))
		field_payload_read(&payload, pg_value(row, 0, 0));
	field_payload_add_json(object, &payload);
	return true;
}

static json_t *shown_json(
    const struct parked *parked, const struct pg_result *row, const struct pg_result *audit)
{
	json_t *object = parked_row_json(row, 0);

	json_object_set_new(object, "publisher", json_string(parked->publisher->name));
	json_object_set_new(object, "shard", json_integer(pg_int(row, 0, SHOW_SHARD)));
	json_object_set_new(object, "created_at", field_json(row, 0, SHOW_CREATED));
	json_object_set_new(object, "event_id", field_json(row, 0, SHOW_EVENT_ID));
	json_object_set_new(object, "partition", field_json_number(row, 0, SHOW_PARTITION));
	json_object_set_new(object, "headers", field_json_parsed(row, 0, SHOW_HEADERS));
	json_object_set_new(object, "waits_behind", head_json(row));
	json_object_set_new(object, "rows_behind", field_json(row, 0, SHOW_FOLLOWERS));
	json_object_set_new(object, "requests", field_json_audit(audit));
	return object;
}

bool parked_show(
    struct parked *parked, int64_t id, bool payload, json_t **ret_shown, struct err *err)
{
	static const struct field_payload hidden = {.form = "hidden"};
	owned_text char *id_text = xformat("%" PRId64, id);
	const struct pg_param params[] = {{parked->publisher->name}, {id_text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(parked, sql_parked_show, params, 2, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *audit =
	    row ? parked_query(parked, sql_parked_audit, params, 2, err) : NULL;
	json_t *shown;

	if (!audit)
		return false;
	*ret_shown = NULL;
	if (pg_rows(row) == 0)
		return true;
	shown = shown_json(parked, row, audit);
	if (!payload)
		json_object_set_new(shown, "headers", json_null());

	/* without the privilege the query would fail, and with it everything else that is shown */
	if (!payload || !text_equal(pg_value(row, 0, SHOW_MAY_READ), "t")) {
		field_payload_add_json(shown, &hidden);
	} else if (!add_parked_payload(parked, params, shown, err)) {
		json_decref(shown);
		return false;
	}
	*ret_shown = shown;
	return true;
}

char *parked_show_nothing(const char *publisher, int64_t id)
{
	return xformat("id %" PRId64 " is not parked in publisher %s: `outbox-relay parked list` "
		       "shows the parked ids",
	    id, publisher);
}
