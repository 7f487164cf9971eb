/*
 * Lists overdue and parked ids, a page at a time in the order of types and ids; with the state
 * undecided, prepares that are not due yet, in the order of ids.
 */
#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "lookback_selection.h"
#include "moment.h"
#include "sql_files.h"

enum { PAGE = 100, MOST_ROWS = 1000 };

static const char *const list_arguments[] = {"state", "type", "section", "service", "error", "from",
    "to", /* the conditions */
    "limit", "after", "totals", "postgres"};
enum {
	LIST_ARGUMENTS = sizeof list_arguments / sizeof *list_arguments,
	CONDITIONS = 7,
};

struct lookback_page {
	const struct postgres_settings *postgres;
	json_t *chosen; /* as outbox.lookback_is takes it */
	char *after_type, *after_id, after_at[MOMENT_SIZE];
	int64_t limit;
	bool totals, undecided;
	json_t *answer;
};

/* --- the question ---------------------------------------------------------------------------- */

/* A query of the URL may hold a secret. */
static json_t *url_without_query(const struct pg_result *rows, int i)
{
	const char *url = pg_value(rows, i, SELECTION_URL), *query = strchr(url, '?');

	if (!query)
		return field_json(rows, i, SELECTION_URL);
	return json_sprintf("%.*s?...", (int)(query - url), url);
}

static json_t *listed_id_json(const struct pg_result *rows, int i)
{
	static const struct field_column texts[] = {{"biz_type", SELECTION_TYPE},
	    {"biz_id", SELECTION_ID}, {"section", SELECTION_SECTION},
	    {"prepared_at", SELECTION_PREPARED}, {"state", SELECTION_STATE},
	    {"since", LISTED_SINCE}, {"next_check", SELECTION_NEXT_AT},
	    {"check_service", SELECTION_SERVICE}, {"expires_at", SELECTION_EXPIRES},
	    {"last_result", SELECTION_RESULT}, {"last_error", SELECTION_ERROR},
	    {"last_at", SELECTION_LAST_AT}};
	json_t *object = FIELD_JSON_TEXTS(rows, i, texts);

	json_object_set_new(object, "attempts", field_json_number(rows, i, SELECTION_ATTEMPTS));
	json_object_set_new(object, "pendings", field_json_number(rows, i, SELECTION_PENDINGS));
	json_object_set_new(
	    object, "claimed", json_boolean(text_equal(pg_value(rows, i, LISTED_CLAIMED), "t")));
	json_object_set_new(object, "check_url", url_without_query(rows, i));
	return object;
}

static json_t *listed_place(const struct pg_result *rows, int i)
{
	return json_sprintf("%s,%s,%s", pg_value(rows, i, SELECTION_TYPE),
	    pg_value(rows, i, LISTED_PLACE), pg_value(rows, i, SELECTION_ID));
}

static void add_listed_ids(struct lookback_page *page, const struct pg_result *rows)
{
	bool more = pg_rows(rows) > page->limit;
	int count = more ? (int)page->limit : pg_rows(rows);
	json_t *list = json_array();

	for (int i = 0; i < count; i++)
		if (!page->undecided || text_equal(pg_value(rows, i, LISTED_MEANT), "t"))
			json_array_append_new(list, listed_id_json(rows, i));
	/* The last row of undecided ids says how far the page looked: there may be more behind it.
	 */
	more |= page->undecided && count > 0;
	json_object_set_new(page->answer, "rows", list);
	json_object_set_new(
	    page->answer, "next", more ? listed_place(rows, count - 1) : json_null());
}

static void add_lookback_totals(
    const struct lookback_page *page, const struct lookback_totals *found)
{
	json_t *totals = json_object();

	for (int i = 0; i < LOOKBACK_STATES; i++)
		if (page->undecided || !text_equal(lookback_states[i], "undecided"))
			json_object_set_new(
			    totals, lookback_states[i], json_sprintf("%" PRId64, found->counts[i]));
	json_object_set_new(page->answer, "totals", totals);
	json_object_set_new(page->answer, "exact", json_boolean(found->exact));
}

static struct pg_result *query_ids(
    const struct lookback_page *page, struct pg *pg, const char *chosen, struct err *err)
{
	/* one more than a page shows whether there are further rows */
	owned_text char *most = xformat("%" PRId64, page->limit + 1);
	const struct pg_param params[] = {{chosen}, {page->after_type}, {page->after_id},
	    {page->after_at}, {most}, {LOOKBACK_JOURNAL_ROWS}};

	return page->undecided
		   ? database_query(pg, page->postgres, sql_lookback_waiting, params, 6, err)
		   : database_query(pg, page->postgres, sql_lookback_list, params, 5, err);
}

static bool read_lookback_page(struct pg *pg, void *context, struct err *err)
{
	struct lookback_page *page = context;
	owned_text char *chosen = json_dumps(page->chosen, JSON_COMPACT);
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = query_ids(page, pg, chosen, err);
	struct lookback_totals totals;

	if (!rows || (page->totals && !lookback_totals_count(pg, page->postgres, chosen,
					  page->undecided, &totals, err)))
		return false;
	page->answer =
	    json_pack("{s:s, s:s}", "postgres", page->postgres->name, "source", "database");
	add_listed_ids(page, rows);
	if (page->totals)
		add_lookback_totals(page, &totals);
	return true;
}

static void run_lookback_page(struct api_call *call, struct api_worker *worker)
{
	struct lookback_page *page = call->work;
	struct err err;

	if (api_worker_query(worker, page->postgres, read_lookback_page, page, &err))
		api_answer(call, 200, page->answer);
	else
		api_refuse_database(call, &err);
}

/* --- the call -------------------------------------------------------------------------------- */

bool api_look_is_condition(const char *name)
{
	for (int i = 0; i < CONDITIONS; i++)
		if (text_equal(list_arguments[i], name))
			return true;
	return false;
}

/* A moment in the form that the database takes. */
static json_t *list_moment(const char *name, const char *value, struct err *err)
{
	char at[MOMENT_SIZE];
	int64_t us;

	if (!moment_parse(value, &us, err)) {
		err_prefix(err, "%s", name);
		return NULL;
	}
	moment_format_exact(us, at);
	return json_string(at);
}

json_t *api_look_condition(
    const char *name, const char *value, bool *ret_undecided, struct err *err)
{
	const bool is_state = text_equal(name, "state");
	const bool undecided = is_state && ret_undecided && text_equal(value, "undecided");

	if (text_equal(name, "from") || text_equal(name, "to"))
		return list_moment(name, value, err);
	if (is_state && !undecided && !text_equal(value, "overdue") &&
	    !text_equal(value, "parked")) {
		err_set(err, ERR_REJECT, "state is not overdue%s",
		    ret_undecided ? ", parked or undecided" : " or parked");
		return NULL;
	}
	if (undecided)
		*ret_undecided = true;
	return json_string(value);
}

/* "TYPE,TIME,ID", as `next` has it: no type and no time has a comma. */
static bool read_list_place(struct lookback_page *page, const char *value, struct err *err)
{
	const char *time = strchr(value, ','), *id = time ? strchr(time + 1, ',') : NULL;
	owned_text char *at = id ? xformat("%.*s", (int)(id - time - 1), time + 1) : xstrdup("");
	int64_t us;

	if (!id || !moment_parse(at, &us, err))
		return err_set(err, ERR_REJECT,
		    "after=%.60s is no place in the list: use the value of next as it is", value);
	moment_format_exact(us, page->after_at);
	page->after_type = xformat("%.*s", (int)(time - value), value);
	page->after_id = xstrdup(id + 1);
	return true;
}

static bool read_list_arguments(struct api_call *call, struct lookback_page *page, struct err *err)
{
	const char *after = api_argument(call, "after");

	for (int i = 0; i < CONDITIONS; i++) {
		const char *value = api_argument(call, list_arguments[i]);
		json_t *condition =
		    value ? api_look_condition(list_arguments[i], value, &page->undecided, err)
			  : NULL;

		if (value && !condition)
			return false;
		if (value)
			json_object_set_new(page->chosen, list_arguments[i], condition);
	}
	if (after)
		return read_list_place(page, after, err);
	page->after_type = xstrdup("");
	page->after_id = xstrdup("");
	text_copy(page->after_at, sizeof page->after_at, "-infinity");
	return true;
}

void api_list_begin(struct api_call *call)
{
	struct lookback_page *page = xcalloc(1, sizeof *page);
	struct err err;

	call->work = page;
	page->limit = PAGE;
	page->chosen = json_object();
	if (!api_arguments_check(call, list_arguments, LIST_ARGUMENTS) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &page->limit) ||
	    !api_argument_yes(call, "totals", &page->totals))
		return;
	if (!read_list_arguments(call, page, &err))
		return api_refuse(call, 400, "bad_value", "%s", err.message);

	page->postgres = api_look_postgres(call, api_argument(call, "postgres"),
	    api_argument(call, "type"), api_argument(call, "section"));
	if (page->postgres)
		api_worker_run(call, run_lookback_page);
}

void api_list_forget(struct api_call *call)
{
	struct lookback_page *page = call->work;

	json_decref(page->chosen);
	free(page->after_type);
	free(page->after_id);
	free(page);
}
