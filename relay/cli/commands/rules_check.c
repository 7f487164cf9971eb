#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "deliver_check.h"
#include "rule_list.h"
#include "session.h"

/* The rules as they are understood, which shows what a JSON object means. */
static bool print_rules(
    const struct config_deliver *section, const struct config_list *rules, struct err *err)
{
	const struct rule_places places = {
	    section->user, section->content, section->channel, section->zone};
	struct rule_list list;
	bool good = rule_list_parse(
	    &list, (const char *const *)rules->items, (size_t)rules->count, &places, NULL, err);

	for (size_t i = 0; good && i < list.count; i++)
		printf("  %s: %s, at most %lld messages of %s, then %s\n", list.rules[i]->name,
		    list.rules[i]->type->spec.name, (long long)list.rules[i]->most,
		    list.rules[i]->expression, list.rules[i]->acts);
	if (good && list.count == 0)
		puts("  no rules");
	rule_list_finish(&list);
	return good;
}

/* path NULL: the section's own rules. */
static bool check_rules_of(const struct config_deliver *section, const char *path, struct err *err)
{
	OWNED(config_list_finish) struct config_list read = {0};
	const struct config_list *rules = &section->rules;

	if (path && !config_rules_read(path, &read, err))
		return false;
	if (path)
		rules = &read;
	if (!deliver_check_rules(section, rules, path ? path : section->rules_file, err))
		return false;
	printf("%s: no error\n", path ? path : section->name);
	return print_rules(section, rules, err);
}

/* For a file that no section has yet: its form is checked, with any user. */
static bool check_rules_alone(const char *path, struct err *err)
{
	const struct config_deliver section = {.name = "",
	    .origin = "command line",
	    .path = "/",
	    .rules_store = "",
	    .user = "key",
	    .content = "payload",
	    .channel = "topic",
	    .zone = "UTC"};

	return check_rules_of(&section, path, err);
}

static bool check_rules(const struct call *call, struct err *err)
{
	const char *path = call->argument_count ? call->arguments[0] : NULL;
	const char *name = call_text(call, "section", NULL);

	if (path && !name)
		return check_rules_alone(path, err);

	OWNED(owned_config_destroy) struct config *config = session_config(call, err);
	const struct config_deliver *section =
	    config && name ? config_find_deliver(config, name, err) : NULL;
	if (!config || (name && !section))
		return false;
	if (section)
		return check_rules_of(section, path, err);

	for (int i = 0; i < config->deliver_count; i++)
		if (!check_rules_of(&config->delivers[i], NULL, err))
			return false;
	if (config->deliver_count == 0)
		puts("there is no [deliver] section");
	return true;
}

static int run_rules_check(const struct call *call)
{
	struct err err;

	return check_rules(call, &err) ? 0 : session_failed(&err);
}

static const struct command_option rules_check_options[] = {
    {"section", "NAME", "Checks the rules for this [deliver] section."},
    {0},
};

const struct command command_rules_check = {
    .name = "rules check",
    .arguments = "[FILE]",
    .most_arguments = 1,
    .summary = "Checks rules and shows how they are understood.",
    .description =
	"Without FILE it checks the rules of the configuration: those of --section, or of every "
	"[deliver] section. With FILE and --section it checks whether the section could have that "
	"file as `rules_file`. With FILE alone it needs no configuration, and checks the file's "
	"form. It connects to nothing, and prints the first error with its line or member and the "
	"cure.\n",
    .options = rules_check_options,
    .example = "outbox-relay rules check rules.json --section orders",
    .no_server =
	"it reads a file of this machine; call it where the file is, then use rules reload",
    .run = run_rules_check,
};
