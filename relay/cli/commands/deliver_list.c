#include <stdio.h>
#include "commands.h"
#include "deliver_call.h"
#include "field.h"
#include "server.h"
#include "session.h"

static void print_section(const json_t *section)
{
	OWNED(text_finish) struct text out = {0};

	deliver_call_add_section(&out, section);
	printf(
	    "%s:\n%s", json_string_value(json_object_get(section, "section")), text_string(&out));
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
	/* no output at all would look like a failure */
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
    {"json", NULL, "Prints a JSON object."},
    SERVER_OPTIONS,
    {0},
};

const struct command command_deliver_list = {
    .name = "deliver list",
    .arguments = "",
    .summary = "Shows the state of each [deliver] section of a process.",
    .description = "Queries the process at [api] listen, with the first token that has the role "
		   "read for all sections. "
		   "Counters start with that process.\n",
    .options = deliver_list_options,
    .example = "outbox-relay deliver list --json",
    .run = run_deliver_list,
};
