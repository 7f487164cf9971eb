/* Lists what operators did: rows of outbox.audit, the newest ones first. */
#include <inttypes.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "sql_files.h"

enum { PAGE = 100, MOST_ROWS = 1000 };

/* Columns of audit_page.sql. */
enum {
	AUDIT_ID,
	AUDIT_AT,
	AUDIT_WHO,
	AUDIT_CALLER,
	AUDIT_VERB,
	AUDIT_PUBLISHER,
	AUDIT_TARGET,
	AUDIT_REASON
};

struct audit_page {
	const struct postgres_settings *postgres;
	int64_t before, limit; /* before 0: from the newest row on */
	char *verb, *who;      /* NULL: any */
	json_t *answer;
};

static json_t *audit_row_json(const struct pg_result *rows, int i)
{
	static const struct field_column texts[] = {{"id", AUDIT_ID}, {"at", AUDIT_AT},
	    {"who", AUDIT_WHO}, {"caller", AUDIT_CALLER}, {"verb", AUDIT_VERB},
	    {"publisher", AUDIT_PUBLISHER}, {"reason", AUDIT_REASON}};
	json_t *object = FIELD_JSON_TEXTS(rows, i, texts);

	json_object_set_new(
	    object, "target", field_json_numbers_as_text(field_json_parsed(rows, i, AUDIT_TARGET)));
	return object;
}

static bool read_audit_page(struct pg *pg, void *context, struct err *err)
{
	struct audit_page *page = context;
	owned_text char *before = page->before ? xformat("%" PRId64, page->before) : NULL;
	/* one more than a page shows whether there are further rows */
	owned_text char *most = xformat("%" PRId64, page->limit + 1);
	const struct pg_param params[] = {{before}, {page->verb}, {page->who}, {most}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(pg, page->postgres, sql_audit_page, params, 4, err);

	if (!rows)
		return false;
	page->answer =
	    json_pack("{s:s, s:s}", "postgres", page->postgres->name, "source", "database");
	api_add_page(page->answer, rows, page->limit, audit_row_json);
	return true;
}

static void run_audit_page(struct api_call *call, struct api_worker *worker)
{
	struct audit_page *page = call->work;
	struct err err;

	if (api_worker_query(worker, page->postgres, read_audit_page, page, &err))
		api_answer(call, 200, page->answer);
	else
		api_refuse_database(call, &err);
}

static char *argument_copy(const struct api_call *call, const char *name)
{
	const char *value = api_argument(call, name);

	return value ? xstrdup(value) : NULL;
}

/* A row of the audit may be about any publisher or id of the database. */
static bool may_see_audit(struct api_call *call)
{
	if (!api_is_limited(call))
		return true;
	api_refuse_scope(call, "all of", "the audit");
	return false;
}

void api_audit_begin(struct api_call *call)
{
	static const char *const names[] = {"postgres", "limit", "before", "verb", "who"};
	struct audit_page *page = xcalloc(1, sizeof *page);

	call->work = page;
	page->limit = PAGE;
	if (!may_see_audit(call) ||
	    !api_arguments_check(call, names, sizeof names / sizeof *names) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &page->limit) ||
	    !api_argument_number(call, "before", 1, INT64_MAX, &page->before))
		return;
	page->postgres = api_named_postgres(call, api_argument(call, "postgres"));
	page->verb = argument_copy(call, "verb");
	page->who = argument_copy(call, "who");
	if (page->postgres)
		api_worker_run(call, run_audit_page);
}

void api_audit_forget(struct api_call *call)
{
	struct audit_page *page = call->work;

	free(page->verb);
	free(page->who);
	free(page);
}
