#include "deliver_client.h"

#include <stdio.h>
#include "admin_client.h"
#include "command.h"
#include "session.h"

enum { ANSWER_MS = 10000 };

const struct command_option deliver_client_options[] = {
    {"reason", "TEXT", "Why, for the log. Needed."},
    {0},
};

static const char *token_of(const struct config_api *api, bool orders)
{
	if (api->operate_tokens.count > 0)
		return api->operate_tokens.items[0];
	return !orders && api->read_tokens.count > 0 ? api->read_tokens.items[0] : NULL;
}

static bool judge_relay_answer(int status, json_t *answer, struct err *err)
{
	const char *text = json_string_value(json_object_get(answer, "error"));

	if (status == 200 && answer)
		return true;
	return err_set(err,
	    status == 503   ? ERR_RETRY
	    : status == 403 ? ERR_DENIED
			    : ERR_REJECT,
	    "the relay answers with status %d: %s", status, text ? text : "what is not JSON");
}

static bool call_relay(const struct config_api *api, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err)
{
	owned_text char *body = order ? json_dumps(order, JSON_COMPACT) : NULL;
	const struct admin_order request = {path, token_of(api, order), body, ANSWER_MS};
	OWNED(text_finish) struct text answer = {0};
	int status;

	if (!request.token)
		return err_set(err, ERR_CONFIG,
		    "[api] has no operate_tokens: set operate_tokens_file, and restart the relay");
	if (!admin_ask(api->listen, &request, &status, &answer, err))
		return false;
	*ret_answer = json_loads(text_string(&answer), 0, NULL);
	if (judge_relay_answer(status, *ret_answer, err))
		return true;
	json_decref(*ret_answer);
	*ret_answer = NULL;
	return false;
}

bool deliver_client_ask(const struct call *call, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err)
{
	OWNED(owned_config_destroy) struct config *config = session_config(call, err);

	if (!config)
		return false;
	if (config->api.listen[0] == '\0')
		return err_set(err, ERR_CONFIG,
		    "[api] does not listen: set listen and operate_tokens_file, and restart the "
		    "relay");
	return call_relay(&config->api, path, order, ret_answer, err);
}

static bool operate_section(const struct call *call, const char *verb, struct err *err)
{
	const char *section = call->arguments[0];
	const char *reason = call_text(call, "reason", "");
	json_t *order, *answer = NULL;
	bool done;

	if (reason[0] == '\0')
		return err_set(err, ERR_REJECT, "--reason is missing: say why, for the log");
	order = json_pack("{s:s, s:s, s:s}", "verb", verb, "section", section, "reason", reason);
	if (!order)
		return err_set(err, ERR_REJECT, "the name or the reason is not UTF-8");
	done = deliver_client_ask(call, "/v1/deliver/operate", order, &answer, err);
	if (done)
		printf("deliver %s is %s in that process\n", section,
		    json_is_true(json_object_get(answer, "paused")) ? "paused" : "at work");
	json_decref(order);
	json_decref(answer);
	return done;
}

int deliver_client_operate(const struct call *call, const char *verb)
{
	struct err err;

	return operate_section(call, verb, &err) ? 0 : session_failed(&err);
}
