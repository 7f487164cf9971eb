#include <stdio.h>
#include "commands.h"

static int run_version(const struct call *call)
{
	(void)call;
	puts("outbox-relay " RELAY_VERSION);
	return 0;
}

const struct command command_version = {
    .name = "version",
    .arguments = "",
    .summary = "Prints the version.",
    .description = "",
    .example = "outbox-relay version",
    .run = run_version,
};
