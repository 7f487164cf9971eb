/* Lists parked rows of a publisher, a page at a time in the order of ids; and shows one row. */
#include <inttypes.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "parked_row.h"
#include "parked.h"
#include "parked_request.h"
#include "parked_show.h"
#include "sql_files.h"

enum { PAGE = 100, MOST_ROWS = 1000 };

static const char *const arguments[] = {"topic", "key", "error", "state", "from", "to", "from_id",
    "to_id", /* the conditions */
    "publisher", "limit", "after", "totals"};
enum {
	ARGUMENTS = sizeof arguments / sizeof *arguments,
	CONDITIONS = 8,
};

struct parked_page {
	struct parked parked;
	char *chosen;
	int64_t after, limit;
	bool totals;
	json_t *answer;
};

/* --- the question ---------------------------------------------------------------------------- */

static json_t *parked_totals_json(const struct parked_totals *found)
{
	json_t *totals = json_object();

	for (int i = 0; i < PARKED_STATES; i++)
		json_object_set_new(
		    totals, parked_states[i], json_sprintf("%" PRId64, found->counts[i]));
	return totals;
}

static bool query_parked_page(struct parked_page *page, json_t **ret_answer, struct err *err)
{
	owned_text char *after = xformat("%" PRId64, page->after);
	owned_text char *most = xformat("%" PRId64, page->limit + 1); /* is there more? */
	const struct pg_param params[] = {
	    {page->parked.publisher->name}, {page->chosen}, {after}, {most}, {NULL}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_query(&page->parked, sql_parked_list, params, 5, err);
	struct parked_totals totals;
	json_t *requests;

	if (!rows || (page->totals && (!parked_count_states(&page->parked, &totals, err) ||
					  !parked_open_requests(&page->parked, &requests, err))))
		return false;
	*ret_answer = json_pack(
	    "{s:s, s:s}", "publisher", page->parked.publisher->name, "source", "database");
	api_add_page(*ret_answer, rows, page->limit, parked_row_json);
	if (page->totals) {
		json_object_set_new(*ret_answer, "totals", parked_totals_json(&totals));
		json_object_set_new(*ret_answer, "exact", json_boolean(totals.exact));
		json_object_set_new(*ret_answer, "requests", requests);
	}
	return true;
}

static bool read_parked_page(struct pg *pg, void *context, struct err *err)
{
	struct parked_page *page = context;
	bool done;

	/* The session is the worker's: parked_finish must not destroy it. */
	page->parked.pg = pg;
	done = query_parked_page(page, &page->answer, err);
	page->parked.pg = NULL;
	return done;
}

static void run_parked_page(struct api_call *call, struct api_worker *worker)
{
	struct parked_page *page = call->work;
	struct err err;

	if (api_worker_query(
		worker, page->parked.publisher->postgres, read_parked_page, page, &err))
		api_answer(call, 200, page->answer);
	else
		api_refuse_database(call, &err);
}

/* --- the call -------------------------------------------------------------------------------- */

static bool choose_by_arguments(struct api_call *call, struct parked *parked)
{
	struct err err;

	for (int i = 0; i < CONDITIONS; i++) {
		const char *value = api_argument(call, arguments[i]);

		if (!value || parked_choose_member(parked, arguments[i], value, &err))
			continue;
		api_refuse(call, 400, "bad_value", "%s", err.message);
		return false;
	}
	return true;
}

void api_parked_begin(struct api_call *call)
{
	struct parked_page *page = xcalloc(1, sizeof *page);
	const struct publisher_settings *publisher;

	call->work = page;
	page->limit = PAGE;
	if (!api_arguments_check(call, arguments, ARGUMENTS) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &page->limit) ||
	    !api_argument_number(call, "after", 0, INT64_MAX, &page->after) ||
	    !api_argument_yes(call, "totals", &page->totals))
		return;
	publisher = api_named_publisher(call, api_argument(call, "publisher"));
	if (!publisher)
		return;

	parked_init(&page->parked, publisher);
	if (!choose_by_arguments(call, &page->parked))
		return;
	page->chosen = parked_chosen(&page->parked);
	api_worker_run(call, run_parked_page);
}

void api_parked_forget(struct api_call *call)
{
	struct parked_page *page = call->work;

	parked_finish(&page->parked);
	free(page->chosen);
	free(page);
}

/* --- one row --------------------------------------------------------------------------------- */

struct parked_row_question {
	struct parked parked;
	int64_t id;
	bool payload;
	json_t *shown; /* NULL: the id is not parked */
};

static bool read_parked_row(struct pg *pg, void *context, struct err *err)
{
	struct parked_row_question *question = context;
	bool done;

	/* the session is the worker's: parked_finish must not destroy it */
	question->parked.pg = pg;
	done =
	    parked_show(&question->parked, question->id, question->payload, &question->shown, err);
	question->parked.pg = NULL;
	return done;
}

static void run_parked_row(struct api_call *call, struct api_worker *worker)
{
	struct parked_row_question *question = call->work;
	const struct publisher_settings *publisher = question->parked.publisher;
	owned_text char *nothing = parked_show_nothing(publisher->name, question->id);
	struct err err;

	if (!api_worker_query(worker, publisher->postgres, read_parked_row, question, &err))
		return api_refuse_database(call, &err);
	if (!question->shown)
		return api_refuse(call, 404, "not_found", "%s", nothing);
	json_object_set_new(question->shown, "source", json_string("database"));
	api_answer(call, 200, question->shown);
}

void api_parked_show_begin(struct api_call *call)
{
	static const char *const names[] = {"publisher"};
	struct parked_row_question *question = xcalloc(1, sizeof *question);
	const struct publisher_settings *publisher;
	struct err err;

	call->work = question;
	if (!api_arguments_check(call, names, 1))
		return;
	if (!parked_id(call->rest, &question->id, &err))
		return api_refuse(call, 400, "bad_value", "%s", err.message);
	publisher = api_named_publisher(call, api_argument(call, "publisher"));
	if (!publisher)
		return;

	parked_init(&question->parked, publisher);
	question->payload = call->caller->roles & ROLE_PAYLOAD;
	api_worker_run(call, run_parked_row);
}

void api_parked_show_forget(struct api_call *call)
{
	struct parked_row_question *question = call->work;

	parked_finish(&question->parked);
	free(question);
}
