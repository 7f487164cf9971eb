/*
 * Previews, and requests to retry or skip parked rows. [the body] chooses the rows; [preview]
 * counts them and makes a token; [the request] checks the token, counts the rows again, and notes
 * the request, which the owners of the shards carry out.
 */
#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_preview.h"
#include "api_worker.h"
#include "cleanup.h"
#include "logging.h"
#include "parked_request.h"
#include "parked_row.h"

enum { MOST_IDS = 1000, SAMPLE = 10 };

struct parked_order {
	json_t *body;
	json_t *publisher, *ids, *filter, *verb_word, *reason, *token; /* of the body; NULL: none */
	enum parked_verb verb;
	struct parked parked;
	struct parked_request request;
	char *selection; /* for the token */
	/* results */
	json_t *sample;
	bool nothing; /* no row can be addressed */
	bool changed; /* more rows match than the preview showed */
	bool is_busy; /* the owner is changing the rows */
	/* of the preview: the number of rows that it showed, and when; -1: there was none */
	int64_t shown, at_us;
	char *seen; /* the snapshot of the preview; NULL: there was none */
};

/* --- the body -------------------------------------------------------------------------------- */

static bool read_preview_verb(struct api_call *call, struct parked_order *order)
{
	const char *verb = json_string_value(order->verb_word);

	order->verb = text_equal(verb, "skip") ? PARKED_SKIP : PARKED_RETRY;
	return text_equal(verb, "skip") || text_equal(verb, "retry") ||
	       api_refuse_value(call, "verb is neither retry nor skip");
}

/* "12", 12 or 12.0, which are one number in JSON; the caller frees. NULL: no whole number. */
static char *id_word(const json_t *id)
{
	double real = json_real_value(id), most = (double)(INT64_C(1) << 53);

	/* above 2^53 a double skips numbers */
	if (real >= 1 && real <= most && real == (double)(int64_t)real)
		return xformat("%.0f", real);
	if (json_is_integer(id))
		return xformat("%" JSON_INTEGER_FORMAT, json_integer_value(id));
	return json_is_string(id) && !strchr(json_string_value(id), '=')
		   ? xstrdup(json_string_value(id))
		   : NULL;
}

/* The conditions of a filter are texts; ids are numbers as well. */
static bool choose_by_filter(struct api_call *call, struct parked_order *order, struct err *err)
{
	const char *name;
	json_t *value;

	if (!json_is_object(order->filter))
		return api_refuse_value(call,
		    "filter is no object; {\"topic\": \"orders\", \"state\": \"dead\"} is one");
	json_object_foreach((json_t *)order->filter, name, value)
	{
		bool is_id = text_equal(name, "from_id") || text_equal(name, "to_id");
		owned_text char *number = is_id && json_is_number(value) ? id_word(value) : NULL;
		const char *text = number ? number : json_string_value(value);

		if (!text)
			return api_refuse_value(call, "filter: %.100s is no %s", name,
			    is_id ? "whole number above 0" : "text");
		if (!parked_choose_member(&order->parked, name, text, err))
			return api_refuse_value(call, "%s", err->message);
	}
	return true;
}

static bool choose_by_ids(struct api_call *call, struct parked_order *order, struct err *err)
{
	char *words[MOST_IDS];
	int count = 0;
	bool done = true;
	json_t *value;
	size_t index;

	if (!json_is_array(order->ids) || json_array_size(order->ids) == 0 ||
	    json_array_size(order->ids) > MOST_IDS)
		return api_refuse_value(call, "ids is no array of 1 to 1000 ids");
	json_array_foreach(order->ids, index, value)
	{
		words[count] = id_word(value);
		done = done && words[count];
		count += words[count] != NULL;
	}

	if (!done)
		api_refuse_value(call, "one of the ids is no whole number");
	else if (!parked_choose(&order->parked, (const char *const *)words, count, true, err))
		done = api_refuse_value(call, "ids: %s", err->message);
	while (count > 0)
		free(words[--count]);
	return done;
}

static bool choose_by_body(struct api_call *call, struct parked_order *order)
{
	struct err err;

	/* both or neither would leave it to a guess which rows are meant */
	if (!order->ids == !order->filter)
		return api_refuse_value(call, "name one of ids and filter; {} as filter means all");
	return order->ids ? choose_by_ids(call, order, &err) : choose_by_filter(call, order, &err);
}

/* Reads the body, and chooses its rows. False: refused. */
static bool read_parked_order(struct api_call *call, struct parked_order *order, bool is_preview)
{
	const struct api_member members[] = {{"publisher", 's', &order->publisher},
	    {"ids", 'o', &order->ids}, {"filter", 'o', &order->filter},
	    {"reason", 's', &order->reason},
	    is_preview ? (struct api_member){"verb", 's', &order->verb_word}
		       : (struct api_member){"token", 's', &order->token}};
	const struct publisher_settings *publisher;

	order->body = api_read_order(call);
	if (!order->body ||
	    !api_read_members(call, order->body, members, sizeof members / sizeof *members))
		return false;
	publisher = api_named_publisher(call, json_string_value(order->publisher));
	if (!publisher)
		return false;

	parked_init(&order->parked, publisher);
	if (!choose_by_body(call, order))
		return false;
	order->selection = json_dumps(order->parked.chosen, JSON_COMPACT | JSON_SORT_KEYS);
	return true;
}

void api_parked_request_forget(struct api_call *call)
{
	struct parked_order *order = call->work;

	parked_request_finish(&order->request);
	parked_finish(&order->parked);
	free(order->selection);
	free(order->seen);
	json_decref(order->sample);
	json_decref(order->body);
	free(order);
}

/* Rows that cannot be addressed are no error of the database. */
static void refuse_parked_request(
    struct api_call *call, const struct parked_order *order, const struct err *err)
{
	if (order->is_busy)
		api_refuse(call, 409, "locked",
		    "the relay is changing these rows just now: repeat the call");
	else if (err->kind == ERR_REJECT)
		api_refuse(call, 409, "not_applicable", "%s", err->message);
	else
		api_refuse_database(call, err);
}

/* --- preview --------------------------------------------------------------------------------- */

static struct preview preview_of(const struct parked_order *order)
{
	return (struct preview){.verb = order->verb == PARKED_SKIP ? "skip" : "retry",
	    .publisher = order->parked.publisher->name,
	    .selection = order->selection};
}

/* Counts the rows with a new request. A filter that matches none is no error. */
static bool count_parked_order(struct parked_order *order, struct err *err)
{
	bool done;

	parked_request_finish(&order->request);
	parked_request_init(&order->request, &order->parked, order->verb);
	done = parked_request_count(&order->request, err);
	order->nothing = !done && err->kind == ERR_REJECT && order->parked.id_count == 0;
	return done || order->nothing;
}

static json_t *sample_json(struct parked_order *order, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_request_sample(&order->request, SAMPLE, err);
	json_t *list = rows ? json_array() : NULL;

	for (int i = 0; rows && i < pg_rows(rows); i++)
		json_array_append_new(list, parked_row_json(rows, i));
	return list;
}

static bool read_parked_preview(struct pg *pg, void *context, struct err *err)
{
	struct parked_order *order = context;
	json_t *sample = NULL;
	bool done;

	order->parked.pg = pg;
	done = count_parked_order(order, err) && (sample = sample_json(order, err));
	order->parked.pg = NULL;
	if (done)
		order->sample = sample;
	return done;
}

static void run_parked_preview(struct api_call *call, struct api_worker *worker)
{
	struct parked_order *order = call->work;
	const struct parked_request *request = &order->request;
	bool retry = order->verb == PARKED_RETRY;
	struct preview preview = preview_of(order);
	struct err err;
	json_t *answer;

	if (!api_worker_query(
		worker, order->parked.publisher->postgres, read_parked_preview, order, &err))
		return refuse_parked_request(call, order, &err);

	answer = json_pack("{s:s, s:s, s:s, s:o, s:b, s:o, s:{s:o, s:o, s:o}, s:O}", "publisher",
	    order->parked.publisher->name, "verb", request->word, "source", "database", "count",
	    json_sprintf("%" PRId64, request->addressed), "exact", !request->more, "matching",
	    json_sprintf("%" PRId64, request->matching), "left_out", "behind",
	    json_sprintf("%" PRId64, retry ? request->behind : 0), "free",
	    json_sprintf("%" PRId64, retry ? request->free : 0), "paused",
	    json_sprintf("%" PRId64, retry ? request->paused : 0), "sample", order->sample);
	preview.at_us = request->at_us;
	preview.count = request->addressed;
	preview_note_snapshot(&preview, request->snapshot);
	api_preview_add(call, &preview, answer);
	api_answer(call, 200, answer);
}

void api_parked_preview_begin(struct api_call *call)
{
	struct parked_order *order = xcalloc(1, sizeof *order);

	call->work = order;
	if (api_arguments_check(call, NULL, 0) && read_parked_order(call, order, true) &&
	    read_preview_verb(call, order) &&
	    (!order->reason || api_check_reason(call, json_string_value(order->reason))))
		api_worker_run(call, run_parked_preview);
}

/* --- the request ----------------------------------------------------------------------------- */

static bool recount_parked_order(struct pg *pg, void *context, struct err *err)
{
	struct parked_order *order = context;
	bool done;

	order->parked.pg = pg;
	done = count_parked_order(order, err);
	order->parked.pg = NULL;
	order->changed = done && order->shown >= 0 && order->request.addressed > order->shown;
	return done;
}

struct noting {
	struct parked_order *order;
	const char *caller;
};

static bool note_parked_order(struct pg *pg, void *context, struct err *err)
{
	const struct noting *noting = context;
	struct parked_order *order = noting->order;
	bool done;

	order->parked.pg = pg;
	done = parked_request_note(
	    &order->request, json_string_value(order->reason), noting->caller, err);
	order->is_busy = !done && text_equal(pg_sqlstate(pg), "OR002");
	order->parked.pg = NULL;
	return done;
}

/* Of a preview: false: the token is wrong, and the call was refused. */
static bool check_preview(struct api_call *call, struct parked_order *order)
{
	struct preview preview = preview_of(order);

	order->shown = -1;
	if (!order->token && order->parked.id_count > 0)
		return true;
	if (!api_preview_check(call, order->token, "/v1/parked/preview", &preview))
		return false;
	order->shown = preview.count;
	order->at_us = preview.at_us;
	order->seen = preview.seen[0] ? xstrdup(preview.seen) : NULL;
	return true;
}

static void run_parked_request(struct api_call *call, struct api_worker *worker)
{
	struct parked_order *order = call->work;
	const struct postgres_settings *postgres = order->parked.publisher->postgres;
	struct parked_request *request = &order->request;
	struct noting noting = {order, call->caller->token.name};
	struct err err;

	if (!api_worker_query(worker, postgres, recount_parked_order, order, &err) ||
	    order->nothing)
		return refuse_parked_request(call, order, &err);
	if (order->changed)
		return api_refuse(call, 409, "changed",
		    "%" PRId64 " rows match now, and the preview showed %" PRId64
		    ": make a new preview",
		    request->addressed, order->shown);

	/* as many rows may match as before, and be others: the request leaves later ones alone */
	if (order->shown >= 0 && order->parked.id_count == 0)
		parked_request_end(request, order->at_us);
	request->seen = order->seen;
	request->shown = order->shown;
	if (!api_worker_change(worker, postgres, note_parked_order, &noting, &err))
		return refuse_parked_request(call, order, &err);

	log_info("parked_operated", {"verb", LOG_TEXT(request->word)},
	    {"publisher", LOG_TEXT(order->parked.publisher->name)},
	    {"caller", LOG_TEXT(noting.caller)},
	    {"reason", LOG_TEXT(json_string_value(order->reason))}, {"audit", LOG_INT(request->id)},
	    {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 202,
	    json_pack("{s:s, s:s, s:s, s:o, s:b, s:o}", "publisher", order->parked.publisher->name,
		"postgres", postgres->name, "verb", request->word, "count",
		json_sprintf("%" PRId64, request->addressed), "exact", !request->more, "audit",
		json_sprintf("%" PRId64, request->id)));
}

static void begin_parked_request(struct api_call *call, enum parked_verb verb)
{
	struct parked_order *order = xcalloc(1, sizeof *order);

	call->work = order;
	order->verb = verb;
	if (api_arguments_check(call, NULL, 0) && read_parked_order(call, order, false) &&
	    api_check_reason(call, json_string_value(order->reason)) && check_preview(call, order))
		api_worker_run(call, run_parked_request);
}

void api_parked_retry_begin(struct api_call *call)
{
	begin_parked_request(call, PARKED_RETRY);
}

void api_parked_skip_begin(struct api_call *call)
{
	begin_parked_request(call, PARKED_SKIP);
}
