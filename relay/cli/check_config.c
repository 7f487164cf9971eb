#include <stdio.h>
#include "commands.h"
#include "kafka_conf.h"
#include "session.h"

static int run(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);

	if (!config)
		return session_failed(&err);
	for (int i = 0; i < config->kafka_count; i++)
		if (!kafka_conf_check(&config->kafka[i], &err))
			return session_failed(&err);
	printf("%s: %d slot%s, no error\n",
	    session_config_path(call) ? session_config_path(call) : "environment",
	    config->slot_count, config->slot_count == 1 ? "" : "s");
	return 0;
}

const struct command command_check_config = {
    .name = "check-config",
    .arguments = "",
    .summary = "Checks the configuration without connecting to anything.",
    .description = "Reads the file and the environment as `run` does, and lets librdkafka check "
		   "the properties "
		   "of each [kafka] section. The first error is printed with its place.\n",
    .run = run,
};
