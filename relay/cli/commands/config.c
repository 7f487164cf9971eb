#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "config.h"

static int run_config(const struct call *call)
{
	OWNED(text_finish) struct text out = {0};

	if (call_flag(call, "print-reference"))
		config_print_reference(&out);
	else if (call_flag(call, "print-man"))
		config_print_manual(&out);
	else
		config_print_sample(&out);
	fputs(text_string(&out), stdout);
	return 0;
}

static const struct command_option config_options[] = {
    {"print-sample", NULL, "Prints a commented file with every key at its default (the default)."},
    {"print-reference", NULL, "Prints the same as a page of documentation."},
    {"print-man", NULL, "Prints the same as the manual page outbox-relay.ini(5)."},
    {0},
};

const struct command command_config = {
    .name = "config",
    .arguments = "",
    .summary = "Prints every configuration key.",
    .description = "Prints sections, keys, types, ranges, defaults and descriptions, from the "
		   "table that the parser uses.\n",
    .options = config_options,
    .example = "outbox-relay config --print-sample",
    .no_server = "it shows the configuration of this machine; call it on the host of the relay",
    .run = run_config,
};
