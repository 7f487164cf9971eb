/*
 * An operator's order about ids, carried out by outbox.lookback_operate: [the order] reads and
 * checks it and puts the question to the database, [the result] answers. api_read_order and
 * api_read_members serve the orders of other files as well.
 */
#include <string.h>
#include "api_look.h"
#include "cleanup.h"
#include "json_slice.h"
#include "lookback_metrics.h"
#include "sql_files.h"

enum { MOST_IDS = 1000 };

/* What the body says; texts and lists are its own. */
struct order {
	const char *verb, *reason;
	const json_t *ids, *filter; /* one of them */
	int whole;
};

static bool refuse_bad_order(struct api_call *call, const char *what)
{
	api_refuse(call, 400, "bad_value", "%s", what);
	return false;
}

/* --- the order ------------------------------------------------------------------------------- */

static bool read_verb(struct api_call *call, const struct order *order)
{
	if (!order->verb ||
	    !(text_equal(order->verb, "commit") || text_equal(order->verb, "rollback") ||
		text_equal(order->verb, "retry")))
		return refuse_bad_order(call, "verb is none of commit, rollback and retry");
	if (!(call->caller->roles &
		(text_equal(order->verb, "retry") ? ROLE_OPERATE : ROLE_DECIDE))) {
		api_refuse_role(call);
		return false;
	}

	if (!api_check_reason(call, order->reason))
		return false;

	/* Both or neither would leave it to a guess which ids are meant. */
	if (!order->ids == !order->filter)
		return refuse_bad_order(call, "there is one of ids and filter");
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
static const struct postgres_settings *postgres_of_ids(struct api_call *call, const json_t *ids)
{
	const struct postgres_settings *postgres = NULL, *other;
	size_t index;
	json_t *pair;

	if (!json_is_array(ids) || json_array_size(ids) == 0 || json_array_size(ids) > MOST_IDS) {
		refuse_bad_order(call, "ids is no array of 1 to 1000 pairs of type and id");
		return NULL;
	}
	json_array_foreach(ids, index, pair)
	{
		if (!is_pair(pair)) {
			refuse_bad_order(call, "one of the ids is no pair of type and id");
			return NULL;
		}
		other = api_look_postgres(call, json_string_value(json_array_get(pair, 0)), NULL);
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

static const struct postgres_settings *postgres_of_filter(
    struct api_call *call, const json_t *filter)
{
	static const char *const names[] = {
	    "type", "state", "service", "error", "from", "to", "section"};
	const char *name;
	json_t *value;

	/* An empty filter would choose every id of the database. */
	if (json_object_size(filter) == 0) {
		refuse_bad_order(
		    call, "filter is no object with a member; {\"state\": \"parked\"} is one");
		return NULL;
	}
	json_object_foreach((json_t *)filter, name, value)
	{
		/* A misspelt member would restrict nothing, and reach more ids than meant. */
		bool known = false;

		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			known |= text_equal(names[i], name);
		if (!known || !json_is_string(value)) {
			refuse_bad_order(call,
			    "filter takes texts for type, state, service, error, from, to "
			    "and section");
			return NULL;
		}
	}
	return api_look_postgres(call, json_string_value(json_object_get(filter, "type")),
	    json_string_value(json_object_get(filter, "section")));
}

static void ask_to_operate(
    struct api_call *call, const struct postgres_settings *postgres, const struct order *order)
{
	struct api_question *question = xcalloc(1, sizeof *question);
	json_t *chosen = order->ids ? json_pack("{s:O}", "ids", order->ids)
				    : json_incref((json_t *)order->filter);

	question->params[0] = xstrdup(order->verb);
	question->params[1] = json_dumps(chosen, JSON_COMPACT);
	question->params[2] = xstrdup(order->reason);
	question->params[3] = xstrdup(order->whole ? "true" : "false");
	question->params[4] = xstrdup(call->caller->token.name);
	question->param_count = 5;
	/* The order is not repeated on a new connection. */
	question->changes = true;
	json_decref(chosen);
	api_look_ask(call, postgres, sql_api_lookback_operate, question);
}

json_t *api_read_order(struct api_call *call)
{
	static const struct json_limits limits = {.depth = 10, .values = 10000};
	const char *text = text_string(&call->body);
	struct refusal refusal;
	json_error_t why;
	json_t *body;

	if (!json_check(text, call->body.length, &limits, &refusal)) {
		api_refuse(call, 400, refusal.code, "%s", refusal.text);
		return NULL;
	}
	body = json_loadb(text, call->body.length, JSON_REJECT_DUPLICATES, &why);
	if (!body) {
		api_refuse(call, 400, "bad_json", "%s", why.text);
	} else if (!json_is_object(body)) {
		api_refuse(call, 400, "bad_json", "the body is no JSON object");
		json_decref(body);
		body = NULL;
	}
	return body;
}

static const struct api_member *find_api_member(
    const char *name, const struct api_member *members, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (text_equal(members[i].name, name))
			return &members[i];
	return NULL;
}

bool api_read_members(
    struct api_call *call, const json_t *body, const struct api_member *members, size_t count)
{
	const struct api_member *member;
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)body, name, value)
	{
		member = find_api_member(name, members, count);
		/* A misspelt member would have no effect, and its sender would not know. */
		if (!member) {
			api_refuse(call, 400, "unknown_field",
			    "%.100s is no member of an order here", name);
			return false;
		}
		if ((member->type == 's' && !json_is_string(value)) ||
		    (member->type == 'b' && !json_is_boolean(value))) {
			api_refuse(call, 400, "wrong_type", "%s is no %s", name,
			    member->type == 's' ? "string" : "boolean");
			return false;
		}
		*member->ret_value = value;
	}
	return true;
}

void api_operate_begin(struct api_call *call)
{
	json_t *verb = NULL, *reason = NULL, *ids = NULL, *filter = NULL, *whole = NULL;
	const struct api_member members[] = {{"verb", 's', &verb}, {"reason", 's', &reason},
	    {"ids", 'o', &ids}, {"filter", 'o', &filter}, {"whole", 'b', &whole}};
	json_t *body = api_read_order(call);
	const struct postgres_settings *postgres;
	struct order order;

	if (!body)
		return;
	if (!api_read_members(call, body, members, sizeof members / sizeof *members))
		goto done;

	order = (struct order){
	    json_string_value(verb), json_string_value(reason), ids, filter, json_is_true(whole)};
	if (!read_verb(call, &order))
		goto done;
	postgres = ids ? postgres_of_ids(call, ids) : postgres_of_filter(call, filter);
	if (postgres)
		ask_to_operate(call, postgres, &order);
done:
	json_decref(body);
}

/* --- the result ------------------------------------------------------------------------------ */

/* The refusals of outbox.lookback_operate and their answers. */
static const struct {
	const char *sqlstate;
	unsigned status;
	const char *code, *text;
} refusals[] = {
    {"OR002", 404, "not_found", "nothing that is chosen is undecided; nothing was done"},
    {"OR005", 409, "decided_meanwhile",
	"another decision came first for some of the ids; nothing was done: look at them and send "
	"the order again"},
    {"OR007", 409, "key_held",
	"an open transaction has the unique key of one of the ids; nothing was done: try again "
	"when it has ended"},
    {"OR008", 400, "too_many_keys",
	"more than 1000 of the ids have unique keys, which is the maximum of a transaction; "
	"nothing was done: choose fewer"},
    {"22007", 400, "bad_value", "from or to is no time; 2026-11-27T08:00:00Z is one"},
    {"22008", 400, "bad_value", "from or to is no time; 2026-11-27T08:00:00Z is one"},
    {"22009", 400, "bad_value", "from or to is no time; 2026-11-27T08:00:00Z is one"},
};

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
	/* In place of a result the function may return the code of a refusal. */
	const char *code = question->well ? question->json : question->sqlstate;

	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		if (text_equal(refusals[i].sqlstate, code))
			return api_refuse(
			    call, refusals[i].status, refusals[i].code, "%s", refusals[i].text);
	if (question->well)
		count_decisions(question);
	if (question->well)
		log_info("lookback_operated", {"verb", LOG_TEXT(question->params[0])},
		    {"reason", LOG_TEXT(question->params[2])}, {"result", LOG_TEXT(question->json)},
		    {"caller", LOG_TEXT(call->caller->token.name)},
		    {"request", LOG_TEXT(call->request_id)});
	api_look_finish(call);
}
