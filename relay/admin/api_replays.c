/*
 * Previews of replays, and new ones. [the body] says which rows go where; [preview] counts them and
 * makes a token; [the request] checks the token, counts again, and notes a replay that a relay
 * carries out (relay/daemon/replays.h). GET /v1/jobs shows it.
 */
#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_preview.h"
#include "api_worker.h"
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "producer.h"
#include "replay_checks.h"
#include "replay_row.h"

enum { MOST_RATE = 10000000 };

struct replay_order {
	json_t *body;
	json_t *publisher_word, *filter, *to, *rate, *reason, *token; /* of the body; NULL: none */
	const struct publisher_settings *publisher;
	int64_t at_us;   /* of the call: later moments are refused */
	char *selection; /* for the token */
	struct replay replay;
	struct replay_plan plan;
};

/* --- the body -------------------------------------------------------------------------------- */

/* Its members are the terms of `outbox-relay replay`. */
static bool fill_filter(struct replay_order *order, struct err *err)
{
	const char *name;
	json_t *value;

	json_object_foreach(order->filter, name, value)
	{
		owned_text char *term = NULL;

		if (!json_is_string(value) || strchr(name, '='))
			return err_set(err, ERR_REJECT,
			    "filter: %.60s is no text; {\"topic\": \"orders\", \"ids\": "
			    "\"10..20\"} is a "
			    "filter",
			    name);
		term = xformat("%s=%s", name, json_string_value(value));
		if (!replay_filter_add(&order->replay.filter, term, order->at_us, err))
			return false;
	}
	return true;
}

/* Begins anew, since a count may be repeated. */
static bool make_replay(struct replay_order *order, struct err *err)
{
	replay_plan_finish(&order->plan);
	replay_finish(&order->replay);
	replay_init(&order->replay, order->publisher);
	order->replay.by_relay = true;
	order->replay.target = order->to ? xstrdup(json_string_value(order->to)) : NULL;
	order->replay.rate = order->rate ? json_integer_value(order->rate) : 0;
	return fill_filter(order, err);
}

static bool check_target_and_rate(struct api_call *call, const struct replay_order *order)
{
	if (order->to && !producer_topic_is_valid(json_string_value(order->to)))
		api_refuse(call, 400, "bad_value",
		    "to: %.60s is no topic's name: 1 to 249 of A-Z a-z 0-9 . _ -",
		    json_string_value(order->to));
	else if (order->rate && (json_integer_value(order->rate) < 1 ||
				    json_integer_value(order->rate) > MOST_RATE))
		api_refuse(
		    call, 400, "bad_value", "rate is no whole number from 1 to %d", MOST_RATE);
	else
		return true;
	return false;
}

static bool read_replay_order(struct api_call *call, struct replay_order *order, bool is_preview)
{
	const struct api_member members[] = {{"publisher", 's', &order->publisher_word},
	    {"filter", 'o', &order->filter}, {"to", 's', &order->to}, {"rate", 'i', &order->rate},
	    {"reason", 's', &order->reason}, {"token", 's', &order->token}};
	struct err err;

	order->body = api_read_order(call);
	if (!order->body || !api_read_members(call, order->body, members, is_preview ? 5 : 6) ||
	    !check_target_and_rate(call, order))
		return false;
	if (!json_is_object(order->filter)) {
		api_refuse(call, 400, "bad_value",
		    "filter is no object; {\"topic\": \"orders\"} is one, and {} means all rows");
		return false;
	}

	order->publisher = api_named_publisher(call, json_string_value(order->publisher_word));
	if (!order->publisher)
		return false;
	if (!make_replay(order, &err)) {
		if (order->replay.filter.conflicts)
			api_refuse(call, 409, "conflicting_arguments", "%s", err.message);
		else
			api_refuse(call, 400, "bad_value", "%s", err.message);
		return false;
	}
	json_t *selection = json_pack(
	    "{s:O, s:O?, s:O?}", "filter", order->filter, "to", order->to, "rate", order->rate);
	order->selection = json_dumps(selection, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(selection);
	return true;
}

static struct replay_order *make_replay_order(struct api_call *call)
{
	struct replay_order *order = xcalloc(1, sizeof *order);

	call->work = order;
	order->at_us = clock_wall_us();
	replay_init(&order->replay, NULL);
	return order;
}

void api_replay_forget(struct api_call *call)
{
	struct replay_order *order = call->work;

	replay_plan_finish(&order->plan);
	replay_finish(&order->replay);
	free(order->selection);
	json_decref(order->body);
	free(order);
}

/* --- preview --------------------------------------------------------------------------------- */

static bool count_replay(struct pg *pg, void *context, struct err *err)
{
	struct replay_order *order = context;

	return make_replay(order, err) && replay_plan_make(&order->replay, pg, &order->plan, err);
}

/* False: refused. */
static bool plan_replay(struct api_call *call, struct api_worker *worker)
{
	struct replay_order *order = call->work;
	struct topic_metadata *metadata =
	    api_parts_of(call->api)
		->topic_metadata[order->publisher->kafka - api_config(call->api)->kafka];
	struct err err;

	if (!api_worker_query(worker, order->publisher->postgres, count_replay, order, &err)) {
		if (err.kind == ERR_REJECT)
			api_refuse(call, 409, "not_applicable", "%s", err.message);
		else
			api_refuse_database(call, &err);
		return false;
	}
	/* a missing topic is said now, and not by a job that fails */
	if (replay_check_topics(&order->replay, &order->plan, metadata, &err))
		return true;
	if (err.kind == ERR_REJECT)
		api_refuse(call, 409, "not_applicable", "%s", err.message);
	else
		api_refuse(call, 503, "no_acknowledgement", "%s", err.message);
	return false;
}

static json_t *planned_topics_json(const struct replay_order *order)
{
	json_t *topics = json_array();

	for (int i = 0; i < order->plan.count; i++)
		json_array_append_new(topics,
		    json_pack("{s:s, s:s, s:o}", "topic", order->plan.topics[i].name, "to",
			order->replay.target ? order->replay.target : order->plan.topics[i].name,
			"count", json_sprintf("%" PRId64, order->plan.topics[i].rows)));
	return topics;
}

static struct preview preview_of_replay(const struct replay_order *order)
{
	return (struct preview){
	    .verb = "replay", .publisher = order->publisher->name, .selection = order->selection};
}

static void run_replay_preview(struct api_call *call, struct api_worker *worker)
{
	struct replay_order *order = call->work;
	struct preview preview = preview_of_replay(order);
	json_t *answer;

	if (!plan_replay(call, worker))
		return;
	preview.at_us = clock_wall_us();
	preview.count = order->replay.total;
	answer = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "publisher", order->publisher->name,
	    "source", "database", "count", json_sprintf("%" PRId64, order->replay.total), "from_id",
	    json_sprintf("%" PRId64, order->plan.low_id), "to_id",
	    json_sprintf("%" PRId64, order->replay.upto_id), "topics", planned_topics_json(order));
	api_preview_add(call, &preview, answer);
	api_answer(call, 200, answer);
}

void api_replay_preview_begin(struct api_call *call)
{
	struct replay_order *order = make_replay_order(call);

	if (api_arguments_check(call, NULL, 0) && read_replay_order(call, order, true) &&
	    (!order->reason || api_check_reason(call, json_string_value(order->reason))))
		api_worker_run(call, run_replay_preview);
}

/* --- the request ----------------------------------------------------------------------------- */

static bool note_replay(struct pg *pg, void *context, struct err *err)
{
	struct api_call *call = context;
	struct replay_order *order = call->work;

	return replay_create(&order->replay, pg, order->plan.low_id,
	    json_string_value(order->reason), call->caller->token.name, err);
}

static void run_new_replay(struct api_call *call, struct api_worker *worker)
{
	struct replay_order *order = call->work;
	owned_text char *job = NULL;
	struct preview shown = preview_of_replay(order);
	struct err err;

	if (!api_preview_check(call, order->token, "/v1/replays/preview", &shown) ||
	    !plan_replay(call, worker))
		return;
	if (order->replay.total > shown.count)
		return api_refuse(call, 409, "changed",
		    "%" PRId64 " rows match now, and the preview showed %" PRId64
		    ": make a new preview",
		    order->replay.total, shown.count);
	if (!api_worker_change(worker, order->publisher->postgres, note_replay, call, &err))
		return api_refuse_database(call, &err);
	api_wake_jobs(call, order->publisher->postgres);

	log_info("replay_noted", {"replay", LOG_INT(order->replay.id)},
	    {"publisher", LOG_TEXT(order->publisher->name)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"reason", LOG_TEXT(json_string_value(order->reason))},
	    {"request", LOG_TEXT(call->request_id)});
	job = xformat("replay-%" PRId64, order->replay.id);
	api_answer(call, 202,
	    json_pack("{s:s, s:s, s:s, s:o}", "publisher", order->publisher->name, "postgres",
		order->publisher->postgres->name, "job", job, "count",
		json_sprintf("%" PRId64, order->replay.total)));
}

void api_replay_begin(struct api_call *call)
{
	struct replay_order *order = make_replay_order(call);

	if (api_arguments_check(call, NULL, 0) && read_replay_order(call, order, false) &&
	    api_check_reason(call, json_string_value(order->reason)))
		api_worker_run(call, run_new_replay);
}
