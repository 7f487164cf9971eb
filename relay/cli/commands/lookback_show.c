/*
 * `lookback show`: one id with its prepare, decision, conflicts, message and payload, as text or as
 * JSON. Begin at show_lookback_id.
 */
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "lookback_call.h"
#include "lookback_print.h"
#include "lookback_server.h"
#include "sql_files.h"

/* Columns of lookback_show.sql behind those of enum lookback_selection_column. */
enum {
	SHOW_PLACE = SELECTION_COLUMNS,
	SHOW_PARTITION,
	SHOW_OFFSET,
	SHOW_TOPIC,
	SHOW_KEY, /* hexadecimal */
	SHOW_HEADERS,
	SHOW_CHECK_AT,
	SHOW_OVERDUE_AT,
	SHOW_CLAIMED_UNTIL,
	SHOW_EVENT_ID,
	SHOW_TOLD, /* by a tombstone */
	SHOW_DECISION,
	SHOW_SOURCE,
	SHOW_DECIDED_AT,
	SHOW_DECIDED_BY,
	SHOW_REASON,
	SHOW_DECISION_PARTITION,
	SHOW_DECISION_OFFSET,
	SHOW_DECISION_TXID,
	SHOW_UNIQUE_KEY,
	SHOW_WITHIN,
	SHOW_WHILE_PENDING,
	SHOW_DUPLICATE_OF,
	SHOW_MAY_READ
};

/* Columns of lookback_conflicts.sql and of lookback_message.sql. */
enum {
	CONFLICT_AT,
	CONFLICT_KEPT,
	CONFLICT_REFUSED,
	CONFLICT_SOURCE,
	CONFLICT_WHO,
	CONFLICT_PARTITION,
	CONFLICT_OFFSET
};
enum { MESSAGE_ID, MESSAGE_PUBLISHER, MESSAGE_STATE };

/* Everything that is stored about an id; `rows` are prepares and tombstones. */
struct showing {
	struct lookback_selection *selection;
	const struct pg_result *rows, *conflicts, *audit;
	json_t *list; /* of --json: an object for each row */
};

/* A row of `rows`; message is NULL unless it was committed, and no duplicate. */
struct shown_row {
	int i;
	const struct pg_result *message;
	struct field_payload payload;
};

/* The section's look-back topic, as far as this configuration knows it. */
static const char *lookback_topic(const struct showing *showing, int i)
{
	const struct config *config = showing->selection->config;
	const char *section = pg_value(showing->rows, i, SELECTION_SECTION);

	for (int k = 0; k < config->lookback_count; k++)
		if (text_equal(config->lookbacks[k].name, section))
			return config->lookbacks[k].topic;
	return NULL;
}

/* --- for people ------------------------------------------------------------------------------ */

static void print_place(const struct showing *showing, int i)
{
	const char *topic = lookback_topic(showing, i);
	owned_text char *place = xformat("%s%spartition %s, offset %s", topic ? topic : "",
	    topic ? ", " : "", pg_value(showing->rows, i, SHOW_PARTITION),
	    pg_value(showing->rows, i, SHOW_OFFSET));

	field_print("came by", place);
}

static void print_decision(const struct pg_result *rows, int i)
{
	OWNED(text_finish) struct text line = {0};

	if (pg_is_null(rows, i, SHOW_DECISION))
		return;
	text_addf(&line, "%s by %s at %s", pg_value(rows, i, SHOW_DECISION),
	    pg_value(rows, i, SHOW_SOURCE), pg_value(rows, i, SHOW_DECIDED_AT));
	if (!pg_is_null(rows, i, SHOW_DECISION_OFFSET))
		text_addf(&line, ", partition %s, offset %s",
		    pg_value(rows, i, SHOW_DECISION_PARTITION),
		    pg_value(rows, i, SHOW_DECISION_OFFSET));
	if (!pg_is_null(rows, i, SHOW_DECIDED_BY))
		text_addf(&line, ", %s: %s", pg_value(rows, i, SHOW_DECIDED_BY),
		    field_or_dash(rows, i, SHOW_REASON));
	field_print("decision", line.data);
}

static void print_message(const struct pg_result *message)
{
	OWNED(text_finish) struct text line = {0};

	if (!message)
		return;
	for (int i = 0; i < pg_rows(message); i++)
		text_addf(&line, "%s%s %s in publisher %s",
		    i ? "" : pg_value(message, i, MESSAGE_ID), i ? "," : ":",
		    field_or_dash(message, i, MESSAGE_STATE),
		    field_or_dash(message, i, MESSAGE_PUBLISHER));
	field_print("message id", line.data ? line.data : "gone with its partition");
}

static void print_shown_row(const struct showing *showing, const struct shown_row *row)
{
	static const struct lookback_field fields[] = {{"section", SELECTION_SECTION},
	    {"prepared", SELECTION_PREPARED}, {"told", SHOW_TOLD}, {"topic", SHOW_TOPIC},
	    {"headers", SHOW_HEADERS}, {"event id", SHOW_EVENT_ID}, {"unique key", SHOW_UNIQUE_KEY},
	    {"within", SHOW_WITHIN}, {"while pending", SHOW_WHILE_PENDING},
	    {"duplicate of", SHOW_DUPLICATE_OF}, {"service", SELECTION_SERVICE},
	    {"check url", SELECTION_URL}, {"due", SHOW_CHECK_AT}, {"expires", SELECTION_EXPIRES}};
	static const struct lookback_field checks[] = {{"overdue", SHOW_OVERDUE_AT},
	    {"attempts", SELECTION_ATTEMPTS}, {"pending", SELECTION_PENDINGS},
	    {"last result", SELECTION_RESULT}, {"last error", SELECTION_ERROR},
	    {"last asked", SELECTION_LAST_AT}, {"next check", SELECTION_NEXT_AT},
	    {"claimed to", SHOW_CLAIMED_UNTIL}};
	const struct pg_result *rows = showing->rows;
	bool is_prepare = pg_is_null(rows, row->i, SHOW_TOLD);

	field_print("state", pg_value(rows, row->i, SELECTION_STATE));
	print_place(showing, row->i);
	for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
		field_print_column(fields[k].name, rows, row->i, fields[k].column);

	/* a tombstone stores only that a decision came, not the fields of a prepare */
	if (!is_prepare)
		return;
	field_print_bytes("key", rows, row->i, SHOW_KEY);
	for (size_t k = 0; k < sizeof checks / sizeof *checks; k++)
		if (!pg_is_null(rows, row->i, SHOW_OVERDUE_AT))
			field_print_column(checks[k].name, rows, row->i, checks[k].column);
	print_decision(rows, row->i);
	print_message(row->message);
	field_payload_print(&row->payload);
}

static void print_conflicts(const struct pg_result *conflicts)
{
	for (int i = 0; i < pg_rows(conflicts); i++) {
		OWNED(text_finish) struct text line = {0};

		text_addf(&line, "%s of %s at %s was refused, %s is final",
		    pg_value(conflicts, i, CONFLICT_REFUSED),
		    pg_value(conflicts, i, CONFLICT_SOURCE), pg_value(conflicts, i, CONFLICT_AT),
		    pg_value(conflicts, i, CONFLICT_KEPT));
		if (!pg_is_null(conflicts, i, CONFLICT_OFFSET))
			text_addf(&line, "; partition %s, offset %s",
			    pg_value(conflicts, i, CONFLICT_PARTITION),
			    pg_value(conflicts, i, CONFLICT_OFFSET));
		if (!pg_is_null(conflicts, i, CONFLICT_WHO))
			text_addf(&line, "; %s", pg_value(conflicts, i, CONFLICT_WHO));
		field_print("conflict", line.data);
	}
}

/* --- for programs ---------------------------------------------------------------------------- */

static json_t *decision_json(const struct pg_result *rows, int i)
{
	static const struct lookback_field fields[] = {{"decision", SHOW_DECISION},
	    {"source", SHOW_SOURCE}, {"decided_at", SHOW_DECIDED_AT},
	    {"decided_by", SHOW_DECIDED_BY}, {"reason", SHOW_REASON},
	    {"source_offset", SHOW_DECISION_OFFSET}, {0}};
	json_t *object;

	if (pg_is_null(rows, i, SHOW_DECISION))
		return json_null();
	object = json_object();
	lookback_add_json(object, fields, rows, i);
	json_object_set_new(
	    object, "source_partition", field_json_number(rows, i, SHOW_DECISION_PARTITION));
	return object;
}

static json_t *message_json(const struct pg_result *message)
{
	json_t *object, *publishers;

	/* not committed, or its row has gone with its partition */
	if (!message || pg_rows(message) == 0)
		return json_null();
	object = json_object();
	publishers = json_object();
	for (int i = 0; i < pg_rows(message); i++)
		if (!pg_is_null(message, i, MESSAGE_PUBLISHER))
			json_object_set_new(publishers, pg_value(message, i, MESSAGE_PUBLISHER),
			    field_json(message, i, MESSAGE_STATE));
	json_object_set_new(object, "id", field_json(message, 0, MESSAGE_ID));
	json_object_set_new(object, "publishers", publishers);
	return object;
}

static json_t *row_json(const struct showing *showing, const struct shown_row *row)
{
	static const struct lookback_field fields[] = {{"told", SHOW_TOLD},
	    {"source_offset", SHOW_OFFSET}, {"topic", SHOW_TOPIC}, {"check_at", SHOW_CHECK_AT},
	    {"overdue_at", SHOW_OVERDUE_AT}, {"claimed_until", SHOW_CLAIMED_UNTIL},
	    {"event_id", SHOW_EVENT_ID}, {"unique_key", SHOW_UNIQUE_KEY}, {"within", SHOW_WITHIN},
	    {"while_pending", SHOW_WHILE_PENDING}, {"duplicate_of", SHOW_DUPLICATE_OF}, {0}};
	const struct pg_result *rows = showing->rows;
	const char *topic = lookback_topic(showing, row->i);
	json_t *object = lookback_row_json(rows, row->i);

	lookback_add_json(object, fields, rows, row->i);
	json_object_set_new(object, "source_topic", topic ? json_string(topic) : json_null());
	json_object_set_new(
	    object, "source_partition", field_json_number(rows, row->i, SHOW_PARTITION));
	json_object_set_new(object, "key", field_json_bytes(rows, row->i, SHOW_KEY));
	json_object_set_new(object, "headers", field_json_parsed(rows, row->i, SHOW_HEADERS));
	json_object_set_new(object, "decision", decision_json(rows, row->i));
	json_object_set_new(object, "message", message_json(row->message));
	field_payload_add_json(object, &row->payload);
	return object;
}

static json_t *conflicts_json(const struct pg_result *conflicts)
{
	static const struct lookback_field fields[] = {{"at", CONFLICT_AT}, {"kept", CONFLICT_KEPT},
	    {"refused", CONFLICT_REFUSED}, {"source", CONFLICT_SOURCE}, {"who", CONFLICT_WHO},
	    {"source_offset", CONFLICT_OFFSET}, {0}};
	json_t *list = json_array();

	for (int i = 0; i < pg_rows(conflicts); i++) {
		json_t *object = json_object();

		lookback_add_json(object, fields, conflicts, i);
		json_object_set_new(object, "source_partition",
		    field_json_number(conflicts, i, CONFLICT_PARTITION));
		json_array_append_new(list, object);
	}
	return list;
}

static void print_shown_json(const struct showing *showing)
{
	const struct lookback_selection *selection = showing->selection;
	json_t *object = json_object();

	json_object_set_new(object, "type", json_string(selection->type));
	json_object_set_new(object, "id", json_string(selection->ids[0]));
	json_object_set_new(object, "postgres", json_string(selection->postgres->name));
	json_object_set(object, "rows", showing->list);
	json_object_set_new(object, "conflicts", conflicts_json(showing->conflicts));
	json_object_set_new(object, "requests", field_json_audit(showing->audit));
	field_print_json("", object, JSON_COMPACT, "\n");
}

/* --- the command ----------------------------------------------------------------------------- */

/* A tombstone has no payload, nor has a row that was deleted since. */
static bool read_lookback_payload(
    const struct showing *showing, struct shown_row *row, struct err *err)
{
	const struct lookback_selection *selection = showing->selection;
	const struct pg_param params[] = {
	    {selection->type}, {selection->ids[0]}, {pg_value(showing->rows, row->i, SHOW_PLACE)}};
	OWNED(owned_pg_result_destroy) struct pg_result *found = NULL;

	row->payload.form = "hidden";
	/* without the privilege the query would fail, and with it everything else that is shown */
	if (!text_equal(pg_value(showing->rows, row->i, SHOW_MAY_READ), "t"))
		return true;
	found = lookback_selection_query(showing->selection, sql_lookback_payload, params, 3, err);
	if (!found)
		return false;
	row->payload.form = "null";
	if (pg_rows(found) > 0 && !pg_is_null(found, 0, 0))
		field_payload_read(&row->payload, pg_value(found, 0, 0));
	return true;
}

static bool show_lookback_row(const struct showing *showing, int i, struct err *err)
{
	const struct pg_result *rows = showing->rows;
	const struct pg_param params[] = {
	    {pg_value(rows, i, SHOW_EVENT_ID)}, {pg_value(rows, i, SHOW_DECISION_TXID)}};

	/* only a commit has written a message, and that of a duplicate has not */
	bool is_committed = text_equal(pg_value(rows, i, SHOW_DECISION), "commit") &&
			    pg_is_null(rows, i, SHOW_DUPLICATE_OF);
	OWNED(owned_pg_result_destroy)
	struct pg_result *message = is_committed ? lookback_selection_query(showing->selection,
						       sql_lookback_message, params, 2, err)
						 : NULL;
	struct shown_row row = {.i = i, .message = message};
	bool done = (message || !is_committed) && read_lookback_payload(showing, &row, err);

	if (done && showing->list)
		json_array_append_new(showing->list, row_json(showing, &row));
	else if (done)
		print_shown_row(showing, &row);
	field_payload_finish(&row.payload);
	return done;
}

static bool show_rows(struct showing *showing, struct err *err)
{
	const struct lookback_selection *selection = showing->selection;
	OWNED(text_finish) struct text title = {0};
	json_t *requests;
	bool done = true;

	text_addf(&title, "%s ", selection->type);
	text_add_line(&title, selection->ids[0]);
	if (pg_rows(showing->rows) + pg_rows(showing->conflicts) == 0)
		return err_set(err, ERR_REJECT,
		    "%s is not known: nothing of it came, or its partition is gone", title.data);
	if (!showing->list)
		puts(title.data);
	for (int i = 0; done && i < pg_rows(showing->rows); i++)
		done = show_lookback_row(showing, i, err);
	if (done && showing->list) {
		print_shown_json(showing);
	} else if (done) {
		print_conflicts(showing->conflicts);
		requests = field_json_audit(showing->audit);
		field_print_audit(requests);
		json_decref(requests);
	}
	return done;
}

static bool show_lookback_id(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	const struct pg_param params[] = {{selection->type}, {selection->ids[0]}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    lookback_selection_query(selection, sql_lookback_show, params, 2, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *conflicts =
	    rows ? lookback_selection_query(selection, sql_lookback_conflicts, params, 2, err)
		 : NULL;
	OWNED(owned_pg_result_destroy)
	struct pg_result *audit =
	    conflicts ? lookback_selection_query(selection, sql_lookback_audit, params, 2, err)
		      : NULL;
	struct showing showing = {
	    .selection = selection, .rows = rows, .conflicts = conflicts, .audit = audit};
	bool done;

	if (!audit)
		return false;
	showing.list = call_flag(call, "json") ? json_array() : NULL;
	done = show_rows(&showing, err);
	json_decref(showing.list);
	return done;
}

static int run_lookback_show(const struct call *call)
{
	if (server_is_used(call))
		return lookback_server_show(call);
	return lookback_call_run(call, show_lookback_id);
}

static const struct command_option lookback_show_options[] = {
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    LOOKBACK_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_lookback_show = {
    .name = "lookback show",
    .arguments = "TYPE ID",
    .least_arguments = 2,
    .most_arguments = 2,
    .summary = "Shows everything that is known about one id.",
    .description =
	"Shows the prepare with its place in the look-back topic, the number of calls to the "
	"business and its last answer, the decision with its author and reason, decisions that "
	"came before the prepare, refused decisions (conflicts), actions of operators on this "
	"id, the message that a commit wrote with its state in each publisher, the unique key "
	"and the message that has it if the id is a duplicate, and the payload: "
	"as text if it is printable, else in hexadecimal. The role `outbox_reader` sees "
	"everything except the payload.\n",
    .options = lookback_show_options,
    .example = "outbox-relay lookback show order 4711",
    .run = run_lookback_show,
};
