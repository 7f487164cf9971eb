#include "help.h"

#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "manual.h"

static int write_manual(const char *folder)
{
	owned_text char *error = NULL;

	if (manual_write(folder, &error))
		return 0;
	fprintf(stderr, "outbox-relay: %s\n", error);
	return EXIT_OUTPUT;
}

static int run_help(const struct call *call)
{
	OWNED(text_finish) struct text out = {0};
	const char *name = call->argument_count > 0 ? call->arguments[0] : NULL;
	const struct command *command;
	char both[64];

	if (call_flag(call, "markdown")) {
		help_markdown(&out);
		fputs(out.data, stdout);
		return 0;
	}
	if (call_text(call, "man", NULL))
		return write_manual(call_text(call, "man", NULL));
	if (call->argument_count > 1)
		snprintf(both, sizeof both, "%s %s", name, call->arguments[1]);
	else
		snprintf(both, sizeof both, "%s", name ? name : "");
	command = call_find(commands, both);
	if (command)
		help_command(command, &out);

	/* a single word may name a group, whose commands are listed; two words name a command */
	if (!command && (call->argument_count > 1 || !help_list(name, &out))) {
		fprintf(stderr,
		    "outbox-relay: there is no command '%s'%s; `outbox-relay help` lists them\n",
		    both, call_suggest(commands, both).note);
		return EXIT_USAGE;
	}
	fputs(out.data, stdout);
	return 0;
}

static const struct command_option help_options[] = {
    {"markdown", NULL, "Prints all commands as a page of documentation."},
    {"man", "FOLDER", "Writes the manual page of each command into a folder."},
    {0},
};

const struct command command_help = {
    .name = "help",
    .arguments = "[COMMAND]",
    .most_arguments = 2,
    .summary = "Describes a command.",
    .description = "Without a name it lists all commands and exit statuses.\n",
    .options = help_options,
    .example = "outbox-relay help publisher create",
    .run = run_help,
};
