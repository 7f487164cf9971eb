/*
 * Lists, makes and drops partitions of the tables that are kept by time. Begin at the functions
 * api_partition…_begin, which read a request; each hands its call to the `run_…` above it.
 */
#include <inttypes.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_orders.h"
#include "cleanup.h"
#include "field_json.h"
#include "logging.h"
#include "partition_orders.h"
#include "partition_page.h"

enum { PAGE = 100, MOST_ROWS = 1000 };

struct partition_call {
	struct api_order shared;
	const char *table; /* NULL: all */
	json_t *table_name, *from, *detach;
	int64_t audit;
	struct partition_place after;
	struct partition_page page;
	json_t *made;
	struct partition_making making;
	struct partition_order order;
};

void api_partitions_forget(struct api_call *call)
{
	struct partition_call *work = call->work;

	api_order_finish(&work->shared);
	partition_page_finish(&work->page);
	json_decref(work->made);
	partition_order_finish(&work->order);
	free(work);
}

/* A partition has rows of any publisher and section. */
static bool may_see_partitions(struct api_call *call)
{
	if (!api_is_limited(call))
		return true;
	api_refuse_scope(call, "all", "partitions of the database");
	return false;
}

/* False: refused. */
static bool choose_table(struct api_call *call, const char *name)
{
	struct partition_call *work = call->work;

	for (int i = 0; name && i < PARTITION_TABLES; i++)
		if (text_equal(name, partition_tables[i]))
			work->table = partition_tables[i];
	if (!name || work->table)
		return true;
	api_refuse(call, 400, "bad_value",
	    "table=%.40s is none of message, lookback, processed and unique_ledger", name);
	return false;
}

/* --- list ------------------------------------------------------------------------------------ */

static bool read_partitions(struct pg *pg, void *context, struct err *err)
{
	struct partition_call *work = context;

	return partition_page_load(pg, work->shared.postgres, &work->page, err);
}

static void run_partitions(struct api_call *call, struct api_worker *worker)
{
	struct partition_call *work = call->work;
	struct partition_page *page = &work->page;
	owned_text char *next = NULL;
	struct err err;

	if (!api_worker_query(worker, work->shared.postgres, read_partitions, work, &err))
		return api_refuse_database(call, &err);
	next = partition_page_next(page);
	page->rows = field_json_numbers_as_text(page->rows);
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:O, s:s?}", "postgres", work->shared.postgres->name, "source",
		"database", "rows", page->rows, "next", next));
}

static bool read_partition_place(struct api_call *call, struct partition_call *work)
{
	const char *after = api_argument(call, "after");

	if (!after)
		return true;
	work->page.after = &work->after;
	if (partition_place_parse(after, &work->after))
		return true;
	api_refuse(call, 400, "bad_value",
	    "after=%.60s is no place in the list: use the value of next as it is", after);
	return false;
}

void api_partitions_begin(struct api_call *call)
{
	static const char *const names[] = {"table", "partition", "limit", "after", "postgres"};
	struct partition_call *work = xcalloc(1, sizeof *work);

	call->work = work;
	work->page.limit = PAGE;
	if (!may_see_partitions(call) ||
	    !api_arguments_check(call, names, sizeof names / sizeof *names) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &work->page.limit) ||
	    !choose_table(call, api_argument(call, "table")) || !read_partition_place(call, work))
		return;
	work->page.table = work->table;
	work->page.name = api_argument(call, "partition");
	work->shared.postgres = api_named_postgres(call, api_argument(call, "postgres"));
	if (work->shared.postgres)
		api_worker_run(call, run_partitions);
}

/* --- orders ---------------------------------------------------------------------------------- */

static bool read_partition_order(
    struct api_call *call, const struct api_member *members, size_t count)
{
	struct partition_call *work = call->work;

	return may_see_partitions(call) && api_order_begin(call, &work->shared, members, count);
}

static void refuse_partition_order(
    struct api_call *call, const struct err *err, enum partition_outcome outcome)
{
	if (err->kind == ERR_RETRY && partition_orders_are_locked(outcome))
		api_refuse(call, 409, "locked", "%s", err->message);
	else if (outcome == PARTITION_MISSING)
		api_refuse(call, 404, "not_found", "%s", err->message);
	else
		api_refuse_order(call, err);
}

static void log_partition_order(const struct api_call *call, const struct partition_call *work)
{
	log_info("partition_operated", {"verb", LOG_TEXT(call->verb->name)},
	    {"reason", LOG_TEXT(json_string_value(work->shared.reason))},
	    {"caller", LOG_TEXT(call->caller->token.name)}, {"audit", LOG_INT(work->audit)},
	    {"request", LOG_TEXT(call->request_id)});
}

/* --- make ------------------------------------------------------------------------------------ */

static void add_made(void *context, const char *table, const char *from)
{
	struct partition_call *work = context;

	json_array_append_new(work->made, json_pack("{s:s, s:s?}", "table", table, "from", from));
}

static bool change_by_making(struct pg *pg, void *context, struct err *err)
{
	struct partition_call *work = context;

	return partition_orders_make(pg, &work->making, err);
}

static void run_partition_making(struct api_call *call, struct api_worker *worker)
{
	struct partition_call *work = call->work;
	const struct api_audit audit = {.verb = "partition make",
	    .reason = json_string_value(work->shared.reason),
	    .target = json_pack("{s:O*, s:O*}", "table", work->table_name, "from", work->from)};
	struct err err;

	work->made = json_array();
	work->making = (struct partition_making){.postgres = work->shared.postgres,
	    .table = work->table,
	    .from = json_string_value(work->from),
	    .tell = add_made,
	    .context = work,
	    .outcome = PARTITION_MADE};
	if (!api_audit_add(call, worker, work->shared.postgres, &audit, &work->audit, &err) ||
	    !api_worker_change(worker, work->shared.postgres, change_by_making, work, &err))
		return refuse_partition_order(call, &err, work->making.outcome);
	log_partition_order(call, work);
	api_answer(call, 200,
	    json_pack("{s:s, s:O, s:o}", "postgres", work->shared.postgres->name, "made",
		work->made, "audit", api_audit_id(work->audit)));
}

void api_partition_make_begin(struct api_call *call)
{
	struct partition_call *work = xcalloc(1, sizeof *work);
	const struct api_member members[] = {{"table", 's', &work->table_name},
	    {"from", 's', &work->from}, {"postgres", 's', &work->shared.postgres_name},
	    {"reason", 's', &work->shared.reason}};
	struct err err;
	int64_t us;

	call->work = work;
	if (!read_partition_order(call, members, sizeof members / sizeof *members) ||
	    !choose_table(call, json_string_value(work->table_name)))
		return;
	if (work->from && !moment_parse(json_string_value(work->from), &us, &err))
		return api_refuse(call, 400, "bad_value", "from: %s", err.message);
	api_worker_run(call, run_partition_making);
}

/* --- drop ------------------------------------------------------------------------------------ */

static bool read_partition_plan(struct pg *pg, void *context, struct err *err)
{
	struct partition_call *work = context;

	partition_order_finish(&work->order);
	work->order.pg = pg;
	return partition_order_plan(&work->order, err);
}

static bool change_by_partition_drop(struct pg *pg, void *context, struct err *err)
{
	struct partition_call *work = context;

	work->order.pg = pg;
	return partition_order_carry_out(&work->order, err);
}

static void run_partition_dropping(struct api_call *call, struct api_worker *worker)
{
	struct partition_call *work = call->work;
	const struct partition_order *order = &work->order;
	bool dry = json_is_true(work->shared.dry_run);
	struct err err;

	if (!api_worker_query(worker, work->shared.postgres, read_partition_plan, work, &err) ||
	    (!dry &&
		!api_change(worker, work->shared.postgres, change_by_partition_drop, work, &err)))
		return refuse_partition_order(call, &err, order->outcome);
	work->audit = order->request.audit;
	if (!dry)
		log_partition_order(call, work);
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:b, s:b, s:o, s:b, s:s, s:s, s:o, s:o}", "partition", call->rest,
		"postgres", work->shared.postgres->name, "dry_run", dry, "detach",
		order->request.detach, "rows", json_sprintf("%" PRId64, order->rows), "exact",
		order->rows < COUNTED_ROWS, "from", order->from, "to", order->to, "bytes",
		json_sprintf("%" PRId64, order->bytes), "audit", api_audit_id(work->audit)));
}

void api_partition_drop_begin(struct api_call *call)
{
	struct partition_call *work = xcalloc(1, sizeof *work);
	const struct api_member members[] = {{"confirm", 's', &work->shared.confirm},
	    {"force", 'o', &work->shared.force}, {"detach", 'b', &work->detach},
	    {"dry_run", 'b', &work->shared.dry_run}, {"postgres", 's', &work->shared.postgres_name},
	    {"reason", 's', &work->shared.reason}};
	owned_text char *question = NULL;

	call->work = work;
	if (!read_partition_order(call, members, sizeof members / sizeof *members))
		return;
	work->shared.words = api_force_words(call, work->shared.force, partition_drop_force);
	question = partition_order_question(call->rest, json_is_true(work->detach));
	if (!work->shared.words ||
	    (!json_is_true(work->shared.dry_run) &&
		!api_check_confirmation(call, work->shared.confirm, question)))
		return;

	work->order.postgres = work->shared.postgres;
	work->order.request = (struct partition_request){.name = call->rest,
	    .detach = json_is_true(work->detach),
	    .force = work->shared.words,
	    .reason = json_string_value(work->shared.reason),
	    .caller = call->caller->token.name};
	api_worker_run(call, run_partition_dropping);
}
