#include <stdio.h>
#include "commands.h"
#include "deliver_call.h"
#include "field.h"
#include "session.h"

static long long section_number(const json_t *section, const char *name)
{
	return (long long)json_integer_value(json_object_get(section, name));
}

static const char *section_word(const json_t *section)
{
	if (!json_is_true(json_object_get(section, "works")))
		return "does not work";
	if (json_is_true(json_object_get(section, "paused")))
		return "paused";
	return "works";
}

/* Below its section; nothing for an empty one. */
static void print_section_error(const json_t *section, const char *name, const char *label)
{
	const char *error = json_string_value(json_object_get(section, name));
	OWNED(text_finish) struct text why = {0};

	if (!error || !error[0])
		return;
	text_add_line(&why, error);
	printf("  %s%s\n", label, text_string(&why));
}

static void print_section(const json_t *section)
{
	const char *breaker = json_string_value(json_object_get(section, "breaker"));

	printf("%s: %s, %lld partitions (%lld stand still), %lld of %lld messages under way, "
	       "%lld handled, %lld dead letters, breaker %s\n",
	    json_string_value(json_object_get(section, "section")), section_word(section),
	    section_number(section, "partitions"), section_number(section, "standing"),
	    section_number(section, "in_progress"), section_number(section, "messages"),
	    section_number(section, "handled"), section_number(section, "dead_letters"),
	    breaker ? breaker : "-");
	print_section_error(section, "error", "");
	print_section_error(section, "last_error", "last error: ");
}

static void print_sections(const struct call *call, json_t *answer)
{
	const json_t *sections = json_object_get(answer, "sections");
	const json_t *section;
	size_t index;

	if (call_flag(call, "json")) {
		field_print_json("", json_incref(answer), JSON_INDENT(1), "\n");
		return;
	}
	json_array_foreach(sections, index, section)
	{
		print_section(section);
	}
	if (json_array_size(sections) == 0)
		puts("no [deliver] section runs in that process");
}

static int run_deliver_list(const struct call *call)
{
	json_t *answer = NULL;
	struct err err;

	if (!deliver_call_ask(call, "/v1/deliver", NULL, &answer, &err))
		return session_failed(&err);
	print_sections(call, answer);
	json_decref(answer);
	return 0;
}

static const struct command_option deliver_list_options[] = {
    {"json", NULL, "As a JSON object."},
    {0},
};

const struct command command_deliver_list = {
    .name = "deliver list",
    .arguments = "",
    .summary = "Shows how the [deliver] sections of a process are.",
    .description =
	"Asks the process at [api] listen, with the first of operate_tokens or read_tokens. "
	"Counts are since that process began.\n",
    .options = deliver_list_options,
    .example = "outbox-relay deliver list --json",
    .run = run_deliver_list,
};
