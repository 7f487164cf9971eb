#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "parked_call.h"
#include "parked_print.h"
#include "sql_files.h"

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

struct showing {
	struct parked *parked;
	bool json;
	const char *id;
	const struct pg_result *row, *audit;
	struct field_payload payload;
};

/* --- for people ------------------------------------------------------------------------------ */

static void print_queue(const struct showing *showing)
{
	const struct pg_result *row = showing->row;
	owned_text char *behind = NULL;

	if (!pg_is_null(row, 0, SHOW_HEAD_ID)) {
		behind = xformat("id %s (%s), with %s between them; error: %s",
		    pg_value(row, 0, SHOW_HEAD_ID), pg_value(row, 0, SHOW_HEAD_STATE),
		    pg_value(row, 0, SHOW_BETWEEN),
		    pg_is_null(row, 0, SHOW_HEAD_ERROR) ? "none"
							: pg_value(row, 0, SHOW_HEAD_ERROR));
		field_print("waits behind", behind);
	}
	field_print_column("behind it", row, 0, SHOW_FOLLOWERS);
}

static void print_parked_message(const struct showing *showing)
{
	static const struct {
		const char *name;
		int column;
	} fields[] = {{"topic", PARKED_TOPIC}, {"shard", SHOW_SHARD}, {"partition", SHOW_PARTITION},
	    {"state", PARKED_STATE}, {"attempts", PARKED_ATTEMPTS},
	    {"next attempt", PARKED_NEXT_AT}, {"error", PARKED_ERROR}, {"parked", PARKED_SINCE},
	    {"created", SHOW_CREATED}, {"event id", SHOW_EVENT_ID}, {"requested", PARKED_REQUEST},
	    {"headers", SHOW_HEADERS}};

	printf("id %s, parked in publisher %s\n", showing->id, showing->parked->publisher->name);
	field_print_bytes("key", showing->row, 0, PARKED_KEY);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		field_print_column(fields[i].name, showing->row, 0, fields[i].column);
	print_queue(showing);
	field_print_audit(showing->audit);
	field_payload_print(&showing->payload);
}

/* --- for programs ---------------------------------------------------------------------------- */

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

static void print_parked_json(const struct showing *showing)
{
	const struct pg_result *row = showing->row;
	json_t *object = parked_row_json(row, 0);

	json_object_set_new(object, "publisher", json_string(showing->parked->publisher->name));
	json_object_set_new(object, "shard", json_integer(pg_int(row, 0, SHOW_SHARD)));
	json_object_set_new(object, "created_at", field_json(row, 0, SHOW_CREATED));
	json_object_set_new(object, "event_id", field_json(row, 0, SHOW_EVENT_ID));
	json_object_set_new(object, "partition", field_json_number(row, 0, SHOW_PARTITION));
	json_object_set_new(object, "headers", field_json_parsed(row, 0, SHOW_HEADERS));
	json_object_set_new(object, "waits_behind", head_json(row));
	json_object_set_new(object, "rows_behind", field_json(row, 0, SHOW_FOLLOWERS));
	json_object_set_new(object, "requests", field_json_audit(showing->audit));
	field_payload_add_json(object, &showing->payload);
	field_print_json("", object, JSON_COMPACT, "\n");
}

/* --- the command ----------------------------------------------------------------------------- */

/* A tombstone has no payload, nor has a row that was deleted since. */
static bool read_parked_payload(
    struct showing *showing, const struct pg_param *params, struct err *err)
{
	struct field_payload *payload = &showing->payload;
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;

	payload->form = "hidden";
	/* without the privilege the query would fail, and with it everything else that is shown */
	if (!text_equal(pg_value(showing->row, 0, SHOW_MAY_READ), "t"))
		return true;
	row = parked_query(showing->parked, sql_parked_payload, params, 2, err);
	if (!row)
		return false;
	payload->form = "null";
	if (pg_rows(row) == 0 || pg_is_null(row, 0, 0))
		return true;
	field_payload_read(payload, pg_value(row, 0, 0));
	return true;
}

static bool show_parked_row(struct showing *showing, const struct pg_param *params, struct err *err)
{
	struct parked *parked = showing->parked;
	bool done;

	if (pg_rows(showing->row) == 0)
		return err_set(err, ERR_REJECT,
		    "id %s is not parked in publisher %s: `outbox-relay parked list` shows what is",
		    showing->id, parked->publisher->name);
	done = read_parked_payload(showing, params, err);
	if (done && showing->json)
		print_parked_json(showing);
	else if (done)
		print_parked_message(showing);
	field_payload_finish(&showing->payload);
	return done;
}

static bool show_parked_id(const struct call *call, struct parked *parked, struct err *err)
{
	int64_t id;

	if (!parked_id(call->arguments[0], &id, err))
		return false;

	owned_text char *id_text = xformat("%" PRId64, id);
	const struct pg_param params[] = {{parked->publisher->name}, {id_text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(parked, sql_parked_show, params, 2, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *audit =
	    row ? parked_query(parked, sql_parked_audit, params, 2, err) : NULL;
	struct showing showing = {.parked = parked,
	    .json = call_flag(call, "json"),
	    .id = id_text,
	    .row = row,
	    .audit = audit};

	return audit && show_parked_row(&showing, params, err);
}

static int run_parked_show(const struct call *call)
{
	return parked_call_run(call, show_parked_id);
}

static const struct command_option parked_show_options[] = {
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    PARKED_PUBLISHER_OPTION,
    {0},
};

const struct command command_parked_show = {
    .name = "parked show",
    .arguments = "ID",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Shows everything about one parked message.",
    .description =
	"Shows the row, the message that it waits behind, the number of messages behind it, the "
	"requests of operators with their reasons, and the payload: as text if it is printable, "
	"else in hexadecimal. The role `outbox_reader` sees everything except the payload.\n",
    .options = parked_show_options,
    .example = "outbox-relay parked show 4711",
    .run = run_parked_show,
};
