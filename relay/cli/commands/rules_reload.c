#include <stdio.h>
#include "commands.h"
#include "deliver_call.h"
#include "server.h"
#include "session.h"

static bool reload_section(const struct call *call, const char *section, struct err *err)
{
	json_t *order, *answer = NULL;
	bool done;

	order = json_pack("{s:s, s:s, s:s}", "verb", "reload_rules", "section", section, "reason",
	    "rules reload");
	if (!order)
		return err_set(err, ERR_REJECT, "the name is not UTF-8");
	done = deliver_call_ask(call, "/v1/deliver/operate", order, &answer, err);
	if (done)
		printf("deliver %s has the rules of its file now\n", section);
	json_decref(order);
	json_decref(answer);
	return done;
}

/* Those that run in the process at --server. */
static bool reload_over_server(const struct call *call, struct err *err)
{
	json_t *answer = NULL;
	const json_t *section;
	bool done = server_ask(call, "/v1/deliver", NULL, &answer, err);
	size_t i;

	json_array_foreach(json_object_get(answer, "sections"), i, section)
	{
		done = done && reload_section(call,
				   json_string_value(json_object_get(section, "section")), err);
	}
	json_decref(answer);
	return done;
}

static bool reload_sections(const struct call *call, struct err *err)
{
	const char *name = call_text(call, "section", NULL);

	if (server_is_used(call))
		return name ? reload_section(call, name, err) : reload_over_server(call, err);

	OWNED(owned_config_destroy) struct config *config = session_config(call, err);

	if (!config)
		return false;
	if (name)
		return reload_section(call, name, err);

	for (int i = 0; i < config->deliver_count; i++)
		if (!reload_section(call, config->delivers[i].name, err))
			return false;
	return config->deliver_count > 0 ||
	       err_set(err, ERR_CONFIG, "there is no [deliver] section; name one in --config");
}

static int run_rules_reload(const struct call *call)
{
	struct err err;

	return reload_sections(call, &err) ? 0 : session_failed(&err);
}

static const struct command_option rules_reload_options[] = {
    {"section", "NAME", "Reloads the rules of this [deliver] section only."},
    SERVER_OPTIONS,
    {0},
};

const struct command command_rules_reload = {
    .name = "rules reload",
    .arguments = "",
    .summary = "Makes a process read the rules of its [deliver] sections again.",
    .description =
	"Calls the process at [api] listen, with the first token that has the role operate for the "
	"section. The process reads "
	"its configuration file and `rules_file` again, and takes nothing but the rules. Rules "
	"that keep their name and key keep their records. If anything is wrong, the command prints "
	"the place and the cure, and the section keeps its rules, as do those behind it. SIGHUP "
	"does the same, but changes all sections or none, and reloads the other settings, too.\n",
    .options = rules_reload_options,
    .example = "outbox-relay rules reload --section orders",
    .run = run_rules_reload,
};
