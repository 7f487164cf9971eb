#include "deliver_client.h"

#include "admin_client.h"
#include "cleanup.h"
#include "text.h"

enum { ANSWER_MS = 10000 };

static bool judge_relay_answer(int status, json_t *answer, struct err *err)
{
	const char *text = json_string_value(json_object_get(answer, "detail"));

	if (status == 200 && answer)
		return true;
	return err_set(err,
	    status == 503   ? ERR_RETRY
	    : status == 403 ? ERR_DENIED
			    : ERR_REJECT,
	    "the relay answers with status %d: %s", status,
	    text ? text : "its body is not what a relay sends; does another program listen there?");
}

/* An order names its section; a list has all of them. */
static const char *token_for_order(const struct config *config, const json_t *order)
{
	return order ? config_token_for(config, ROLE_OPERATE,
			   json_string_value(json_object_get(order, "section")))
		     : config_token_for(config, ROLE_READ, NULL);
}

bool deliver_client_ask(const struct config *config, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err)
{
	const struct config_api *api = &config->api;
	owned_text char *body = order ? json_dumps(order, JSON_COMPACT) : NULL;
	const struct admin_order request = {path, token_for_order(config, order), body, ANSWER_MS};
	const struct admin_place place = admin_place_of_api(api);
	OWNED(text_finish) struct text answer = {0};
	int status;

	if (api->listen[0] == '\0')
		return err_set(err, ERR_CONFIG,
		    "[api] does not listen: set listen, add a [token] section, and restart the "
		    "relay");
	if (!request.token)
		return err_set(err, ERR_CONFIG,
		    "no [token] section has the role %s for this: add it to roles, and reload the "
		    "relay",
		    order ? "operate" : "read");
	if (!admin_ask(&place, &request, &status, &answer, err))
		return false;
	*ret_answer = json_loads(text_string(&answer), 0, NULL);
	if (judge_relay_answer(status, *ret_answer, err))
		return true;
	json_decref(*ret_answer);
	*ret_answer = NULL;
	return false;
}
