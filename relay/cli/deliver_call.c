#include "deliver_call.h"

#include <stdio.h>
#include "server.h"
#include "session.h"

bool deliver_call_ask(const struct call *call, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err)
{
	if (server_is_used(call))
		return server_ask(call, path, order, ret_answer, err);

	OWNED(owned_config_destroy) struct config *config = session_config(call, err);

	return config && deliver_client_ask(config, path, order, ret_answer, err);
}

static long long section_number(const json_t *section, const char *name)
{
	return (long long)json_integer_value(json_object_get(section, name));
}

static const char *section_word(const json_t *section)
{
	/* a section that does not work handles nothing, paused or not */
	if (!json_is_true(json_object_get(section, "works")))
		return "does not work";
	if (json_is_true(json_object_get(section, "paused")))
		return "paused";
	return "works";
}

/* Adds nothing for an empty error. */
static void add_section_error(
    struct text *out, const json_t *section, const char *name, const char *label)
{
	const char *error = json_string_value(json_object_get(section, name));

	if (!error || !error[0])
		return;
	text_addf(out, "  ! %s", label);
	text_add_line(out, error);
	text_add(out, "\n");
}

void deliver_call_add_section(struct text *out, const json_t *section)
{
	const char *breaker = json_string_value(json_object_get(section, "breaker"));

	text_addf(out,
	    "  %s, %lld partition%s (%lld blocked), %lld of %lld messages in progress\n"
	    "  %lld handled, %lld dead letters, breaker %s\n",
	    section_word(section), section_number(section, "partitions"),
	    text_plural(section_number(section, "partitions")), section_number(section, "blocked"),
	    section_number(section, "in_progress"), section_number(section, "messages"),
	    section_number(section, "handled"), section_number(section, "dead_letters"),
	    breaker ? breaker : "-");
	add_section_error(out, section, "error", "");
	add_section_error(out, section, "last_error", "last error: ");
}

/*
 * An order in the database reaches all processes; without one, only the process that took it. A
 * section that works gets a resume for its blocked partitions.
 */
static void print_section_order(const char *section, const json_t *answer)
{
	bool paused = json_is_true(json_object_get(answer, "paused"));
	bool changed = json_is_true(json_object_get(answer, "changed"));
	const char *blocked = paused || changed ? "" : ": blocked partitions try again";
	OWNED(text_finish) struct text state = {0};

	text_addf(&state, "deliver %s %s %s%s", section, changed ? "is" : "was",
	    paused ? "paused" : "at work", changed ? "" : " already");
	if (text_equal(json_string_value(json_object_get(answer, "source")), "database"))
		printf("%s in every process%s (outbox.audit %s)\n", state.data, blocked,
		    json_string_value(json_object_get(answer, "audit")));
	else
		printf("%s in that process alone, which has no [postgres] section%s\n", state.data,
		    blocked);
}

static bool operate_section(const struct call *call, const char *verb, struct err *err)
{
	const char *section = call->arguments[0];
	const char *reason = call_text(call, "reason", "");
	json_t *order, *answer = NULL;
	bool done;

	if (reason[0] == '\0')
		return err_set(err, ERR_REJECT, "--reason is missing: say why, for the audit");
	order = json_pack("{s:s, s:s, s:s}", "verb", verb, "section", section, "reason", reason);
	if (!order)
		return err_set(err, ERR_REJECT, "the name or the reason is not UTF-8");
	done = deliver_call_ask(call, "/v1/deliver/operate", order, &answer, err);
	if (done)
		print_section_order(section, answer);
	json_decref(order);
	json_decref(answer);
	return done;
}

int deliver_call_operate(const struct call *call, const char *verb)
{
	struct err err;

	return operate_section(call, verb, &err) ? 0 : session_failed(&err);
}

const struct command_option deliver_operate_options[] = {
    {"reason", "TEXT", "The reason, for the audit. Required."},
    SERVER_OPTIONS,
    {0},
};
