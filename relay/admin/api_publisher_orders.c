/*
 * Orders about a publisher: pause, resume, split and rebase. [the body] is read first; each order
 * has a part of its own, which a thread of the pool carries out.
 */
#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_orders.h"
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "logging.h"
#include "producer.h"
#include "publisher_orders.h"
#include "publisher_split.h"

enum {
	MOST_SHARDS = 64,
	OWNERS_MS = 2000,
	SPLIT_MS = 8000, /* a split that needs longer is one for the command */
};

struct publisher_order {
	const struct publisher_settings *publisher;
	json_t *body, *reason, *shards, *cancel, *confirm, *all, *new_identity, *dry_run, *topic;
	bool pauses;
	/* results */
	int64_t audit, restamped;
	json_t *plan;
	int publishers; /* of the database */
};

/* --- the body -------------------------------------------------------------------------------- */

static const char *order_reason(const struct publisher_order *order)
{
	return json_string_value(order->reason);
}

void api_publisher_order_forget(struct api_call *call)
{
	struct publisher_order *order = call->work;

	json_decref(order->body);
	json_decref(order->plan);
	free(order);
}

/* Reads the members that the order takes; the reason is always one. NULL: refused. */
static struct publisher_order *read_publisher_order(struct api_call *call, const char *more)
{
	struct publisher_order *order = xcalloc(1, sizeof *order);
	const struct api_member known[] = {{"shards", 'i', &order->shards},
	    {"cancel", 'b', &order->cancel}, {"confirm", 's', &order->confirm},
	    {"all", 'b', &order->all}, {"new_identity", 'b', &order->new_identity},
	    {"dry_run", 'b', &order->dry_run}, {"topic", 's', &order->topic}};
	struct api_member members[1 + sizeof known / sizeof *known] = {
	    {"reason", 's', &order->reason}};
	size_t count = 1;

	call->work = order;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strstr(more, known[i].name))
			members[count++] = known[i];
	if (!api_arguments_check(call, NULL, 0))
		return NULL;
	order->publisher = api_named_publisher(call, call->rest);
	if (!order->publisher)
		return NULL;
	order->body = api_read_order(call);
	if (!order->body || !api_read_members(call, order->body, members, count))
		return NULL;
	return api_check_order_reason(call, order->reason, order->dry_run) ? order : NULL;
}

static void log_publisher_order(const struct api_call *call, const struct publisher_order *order)
{
	log_info("publisher_operated", {"verb", LOG_TEXT(call->verb->name)},
	    {"publisher", LOG_TEXT(order->publisher->name)},
	    {"reason", LOG_TEXT(order_reason(order))},
	    {"caller", LOG_TEXT(call->caller->token.name)}, {"audit", LOG_INT(order->audit)},
	    {"request", LOG_TEXT(call->request_id)});
}

/* The database's functions refuse an order that does not fit the publisher's state. */
static void refuse_publisher_order(struct api_call *call, const struct err *err)
{
	if (err->kind == ERR_REJECT || err->kind == ERR_FENCED)
		api_refuse(call, 409, "not_applicable", "%s", err->message);
	else
		api_refuse_database(call, err);
}

/* --- pause and resume ------------------------------------------------------------------------ */

struct publisher_change {
	struct api_call *call;
	struct publisher_order *order;
};

static bool change_pause(struct pg *pg, void *context, struct err *err)
{
	const struct publisher_change *change = context;
	const struct publisher_pause order = {.publisher = change->order->publisher->name,
	    .topic = json_string_value(change->order->topic),
	    .reason = order_reason(change->order),
	    .caller = change->call->caller->token.name,
	    .pauses = change->order->pauses};

	return publisher_pause(
	    pg, change->order->publisher->postgres, &order, &change->order->audit, err);
}

/* False: refused. */
static bool change_publisher(struct api_call *call, struct api_worker *worker,
    bool (*carry_out)(struct pg *pg, void *context, struct err *err))
{
	struct publisher_change change = {call, call->work};
	const struct postgres_settings *postgres = change.order->publisher->postgres;
	struct err err;

	if (api_change(worker, postgres, carry_out, &change, &err))
		return true;
	refuse_publisher_order(call, &err);
	return false;
}

static void run_pause(struct api_call *call, struct api_worker *worker)
{
	const struct publisher_order *order = call->work;

	if (!change_publisher(call, worker, change_pause))
		return;
	log_publisher_order(call, order);
	api_answer(call, 200,
	    json_pack("{s:s, s:O?, s:b, s:b, s:o}", "publisher", order->publisher->name, "topic",
		order->topic, "paused", order->pauses, "changed", order->audit != 0, "audit",
		api_audit_id(order->audit)));
}

static void begin_pause(struct api_call *call, bool pauses)
{
	struct publisher_order *order = read_publisher_order(call, "topic");

	if (!order)
		return;
	if (order->topic && !producer_topic_is_valid(json_string_value(order->topic)))
		return api_refuse(call, 400, "bad_value",
		    "topic has 1 to 249 characters of A-Z, a-z, 0-9, '.', '_' and '-', and is not "
		    "'.' or "
		    "'..'");
	order->pauses = pauses;
	api_worker_run(call, run_pause);
}

void api_publisher_pause_begin(struct api_call *call)
{
	begin_pause(call, true);
}

void api_publisher_resume_begin(struct api_call *call)
{
	begin_pause(call, false);
}

/* --- split ----------------------------------------------------------------------------------- */

static void refuse_split(struct api_call *call, const struct err *err, bool connected)
{
	/* a split that was cancelled, or a shard without an owner: nothing is wrong with the
	 * database */
	if (connected && err->kind == ERR_RETRY)
		api_refuse(call, 409, "not_applicable", "%s", err->message);
	else
		refuse_publisher_order(call, err);
}

static bool split_or_cancel_order(struct publisher_order *order, struct publisher_split *split,
    bool *ret_changed, struct err *err)
{
	*ret_changed = true;
	return json_is_true(order->cancel) ? publisher_split_cancel(split, ret_changed, err)
					   : publisher_split_run(split, err);
}

static void run_split(struct api_call *call, struct api_worker *worker)
{
	struct publisher_order *order = call->work;
	const struct postgres_settings *postgres = order->publisher->postgres;
	const struct api_audit audit = {
	    .verb = json_is_true(order->cancel) ? "split cancel" : "split",
	    .publisher = order->publisher->name,
	    .reason = order_reason(order),
	    .target = json_pack("{s:O*}", "shards", order->shards)};
	struct publisher_split split = {.postgres = postgres,
	    .publisher = order->publisher->name,
	    .shards = (int)json_integer_value(order->shards),
	    .owners_ms = OWNERS_MS,
	    .timeout_ms = SPLIT_MS};
	struct err err;
	bool done, changed;

	if (!api_audit_add(call, worker, postgres, &audit, &order->audit, &err))
		return refuse_publisher_order(call, &err);
	/* a session of its own, and no limit from outside: a split must be finished or cancelled */
	api_worker_interrupts(worker, false);
	split.pg = database_connect(postgres, &err);
	done = split.pg && split_or_cancel_order(order, &split, &changed, &err);
	if (!done)
		refuse_split(call, &err, split.pg && pg_state(split.pg) != PG_LOST);
	pg_destroy(split.pg);
	api_worker_interrupts(worker, true);
	if (!done)
		return;

	log_publisher_order(call, order);
	api_answer(call, 200,
	    json_pack("{s:s, s:o, s:b, s:o}", "publisher", order->publisher->name, "shards",
		order->shards ? json_incref(order->shards) : json_null(), "changed", changed,
		"audit", api_audit_id(order->audit)));
}

void api_publisher_split_begin(struct api_call *call)
{
	struct publisher_order *order = read_publisher_order(call, "shards cancel");
	json_int_t shards;

	if (!order)
		return;
	shards = json_integer_value(order->shards);
	if (!order->shards == !json_is_true(order->cancel))
		return api_refuse(call, 400, "bad_value",
		    "name one of shards, the new number of shards, and cancel, which ends a split "
		    "whose process was killed");
	if (order->shards && (shards < 1 || shards > MOST_SHARDS))
		return api_refuse(
		    call, 400, "bad_value", "shards is no whole number from 1 to %d", MOST_SHARDS);
	api_worker_run(call, run_split);
}

/* --- rebase ---------------------------------------------------------------------------------- */

static json_t *plan_json(const struct pg_result *plan)
{
	json_t *list = json_array();

	for (int i = 0; i < pg_rows(plan); i++)
		json_array_append_new(
		    list, json_pack("{s:o, s:b, s:o, s:o}", "publisher", field_json(plan, i, 0),
			      "carried", text_equal(pg_value(plan, i, 1), "t"), "rows",
			      field_json(plan, i, 2), "identity", field_json(plan, i, 3)));
	return list;
}

static bool read_rebase_plan(struct pg *pg, void *context, struct err *err)
{
	struct publisher_order *order = context;
	OWNED(owned_pg_result_destroy)
	struct pg_result *plan = publisher_rebase_plan(pg, order->publisher->postgres, err);

	if (!plan)
		return false;
	json_decref(order->plan);
	order->plan = plan_json(plan);
	order->publishers = 0;
	for (int i = 0; i < pg_rows(plan); i++)
		order->publishers += !pg_is_null(plan, i, 0);
	return true;
}

static bool change_by_rebase(struct pg *pg, void *context, struct err *err)
{
	const struct publisher_change *change = context;
	struct publisher_order *order = change->order;
	struct publisher_rebase rebase = {.reason = order_reason(order),
	    .caller = change->call->caller->token.name,
	    .new_identity = json_is_true(order->new_identity)};

	if (!publisher_rebase(pg, order->publisher->postgres, &rebase, err))
		return false;
	order->audit = rebase.audit;
	order->restamped = rebase.restamped;
	return true;
}

static void run_rebase(struct api_call *call, struct api_worker *worker)
{
	struct publisher_order *order = call->work;
	const struct postgres_settings *postgres = order->publisher->postgres;
	bool dry = json_is_true(order->dry_run);
	struct err err;

	if (!api_worker_query(worker, postgres, read_rebase_plan, order, &err))
		return refuse_publisher_order(call, &err);
	if (!dry && order->publishers > 1 && !json_is_true(order->all))
		return api_refuse(call, 409, "not_applicable",
		    "a row has one transaction id for all publishers, and %d are there: repeat "
		    "with "
		    "all",
		    order->publishers);
	if (!dry && !change_publisher(call, worker, change_by_rebase))
		return;

	if (!dry)
		log_publisher_order(call, order);
	api_answer(call, 200,
	    json_pack("{s:b, s:O, s:o, s:o}", "dry_run", dry, "plan", order->plan, "rows",
		dry ? json_null() : json_sprintf("%" PRId64, order->restamped), "audit",
		api_audit_id(order->audit)));
}

void api_publisher_rebase_begin(struct api_call *call)
{
	struct publisher_order *order =
	    read_publisher_order(call, "confirm all new_identity dry_run");

	if (!order)
		return;
	/* it changes all publishers of the database */
	if (call->caller->token.publishers.count > 0)
		return api_refuse_scope(call, "all", "publishers of the database");
	if (!json_is_true(order->dry_run) &&
	    !text_equal(json_string_value(order->confirm), publisher_rebase_question))
		return api_refuse(call, 400, "bad_value",
		    "confirm is not \"%s\": look at the plan first, with dry_run",
		    publisher_rebase_question);
	api_worker_run(call, run_rebase);
}
