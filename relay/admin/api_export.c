/*
 * Lists as files. Begin at read_export, libmicrohttpd's callback: it writes the rows of the page
 * that is there ([CSV] or JSON), and else begins the request for the next page, during which the
 * connection rests.
 */
#include "api_export.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "gate.h"
#include "text.h"

struct export_row {
	const char *verb;
	const char *rows;    /* member of the answer */
	const char *cursor;  /* argument that takes "next"; NULL: the list has one page */
	const char *columns; /* of CSV: members of a row */
	const char *file;    /* name of the file; NULL: that of the verb */
};

static const struct export_row exports[] = {
    {"parked", "rows", "after",
	"id,topic,key,state,attempts,next_at,error,parked_at,request,request_id"},
    {"list", "rows", "after",
	"biz_type,biz_id,section,state,prepared_at,since,attempts,pendings,next_check,claimed,"
	"check_service,check_url,expires_at,last_result,last_error,last_at",
	.file = "lookback"},
    {"scheduled", "rows", "after", "id,deliver_at,topic,key,partition,event_id,created_at,was_id"},
    {"jobs", "rows", "after",
	"id,kind,publisher,section,state,who,caller,reason,begun_at,noted_at,ended_at,done,total,"
	"exact,"
	"changed,published,refused,error,filter,to,rate_limit,per_second,seconds_left,owner,clean"},
    {"replays", "rows", "after",
	"id,kind,publisher,section,state,who,caller,reason,begun_at,noted_at,ended_at,done,total,"
	"exact,"
	"changed,published,refused,error,filter,to,rate_limit,per_second,seconds_left,owner,clean"},
    {"audit", "rows", "before", "id,at,who,caller,verb,publisher,target,reason"},
    {"partitions", "rows", "after",
	"partition,state,from,to,bytes,rows,rows_estimated,held_by,place"},
    {"dead_letters", "rows", "after",
	"partition,offset,time,topic,id,attempts,reason,redriven,bytes,key,payload",
	.file = "dead-letters"},
    {"preflight", "findings", NULL, "severity,place,finding,cure"},
    {"publishers", "publishers", NULL, "name,postgres,configured,source,shards,parked,scheduled"},
};

struct api_export {
	const struct export_row *row;
	bool is_csv;
	json_t *page; /* its rows are not written yet; NULL: none */
	char *next;   /* of the newest page; NULL: it was the last one */
	bool waits;   /* for a page */
	bool begun, ended, streams;
	int64_t rows;     /* written */
	struct text text; /* to be sent, from `sent` on */
	size_t sent;
	char disposition[80];
	atomic_bool is_cut;
};

/* --- CSV ------------------------------------------------------------------------------------- */

/* A spreadsheet would run such a text as a formula. */
static bool is_formula(const char *value)
{
	return *value && strchr("=+-@\t\r", *value);
}

static void add_csv_text(struct text *out, const char *value)
{
	text_add(out, "\"");
	if (is_formula(value))
		text_add(out, "'");
	for (; *value; value++)
		text_addf(out, *value == '"' ? "\"\"" : "%c", *value);
	text_add(out, "\"");
}

/* null is empty, and an empty text is "". */
static void add_csv_value(struct text *out, const json_t *value)
{
	owned_text char *json = NULL;

	if (!value || json_is_null(value))
		return;
	if (json_is_string(value))
		return add_csv_text(out, json_string_value(value));
	json = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
	if (json_is_object(value) || json_is_array(value))
		add_csv_text(out, json);
	else
		text_add(out, json);
}

static void add_csv_row(struct text *out, const char *columns, const json_t *row)
{
	while (*columns) {
		size_t length = strcspn(columns, ",");
		owned_text char *name = xformat("%.*s", (int)length, columns);

		add_csv_value(out, json_object_get(row, name));
		columns += length;
		if (*columns == ',') {
			text_add(out, ",");
			columns++;
		}
	}
	text_add(out, "\r\n");
}

/* --- the stream ------------------------------------------------------------------------------ */

static void begin_export_file(struct api_export *export)
{
	if (export->is_csv)
		text_addf(&export->text, "%s\r\n", export->row->columns);
	else
		text_add(&export->text, "[");
	export->begun = true;
}

static void write_export_page(struct api_export *export)
{
	const json_t *rows = json_object_get(export->page, export->row->rows);
	const json_t *row;
	size_t index;

	if (!export->begun)
		begin_export_file(export);
	json_array_foreach(rows, index, row)
	{
		owned_text char *json = NULL;

		if (export->is_csv) {
			add_csv_row(&export->text, export->row->columns, row);
		} else {
			json = json_dumps(row, JSON_COMPACT);
			text_addf(&export->text, "%s\n%s", export->rows ? "," : "", json);
		}
		export->rows++;
	}
	json_decref(export->page);
	export->page = NULL;
}

/* The next page, as if the client had asked for it. */
static void begin_next_page(struct api_call *call)
{
	if (call->work)
		call->verb->forget(call);
	call->work = NULL;
	call->status = 0;
	call->rests = false;
	call->export->waits = true;
	call->verb->begin(call);
}

static ssize_t send_text(struct api_call *call, char *bytes, size_t most)
{
	struct api_export *export = call->export;
	size_t length = export->text.length - export->sent;

	length = length < most ? length : most;
	memcpy(bytes, export->text.data + export->sent, length);
	export->sent += length;
	if (export->sent == export->text.length) {
		text_clear(&export->text);
		export->sent = 0;
	}
	gate_stream_goes_on(call->connection);
	return (ssize_t)length;
}

/* libmicrohttpd's callback. 0: the connection rests. */
static ssize_t read_export(void *context, uint64_t position, char *bytes, size_t most)
{
	struct api_call *call = context;
	struct api_export *export = call->export;

	(void)position;
	for (;;) {
		if (atomic_load(&export->is_cut))
			return MHD_CONTENT_READER_END_WITH_ERROR;
		if (export->text.length > 0)
			return send_text(call, bytes, most);
		if (atomic_load(&call->left) > 0) /* also makes writes of others visible here */
			return 0;
		if (export->waits && !call->status)
			call->verb->finish(call);
		export->waits = false;

		/* the file breaks off, so that nobody takes it for the whole list */
		if (call->status >= 400)
			return MHD_CONTENT_READER_END_WITH_ERROR;
		if (export->page)
			write_export_page(export);
		else if (export->next)
			begin_next_page(call);
		else if (export->ended)
			return MHD_CONTENT_READER_END_OF_STREAM;
		else {
			if (!export->is_csv)
				text_add(&export->text, "\n]\n");
			export->ended = true;
		}
	}
}

static void cut_export(void *context)
{
	struct api_call *call = context;

	/* a connection that rests is resumed by the thread that works on its page */
	atomic_store(&call->export->is_cut, true);
}

/* --- for api.c ------------------------------------------------------------------------------- */

static const struct export_row *find_export(const char *verb)
{
	for (size_t i = 0; i < sizeof exports / sizeof *exports; i++)
		if (text_equal(exports[i].verb, verb))
			return &exports[i];
	return NULL;
}

void api_export_begin(struct api_call *call)
{
	const struct export_row *row = find_export(call->verb->name);
	const char *format = api_argument(call, "format");
	const char *from = format && row && row->cursor ? api_argument(call, row->cursor) : NULL;

	/* a list that has no row refuses the argument like any unknown one */
	if (!format || !row)
		return;
	if (!text_equal(format, "csv") && !text_equal(format, "json"))
		return api_refuse(
		    call, 400, "bad_value", "format=%.40s is neither csv nor json", format);
	if (api_argument(call, "limit"))
		return api_refuse(call, 409, "conflicting_arguments",
		    "limit does not go with format: a file has all rows of the list");

	call->export = xcalloc(1, sizeof *call->export);
	call->export->row = row;
	call->export->is_csv = text_equal(format, "csv");
	call->export->next = from ? xstrdup(from) : NULL;
}

bool api_export_argument(const struct api_call *call, const char *name, const char **ret_value)
{
	const struct api_export *export = call->export;

	if (!export || !export->row->cursor)
		return false;
	if (text_equal(name, "limit"))
		*ret_value = "1000";
	else if (text_equal(name, export->row->cursor))
		*ret_value = export->next;
	else
		return false;
	return true;
}

void api_export_take(struct api_call *call, json_t *page)
{
	struct api_export *export = call->export;
	const char *next = json_string_value(json_object_get(page, "next"));

	json_decref(export->page);
	export->page = page;
	free(export->next);
	export->next = next ? xstrdup(next) : NULL;
}

bool api_export_goes_on(const struct api_call *call)
{
	return call->export && call->export->streams;
}

enum MHD_Result api_export_respond(struct api_call *call)
{
	struct api_export *export = call->export;

	export->streams = true;
	snprintf(export->disposition, sizeof export->disposition, "attachment; filename=\"%s.%s\"",
	    export->row->file ? export->row->file : export->row->verb,
	    export->is_csv ? "csv" : "json");
	api_add_field(call, "Content-Disposition", export->disposition);
	return gate_stream(call->connection,
	    export->is_csv ? "text/csv; charset=utf-8" : "application/json", read_export,
	    cut_export, call, call->fields);
}

void api_export_forget(struct api_call *call)
{
	struct api_export *export = call->export;

	if (!export)
		return;
	if (export->streams)
		gate_stream_over(call->connection);
	json_decref(export->page);
	text_finish(&export->text);
	free(export->next);
	free(export);
}
