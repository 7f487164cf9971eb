/*
 * The sections of the sidecar in this process: lists their states, and pauses or resumes one,
 * or reloads its rules. Requests are answered at once.
 */
#include <string.h>
#include "api_private.h"
#include "cleanup.h"
#include "logging.h"

DEFINE_OWNED(struct config, config_destroy)

/* --- list ------------------------------------------------------------------------------------ */

static json_t *section_json(const char *name, struct deliver *deliver)
{
	const struct deliver_status status = deliver_status(deliver);

	return json_pack("{s:s, s:b, s:b, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:o, s:o}", "section",
	    name, "works", status.works, "paused", status.paused, "breaker",
	    breaker_states[status.sends.breaker], "partitions", status.partitions, "blocked",
	    status.blocked, "messages", (json_int_t)status.messages, "in_progress",
	    (json_int_t)status.in_progress, "handled", (json_int_t)status.handled, "dead_letters",
	    (json_int_t)status.dead_letters, "error", api_text(status.error), "last_error",
	    api_text(status.last_error));
}

json_t *api_deliver_sections(const struct api_call *call)
{
	const struct config *config = api_config(call->api);
	json_t *sections = json_array();

	for (int i = 0; i < config->deliver_count; i++) {
		struct deliver *deliver = api_deliver(call->api, i);

		if (deliver &&
		    config_token_has_section(&call->caller->token, config->delivers[i].name))
			json_array_append_new(
			    sections, section_json(config->delivers[i].name, deliver));
	}
	return sections;
}

void api_deliver_list_begin(struct api_call *call)
{
	api_answer(call, 200, json_pack("{s:o}", "sections", api_deliver_sections(call)));
}

/* --- orders --------------------------------------------------------------------------------- */

/* Texts of the body. */
struct order {
	const char *verb, *section, *reason;
};

static bool is_valid_order(struct api_call *call, const struct order *order)
{
	if (!text_equal(order->verb, "pause") && !text_equal(order->verb, "resume") &&
	    !text_equal(order->verb, "reload_rules"))
		api_refuse(
		    call, 400, "bad_value", "verb is none of pause, resume and reload_rules");
	else if (!order->section)
		api_refuse(call, 400, "bad_value", "section names no [deliver] section");
	else
		return api_check_reason(call, order->reason);
	return false;
}

static struct deliver *find_deliver_section(struct api_call *call, const char *name)
{
	const struct config *config = api_config(call->api);

	for (int i = 0; i < config->deliver_count; i++)
		if (text_equal(config->delivers[i].name, name))
			return api_deliver(call->api, i);
	return NULL;
}

static void reload_rules(struct api_call *call, const struct order *order, struct deliver *deliver)
{
	struct err err;
	OWNED(owned_config_destroy)
	struct config *fresh = config_load(api_config(call->api)->path, &err);
	const struct config_deliver *section =
	    fresh ? config_find_deliver(fresh, order->section, &err) : NULL;

	if (!section || !deliver_change_rules(deliver, section, &err))
		return api_refuse(call, 400, "bad_rules", "%s", err.message);
	log_info("deliver_operated", {"verb", LOG_TEXT(order->verb)},
	    {"section", LOG_TEXT(order->section)}, {"reason", LOG_TEXT(order->reason)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 200,
	    json_pack("{s:s, s:i}", "section", order->section, "rules", section->rules.count));
}

static void obey_order(struct api_call *call, const struct order *order)
{
	struct deliver *deliver = find_deliver_section(call, order->section);
	bool pause = text_equal(order->verb, "pause");

	if (!config_token_has_section(&call->caller->token, order->section))
		return api_refuse_scope(call, "the section", order->section);
	/* The section may run in another process: a pause applies to one process only. */
	if (!deliver)
		return api_refuse(call, 404, "not_found",
		    "no such [deliver] section runs in this process; send the order to the process "
		    "that runs it");
	if (text_equal(order->verb, "reload_rules"))
		return reload_rules(call, order, deliver);
	deliver_pause(deliver, pause);
	log_info("deliver_operated", {"verb", LOG_TEXT(order->verb)},
	    {"section", LOG_TEXT(order->section)}, {"reason", LOG_TEXT(order->reason)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 200, json_pack("{s:s, s:b}", "section", order->section, "paused", pause));
}

void api_deliver_operate_begin(struct api_call *call)
{
	json_t *verb = NULL, *section = NULL, *reason = NULL;
	const struct api_member members[] = {
	    {"verb", 's', &verb}, {"section", 's', &section}, {"reason", 's', &reason}};
	json_t *body = api_read_order(call);
	struct order order;

	if (!body)
		return;
	if (api_read_members(call, body, members, sizeof members / sizeof *members)) {
		order = (struct order){
		    json_string_value(verb), json_string_value(section), json_string_value(reason)};
		if (is_valid_order(call, &order))
			obey_order(call, &order);
	}
	json_decref(body);
}
