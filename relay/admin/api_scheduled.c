/* Lists scheduled rows of a publisher, those that are due first, a page at a time. */
#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "moment.h"
#include "sql_files.h"
#include "term.h"

/* EXAMINED: rows that a page with conditions reads at most, so that it ends soon. */
enum { PAGE = 100, MOST_ROWS = 1000, EXAMINED = 10000 };

/* Columns of scheduled_page.sql. */
enum {
	SCHEDULED_ID,
	SCHEDULED_DELIVER_AT,
	SCHEDULED_TOPIC,
	SCHEDULED_KEY,
	SCHEDULED_PARTITION,
	SCHEDULED_EVENT_ID,
	SCHEDULED_CREATED_AT,
	SCHEDULED_WAS_ID,
	SCHEDULED_MEANT,
	SCHEDULED_IS_LAST,
	SCHEDULED_DELIVER_US
};

struct scheduled_page {
	const struct publisher_settings *publisher;
	int64_t limit;
	char *topic, *key; /* NULL: any */
	/* the page begins behind this row, and ends before `to` */
	char after_at[MOMENT_SIZE], to_at[MOMENT_SIZE];
	int64_t after_id;
	json_t *answer;
};

/* --- the question ---------------------------------------------------------------------------- */

static json_t *scheduled_row_json(const struct pg_result *rows, int i)
{
	static const struct field_column texts[] = {{"id", SCHEDULED_ID},
	    {"deliver_at", SCHEDULED_DELIVER_AT}, {"topic", SCHEDULED_TOPIC},
	    {"event_id", SCHEDULED_EVENT_ID}, {"created_at", SCHEDULED_CREATED_AT},
	    {"was_id", SCHEDULED_WAS_ID}};
	json_t *object = FIELD_JSON_TEXTS(rows, i, texts);

	json_object_set_new(object, "key", field_json_bytes(rows, i, SCHEDULED_KEY));
	json_object_set_new(object, "partition", field_json_number(rows, i, SCHEDULED_PARTITION));
	return object;
}

static json_t *place_behind(const struct pg_result *rows, int i)
{
	return json_sprintf(
	    "%s.%s", pg_value(rows, i, SCHEDULED_DELIVER_US), pg_value(rows, i, SCHEDULED_ID));
}

/* A page may have fewer rows than wanted, even none, and a next one: it examined all it may. */
static void add_scheduled_rows(
    const struct scheduled_page *page, json_t *answer, const struct pg_result *rows)
{
	json_t *list = json_array(), *next = NULL;

	for (int i = 0; i < pg_rows(rows) && !next; i++) {
		if (text_equal(pg_value(rows, i, SCHEDULED_MEANT), "t"))
			json_array_append_new(list, scheduled_row_json(rows, i));
		if (text_equal(pg_value(rows, i, SCHEDULED_IS_LAST), "t") ||
		    ((int64_t)json_array_size(list) == page->limit && i + 1 < pg_rows(rows)))
			next = place_behind(rows, i);
	}
	json_object_set_new(answer, "rows", list);
	json_object_set_new(answer, "next", next ? next : json_null());
}

static bool read_scheduled_page(struct pg *pg, void *context, struct err *err)
{
	struct scheduled_page *page = context;
	bool has_conditions = page->topic || page->key;
	owned_text char *id = xformat("%" PRId64, page->after_id);
	/* one more than a page shows whether there are further rows */
	owned_text char *wanted = xformat("%" PRId64, page->limit + 1);
	owned_text char *examined =
	    xformat("%" PRId64, has_conditions ? (int64_t)EXAMINED : page->limit + 1);
	const struct pg_param params[] = {{page->publisher->name}, {page->after_at}, {id},
	    {page->to_at}, {page->topic}, {page->key}, {wanted}, {examined}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(pg, page->publisher->postgres, sql_scheduled_page, params, 8, err);

	if (!rows)
		return false;
	page->answer =
	    json_pack("{s:s, s:s}", "publisher", page->publisher->name, "source", "database");
	add_scheduled_rows(page, page->answer, rows);
	return true;
}

static void run_scheduled_page(struct api_call *call, struct api_worker *worker)
{
	struct scheduled_page *page = call->work;
	struct err err;

	if (api_worker_query(worker, page->publisher->postgres, read_scheduled_page, page, &err))
		api_answer(call, 200, page->answer);
	else
		api_refuse_database(call, &err);
}

/* The years 1000 to 9999. */
#define FIRST_US INT64_C(-30610224000000000)
#define LAST_US INT64_C(253402300799999999)

/* --- the call -------------------------------------------------------------------------------- */

/* "US.ID", as `next` has it: us since 1970, of the years that moment_format_exact can write. */
static bool read_scheduled_place(
    struct api_call *call, const char *value, int64_t *ret_us, struct scheduled_page *page)
{
	const char *dot = strchr(value, '.');
	owned_text char *us = dot ? xformat("%.*s", (int)(dot - value), value) : xstrdup("");

	if (dot && text_to_int64(us, FIRST_US, LAST_US, ret_us) &&
	    text_to_int64(dot + 1, 0, INT64_MAX, &page->after_id))
		return true;
	api_refuse(call, 400, "bad_value",
	    "after=%.60s is no place in the list: use the value of next as it is", value);
	return false;
}

static bool read_time(struct api_call *call, const char *name, const char *value, int64_t *ret_us)
{
	struct err err;

	if (moment_parse(value, ret_us, &err))
		return true;
	api_refuse(call, 400, "bad_value", "%s: %s", name, err.message);
	return false;
}

/* The page begins at `from`, or behind the last row of the page before it, which is later. */
static bool read_bounds(struct api_call *call, struct scheduled_page *page)
{
	const char *from = api_argument(call, "from"), *to = api_argument(call, "to");
	const char *after = api_argument(call, "after");
	int64_t from_us, to_us, after_us;

	text_copy(page->after_at, MOMENT_SIZE, "-infinity");
	text_copy(page->to_at, MOMENT_SIZE, "infinity");
	if ((from && !read_time(call, "from", from, &from_us)) ||
	    (to && !read_time(call, "to", to, &to_us)) ||
	    (after && !read_scheduled_place(call, after, &after_us, page)))
		return false;

	if (to)
		moment_format_exact(to_us, page->to_at);
	if (after && (!from || after_us >= from_us)) {
		moment_format_exact(after_us, page->after_at);
	} else if (from) {
		moment_format_exact(from_us, page->after_at);
		page->after_id = 0; /* ids begin with 1 */
	}
	return true;
}

static bool read_row_conditions(struct api_call *call, struct scheduled_page *page)
{
	const char *topic = api_argument(call, "topic"), *key = api_argument(call, "key");
	struct err err;

	if ((!topic || term_topic(topic, &err)) && (!key || (page->key = term_key(key, &err)))) {
		page->topic = topic ? xstrdup(topic) : NULL;
		return true;
	}
	api_refuse(call, 400, "bad_value", "%s", err.message);
	return false;
}

void api_scheduled_begin(struct api_call *call)
{
	static const char *const names[] = {
	    "publisher", "topic", "key", "from", "to", "limit", "after"};
	struct scheduled_page *page = xcalloc(1, sizeof *page);

	call->work = page;
	page->limit = PAGE;
	if (!api_arguments_check(call, names, sizeof names / sizeof *names) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &page->limit) ||
	    !read_bounds(call, page) || !read_row_conditions(call, page))
		return;
	page->publisher = api_named_publisher(call, api_argument(call, "publisher"));
	if (page->publisher)
		api_worker_run(call, run_scheduled_page);
}

void api_scheduled_forget(struct api_call *call)
{
	struct scheduled_page *page = call->work;

	free(page->topic);
	free(page->key);
	free(page);
}
