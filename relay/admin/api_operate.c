/*
 * An operator's order about ids, carried out by outbox.lookback_operate, and the preview of one
 * that selects ids by a filter. [the body] reads and checks it, [preview] counts the ids and makes
 * a token, [the order] checks the token and puts the question to the database, [the result]
 * answers. api_read_order and api_read_members serve the orders of other files as well.
 */
#include <inttypes.h>
#include <string.h>
#include "api_look.h"
#include "api_preview.h"
#include "cleanup.h"
#include "json_slice.h"
#include "lookback_metrics.h"
#include "moment.h"
#include "sql_files.h"

enum { MOST_IDS = 1000, MOST_MATCHING = 100000, SAMPLE = 10 };

/* What the body says; the values are its own. */
struct order {
	const char *verb, *reason;
	const json_t *ids;
	json_t *filter;      /* or ids */
	const json_t *token; /* NULL: none */
	bool whole;
	const struct postgres_settings *postgres;
};

/* --- the body -------------------------------------------------------------------------------- */

static bool read_verb(struct api_call *call, const struct order *order)
{
	if (!order->verb ||
	    !(text_equal(order->verb, "commit") || text_equal(order->verb, "rollback") ||
		text_equal(order->verb, "retry")))
		return api_refuse_value(call, "verb is none of commit, rollback and retry");
	if (!(call->caller->roles &
		(text_equal(order->verb, "retry") ? ROLE_OPERATE : ROLE_DECIDE))) {
		api_refuse_role(call);
		return false;
	}
	return true;
}

static bool is_pair(const json_t *pair)
{
	return json_array_size(pair) == 2 && json_is_string(json_array_get(pair, 0)) &&
	       json_is_string(json_array_get(pair, 1));
}

/*
 * All ids must be in one database: an order over several would be half done when one of them is
 * away.
 */
static const struct postgres_settings *postgres_of_ids(
    struct api_call *call, const char *named, const json_t *ids)
{
	const struct postgres_settings *postgres = NULL, *other;
	size_t index;
	json_t *pair;

	if (!json_is_array(ids) || json_array_size(ids) == 0 || json_array_size(ids) > MOST_IDS) {
		api_refuse_value(call, "ids is no array of 1 to 1000 pairs of type and id");
		return NULL;
	}
	json_array_foreach(ids, index, pair)
	{
		if (!is_pair(pair)) {
			api_refuse_value(call, "one of the ids is no pair of type and id");
			return NULL;
		}
		other = api_look_postgres(
		    call, named, json_string_value(json_array_get(pair, 0)), NULL);
		if (other && postgres && other != postgres) {
			api_refuse(call, 400, "several_databases",
			    "the ids are in several databases: one request for each");
			return NULL;
		}
		if (!other)
			return NULL;
		postgres = other;
	}
	return postgres;
}

/* Moments become those of the database. */
static const struct postgres_settings *postgres_of_filter(
    struct api_call *call, const char *named, json_t *filter)
{
	const char *name;
	struct err err;
	json_t *value, *condition;

	/* An empty filter would choose every id of the database. */
	if (json_object_size(filter) == 0) {
		api_refuse_value(
		    call, "filter is no object with a member; {\"state\": \"parked\"} is one");
		return NULL;
	}
	json_object_foreach(filter, name, value)
	{
		/* A misspelt member would restrict nothing, and reach more ids than meant. */
		if (!api_look_is_condition(name) || !json_is_string(value)) {
			api_refuse_value(call,
			    "filter: %.100s is no %s; it takes texts for state, type, section, "
			    "service, error, from and to",
			    name, api_look_is_condition(name) ? "text" : "member");
			return NULL;
		}
		condition = api_look_condition(name, json_string_value(value), NULL, &err);
		if (!condition) {
			api_refuse_value(call, "%s", err.message);
			return NULL;
		}
		/* a new value for a name that is there does not disturb the loop */
		json_object_set_new(filter, name, condition);
	}
	return api_look_postgres(call, named, json_string_value(json_object_get(filter, "type")),
	    json_string_value(json_object_get(filter, "section")));
}

/* The member whose text has a NUL, also within an array. NULL: none has. */
static const char *member_with_nul(const json_t *value, const char *name)
{
	const char *found = json_has_nul(value) ? name : NULL, *inner;
	size_t index;
	json_t *item;

	json_object_foreach((json_t *)value, inner, item)
	{
		if (!found)
			found = member_with_nul(item, inner);
	}
	json_array_foreach((json_t *)value, index, item)
	{
		if (!found)
			found = member_with_nul(item, name);
	}
	return found;
}

json_t *api_read_order(struct api_call *call)
{
	static const struct json_limits limits = {.depth = 10, .values = 10000};
	const char *text = text_string(&call->body), *name;
	json_error_t why;
	json_t *body;

	if (!api_check_object(call, &limits))
		return NULL;
	body = json_loadb(text, call->body.length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	/* A number that no integer holds becomes a fraction, so that its member is refused by name.
	 */
	if (!body)
		body = json_read(text, call->body.length, &why);
	if (!body) {
		api_refuse(call, 400, "bad_json", "%s", why.text);
		return NULL;
	}
	name = member_with_nul(body, "");
	if (!name)
		return body;
	api_refuse(call, 400, "bad_value",
	    "%.100s holds a NUL (\\u0000), which no text of PostgreSQL has: leave it out", name);
	json_decref(body);
	return NULL;
}

static const struct api_member *find_api_member(
    const char *name, const struct api_member *members, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (text_equal(members[i].name, name))
			return &members[i];
	return NULL;
}

/* 64.0 is the number 64 in JSON, and stays another one in jansson. */
static json_t *whole_number(json_t *value)
{
	double real = json_real_value(value), most = (double)(INT64_C(1) << 53);

	/* above 2^53 a double skips numbers */
	if (json_is_real(value) && real >= -most && real <= most && real == (double)(int64_t)real)
		return json_integer((json_int_t)real);
	return json_incref(value);
}

static bool has_type(const json_t *value, char type)
{
	return type == 'o' || (type == 's' && json_is_string(value)) ||
	       (type == 'b' && json_is_boolean(value)) || (type == 'i' && json_is_integer(value));
}

static const char *type_name(char type)
{
	return type == 's' ? "string" : type == 'b' ? "boolean" : "whole number";
}

bool api_read_members(
    struct api_call *call, json_t *body, const struct api_member *members, size_t count)
{
	const struct api_member *member;
	const char *name;
	json_t *value;

	json_object_foreach(body, name, value)
	{
		member = find_api_member(name, members, count);
		/* A misspelt member would have no effect, and its sender would not know. */
		if (!member) {
			api_refuse(call, 400, "unknown_field",
			    "%.100s is no member of an order here", name);
			return false;
		}
		if (member->type == 'i') {
			/* a new value for a name that is there does not disturb the loop */
			json_object_set_new(body, name, whole_number(value));
			value = json_object_get(body, name);
		}
		if (!has_type(value, member->type)) {
			api_refuse(
			    call, 400, "wrong_type", "%s is no %s", name, type_name(member->type));
			return false;
		}
		*member->ret_value = value;
	}
	return true;
}

/* Reads verb, reason and selection, and chooses the database. False: refused. */
static bool read_operate_order(
    struct api_call *call, json_t *body, bool is_preview, struct order *order)
{
	json_t *verb = NULL, *reason = NULL, *ids = NULL, *filter = NULL, *whole = NULL,
	       *token = NULL, *postgres = NULL;
	const struct api_member members[] = {{"verb", 's', &verb}, {"reason", 's', &reason},
	    {"filter", 'o', &filter}, {"postgres", 's', &postgres}, {"ids", 'o', &ids},
	    {"whole", 'b', &whole}, {"token", 's', &token}};
	const size_t count = sizeof members / sizeof *members;
	const char *named = NULL;

	/* a preview takes the first four */
	if (!api_read_members(call, body, members, is_preview ? 4 : count))
		return false;
	*order = (struct order){json_string_value(verb), json_string_value(reason), ids, filter,
	    token, json_is_true(whole), NULL};
	if (!read_verb(call, order) ||
	    ((!is_preview || reason) && !api_check_reason(call, order->reason)))
		return false;

	/* Both or neither would leave it to a guess which ids are meant. */
	if (!ids == !filter)
		return api_refuse_value(call, "%s",
		    is_preview ? "filter is missing" : "there is one of ids and filter");
	if (ids && token)
		return api_refuse_value(call, "token does not go with ids: leave it out");
	named = json_string_value(postgres);
	order->postgres =
	    ids ? postgres_of_ids(call, named, ids) : postgres_of_filter(call, named, filter);
	return order->postgres != NULL;
}

/* The refusals of outbox.lookback_operate and their answers. */
static const struct {
	const char *sqlstate;
	unsigned status;
	const char *code, *text;
} refusals[] = {
    {"OR002", 404, "not_found",
	"nothing that is chosen is undecided, or no longer; nothing was done"},
    {"OR005", 409, "decided_meanwhile",
	"another decision came first for some of the ids; nothing was done: look at them and send "
	"the order again"},
    {"OR007", 409, "key_held",
	"an open transaction has the unique key of one of the ids; nothing was done: try again "
	"when it has ended"},
    {"OR008", 400, "too_many_keys",
	"more than 1000 of the ids have unique keys, which is the maximum of a transaction; "
	"nothing was done: choose fewer"},
    {"OR009", 409, "changed",
	"more ids match now than the preview showed; nothing was done: make a new preview"},
};

/* In place of a result the function may return the code of a refusal. */
static bool refuse_by_sqlstate(struct api_call *call, const struct api_question *question)
{
	const char *code = question->well ? question->json : question->sqlstate;

	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		if (text_equal(refusals[i].sqlstate, code)) {
			api_refuse(
			    call, refusals[i].status, refusals[i].code, "%s", refusals[i].text);
			return true;
		}
	return false;
}

/* --- preview --------------------------------------------------------------------------------- */

/* The caller frees. */
static char *selection_of(const json_t *filter)
{
	return json_dumps(filter, JSON_COMPACT | JSON_SORT_KEYS);
}

/* An order over a filter is about this preview. */
static struct preview preview_of_filter(
    const char *verb, const char *database, const char *selection)
{
	const bool commit = text_equal(verb, "commit"), retry = text_equal(verb, "retry");

	return (struct preview){.verb = commit  ? "lookback commit"
					: retry ? "lookback retry"
						: "lookback rollback",
	    .publisher = database,
	    .selection = selection};
}

void api_lookback_preview_begin(struct api_call *call)
{
	json_t *body = api_read_order(call);
	struct api_question *question;
	struct order order;

	if (body && read_operate_order(call, body, true, &order)) {
		question = xcalloc(1, sizeof *question);
		question->params[0] = selection_of(order.filter);
		question->params[1] = xformat("%d", MOST_MATCHING);
		question->params[2] = xformat("%d", SAMPLE);
		question->param_count = 3;
		/* not of the query: api_lookback_preview_finish makes the token from them */
		question->params[3] = xstrdup(order.verb);
		question->params[4] = xstrdup(order.postgres->name);
		api_look_ask(call, order.postgres, sql_api_lookback_preview, question);
	}
	json_decref(body);
}

/* A selection that was not counted to its end has no token: its order would change unseen ids. */
static void add_lookback_token(
    struct api_call *call, const struct api_question *question, json_t *answer)
{
	struct preview preview =
	    preview_of_filter(question->params[3], question->params[4], question->params[0]);

	if (!json_is_true(json_object_get(answer, "exact"))) {
		json_object_set_new(answer, "token", json_null());
		json_object_set_new(answer, "expires_at", json_null());
		return;
	}
	preview.at_us = json_integer_value(json_object_get(answer, "at_us"));
	text_to_int64(
	    json_string_value(json_object_get(answer, "count")), 0, MOST_MATCHING, &preview.count);
	api_preview_add(call, &preview, answer);
}

void api_lookback_preview_finish(struct api_call *call)
{
	const struct api_question *question = call->work;
	json_t *answer;

	if (refuse_by_sqlstate(call, question))
		return;
	if (!question->well)
		return api_refuse_database(call, &question->err);
	answer = json_loads(question->json, 0, NULL);
	json_object_set_new(answer, "verb", json_string(question->params[3]));
	json_object_set_new(answer, "source", json_string("database"));
	add_lookback_token(call, question, answer);
	json_object_del(answer, "at_us");
	api_answer(call, 200, answer);
}

/* --- the order ------------------------------------------------------------------------------- */

/* The ids of a filter that have not been added or parked since the preview. NULL: refused. */
static json_t *chosen_by_filter(struct api_call *call, const struct order *order, char **ret_most)
{
	owned_text char *selection = selection_of(order->filter);
	struct preview preview = preview_of_filter(order->verb, order->postgres->name, selection);
	char until[MOMENT_SIZE];
	json_t *chosen;

	if (!api_preview_check(call, order->token, "/v1/lookback/preview", &preview))
		return NULL;
	*ret_most = xformat("%" PRId64, preview.count);
	moment_format_exact(preview.at_us, until);
	chosen = json_copy((json_t *)order->filter);
	json_object_set_new(chosen, "until", json_string(until));
	return chosen;
}

static void ask_to_operate(struct api_call *call, const struct order *order)
{
	char *most = NULL;
	json_t *chosen = order->ids ? json_pack("{s:O}", "ids", order->ids)
				    : chosen_by_filter(call, order, &most);
	struct api_question *question;

	if (!chosen)
		return;
	question = xcalloc(1, sizeof *question);
	question->params[0] = xstrdup(order->verb);
	question->params[1] = json_dumps(chosen, JSON_COMPACT);
	question->params[2] = xstrdup(order->reason);
	question->params[3] = xstrdup(order->whole ? "true" : "false");
	question->params[4] = xstrdup(call->caller->token.name);
	question->params[5] = most;
	question->param_count = 6;
	/* The order is not repeated on a new connection. */
	question->changes = true;
	json_decref(chosen);
	api_look_ask(call, order->postgres, sql_api_lookback_operate, question);
}

void api_operate_begin(struct api_call *call)
{
	json_t *body = api_read_order(call);
	struct order order;

	if (body && read_operate_order(call, body, false, &order))
		ask_to_operate(call, &order);
	json_decref(body);
}

/* --- the result ------------------------------------------------------------------------------ */

/* Counts the decisions of orders that decide, by section. */
static void count_decisions(const struct api_question *question)
{
	json_t *answer = question->json ? json_loads(question->json, 0, NULL) : NULL;
	const char *section;
	json_t *count;

	/* A retry decides nothing. */
	if (!text_equal(question->params[0], "retry"))
		json_object_foreach(json_object_get(answer, "sections"), section, count)
		    metric_add(METRIC_LABELLED(lookback_metrics(section).decisions, "operator"),
			(double)json_integer_value(count));
	json_decref(answer);
}

void api_operate_finish(struct api_call *call)
{
	const struct api_question *question = call->work;

	if (refuse_by_sqlstate(call, question))
		return;
	if (question->well)
		count_decisions(question);
	if (question->well)
		log_info("lookback_operated", {"verb", LOG_TEXT(question->params[0])},
		    {"reason", LOG_TEXT(question->params[2])}, {"result", LOG_TEXT(question->json)},
		    {"caller", LOG_TEXT(call->caller->token.name)},
		    {"request", LOG_TEXT(call->request_id)});
	api_look_finish(call);
}
