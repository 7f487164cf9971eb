#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "commands.h"
#include "parked.h"
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

/* Columns of parked_audit.sql. */
enum { AUDIT_ID, AUDIT_AT, AUDIT_WHO, AUDIT_VERB, AUDIT_REASON };

struct payload {
	const char *form; /* "text", "hex", "null", or "hidden" from this login */
	char *shown;      /* NULL for the last two */
	size_t bytes;
};

struct showing {
	struct parked *parked;
	const char *id;
	const struct pg_result *row, *audit;
	struct payload payload;
};

/* --- for people ------------------------------------------------------------------------------ */

static void print_field(const char *name, const char *value)
{
	OWNED(text_finish) struct text line = {0};

	parked_add_line(&line, value);
	printf("  %-12s %s\n", name, text_string(&line));
}

static void print_column(const struct showing *showing, const char *name, int column)
{
	if (!pg_is_null(showing->row, 0, column))
		print_field(name, pg_value(showing->row, 0, column));
}

static void print_key(const struct showing *showing)
{
	bool is_text;
	owned_text char *key = NULL;

	if (!pg_is_null(showing->row, 0, PARKED_KEY))
		key = parked_bytes(pg_value(showing->row, 0, PARKED_KEY), false, &is_text);
	print_field("key", key ? key : "none");
}

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
		print_field("waits behind", behind);
	}
	print_column(showing, "behind it", SHOW_FOLLOWERS);
}

static void print_payload(const struct payload *payload)
{
	if (text_equal(payload->form, "null"))
		puts("  payload      null: a tombstone");
	else if (text_equal(payload->form, "hidden"))
		puts("  payload      this login may not read payloads");
	else
		printf("  payload      %zu bytes, as %s:\n%s\n", payload->bytes,
		    text_equal(payload->form, "text") ? "text" : "hexadecimal", payload->shown);
}

static void print_audit(const struct pg_result *audit)
{
	for (int i = 0; i < pg_rows(audit); i++) {
		OWNED(text_finish) struct text line = {0};

		parked_add_line(&line, pg_value(audit, i, AUDIT_REASON));
		printf("  request %-4s %s by %s at %s: %s\n", pg_value(audit, i, AUDIT_ID),
		    pg_value(audit, i, AUDIT_VERB), pg_value(audit, i, AUDIT_WHO),
		    pg_value(audit, i, AUDIT_AT), text_string(&line));
	}
}

static void print(const struct showing *showing)
{
	static const struct {
		const char *name;
		int column;
	} fields[] = {{"topic", PARKED_TOPIC}, {"shard", SHOW_SHARD}, {"partition", SHOW_PARTITION},
	    {"state", PARKED_STATE}, {"attempts", PARKED_ATTEMPTS},
	    {"next attempt", PARKED_NEXT_AT}, {"error", PARKED_ERROR}, {"parked", PARKED_SINCE},
	    {"created", SHOW_CREATED}, {"event id", SHOW_EVENT_ID}, {"requested", PARKED_REQUEST},
	    {"headers", SHOW_HEADERS}};

	printf("id %s, parked in slot %s\n", showing->id, showing->parked->slot->name);
	print_key(showing);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		print_column(showing, fields[i].name, fields[i].column);
	print_queue(showing);
	print_audit(showing->audit);
	print_payload(&showing->payload);
}

/* --- for programs ---------------------------------------------------------------------------- */

static json_t *head_json(const struct pg_result *row)
{
	json_t *object;

	if (pg_is_null(row, 0, SHOW_HEAD_ID))
		return json_null();
	object = json_object();
	json_object_set_new(object, "id", parked_json_text(row, 0, SHOW_HEAD_ID));
	json_object_set_new(object, "state", parked_json_text(row, 0, SHOW_HEAD_STATE));
	json_object_set_new(object, "error", parked_json_text(row, 0, SHOW_HEAD_ERROR));
	json_object_set_new(object, "rows_between", parked_json_text(row, 0, SHOW_BETWEEN));
	return object;
}

static json_t *audit_json(const struct pg_result *audit)
{
	static const char *const names[] = {"id", "at", "who", "verb", "reason"};
	json_t *list = json_array();

	for (int i = 0; i < pg_rows(audit); i++) {
		json_t *object = json_object();

		for (int k = AUDIT_ID; k <= AUDIT_REASON; k++)
			json_object_set_new(object, names[k], parked_json_text(audit, i, k));
		json_array_append_new(list, object);
	}
	return list;
}

static void add_payload_json(json_t *object, const struct payload *payload)
{
	json_object_set_new(object, "payload_form", json_string(payload->form));
	json_object_set_new(
	    object, "payload", payload->shown ? json_string(payload->shown) : json_null());
	json_object_set_new(object, "payload_bytes",
	    payload->shown ? json_integer((json_int_t)payload->bytes) : json_null());
}

static void print_json(const struct showing *showing)
{
	const struct pg_result *row = showing->row;
	json_t *object = parked_row_json(row, 0);
	owned_text char *text = NULL;

	json_object_set_new(object, "slot", json_string(showing->parked->slot->name));
	json_object_set_new(object, "shard", json_integer(pg_int(row, 0, SHOW_SHARD)));
	json_object_set_new(object, "created_at", parked_json_text(row, 0, SHOW_CREATED));
	json_object_set_new(object, "event_id", parked_json_text(row, 0, SHOW_EVENT_ID));
	json_object_set_new(object, "partition",
	    pg_is_null(row, 0, SHOW_PARTITION) ? json_null()
					       : json_integer(pg_int(row, 0, SHOW_PARTITION)));
	json_object_set_new(object, "headers",
	    pg_is_null(row, 0, SHOW_HEADERS) ? json_null()
					     : json_loads(pg_value(row, 0, SHOW_HEADERS), 0, NULL));
	json_object_set_new(object, "waits_behind", head_json(row));
	json_object_set_new(object, "rows_behind", parked_json_text(row, 0, SHOW_FOLLOWERS));
	json_object_set_new(object, "requests", audit_json(showing->audit));
	add_payload_json(object, &showing->payload);
	text = json_dumps(object, JSON_COMPACT);
	puts(text);
	json_decref(object);
}

/* --- the command ----------------------------------------------------------------------------- */

/* Of a tombstone, and of a row that went since, there is none. */
static bool read_payload(struct showing *showing, const struct pg_param *params, struct err *err)
{
	struct payload *payload = &showing->payload;
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;
	bool is_text;

	payload->form = "hidden";
	if (!text_equal(pg_value(showing->row, 0, SHOW_MAY_READ), "t"))
		return true;
	row = parked_query(showing->parked, sql_parked_payload, params, 2, err);
	if (!row)
		return false;
	payload->form = "null";
	if (pg_rows(row) == 0 || pg_is_null(row, 0, 0))
		return true;
	payload->bytes = strlen(pg_value(row, 0, 0)) / 2;
	payload->shown = parked_bytes(pg_value(row, 0, 0), true, &is_text);
	payload->form = is_text ? "text" : "hex";
	return true;
}

static bool show_row(struct showing *showing, const struct pg_param *params, struct err *err)
{
	struct parked *parked = showing->parked;
	bool done;

	if (pg_rows(showing->row) == 0)
		return err_set(err, ERR_REJECT,
		    "id %s is not parked in slot %s: `outbox-relay parked list` shows what is",
		    showing->id, parked->slot->name);
	done = read_payload(showing, params, err);
	if (done && call_flag(parked->call, "json"))
		print_json(showing);
	else if (done)
		print(showing);
	free(showing->payload.shown);
	return done;
}

static bool show(struct parked *parked, struct err *err)
{
	int64_t id;

	if (!parked_id(parked->call->arguments[0], &id, err))
		return false;

	owned_text char *id_text = xformat("%" PRId64, id);
	const struct pg_param params[] = {{parked->slot->name}, {id_text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(parked, sql_parked_show, params, 2, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *audit =
	    row ? parked_query(parked, sql_parked_audit, params, 2, err) : NULL;
	struct showing showing = {.parked = parked, .id = id_text, .row = row, .audit = audit};

	return audit && show_row(&showing, params, err);
}

static int run(const struct call *call)
{
	return parked_run(call, show);
}

static const struct command_option options[] = {
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    PARKED_SLOT_OPTION,
    {0},
};

const struct command command_parked_show = {
    .name = "parked show",
    .arguments = "ID",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Shows everything of one parked message.",
    .description =
	"The row, what it waits behind and how many wait behind it, what operators requested and "
	"why, and the payload: as text when a terminal shows it as it is, else in hexadecimal. "
	"`outbox_reader` sees all but the payload.\n",
    .options = options,
    .run = run,
};
