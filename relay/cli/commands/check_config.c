#include <stdio.h>
#include "checks_config.h"
#include "commands.h"
#include "session.h"

static int run_check_config(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);

	if (!config)
		return session_failed(&err);

	/* config_load knows the keys and their ranges; libpq, librdkafka and the files are
	 * checked here */
	if (!checks_config(config, &err))
		return session_failed(&err);
	printf("%s: %d publisher%s",
	    session_config_path(call) ? session_config_path(call) : "environment",
	    config->publisher_count, config->publisher_count == 1 ? "" : "s");
	if (config->deliver_count > 0)
		printf(", %d section%s that deliver%s", config->deliver_count,
		    config->deliver_count == 1 ? "" : "s", config->deliver_count == 1 ? "s" : "");
	puts(", no error");
	return 0;
}

const struct command command_check_config = {
    .name = "check-config",
    .arguments = "",
    .summary = "Checks the configuration without connecting to anything.",
    .description =
	"Reads the file and the environment as `run` does, and refuses everything that `run` "
	"would refuse without asking a server. librdkafka checks the properties of each [kafka] "
	"section, and libpq checks each dsn. In [check] and [deliver] sections, the command "
	"checks the URL, the secrets, the TLS files, dedup, the rules, and that the folder of "
	"`path` exists. A URL whose host is a private address, or localhost, needs a line in "
	"`networks`, which the error names. It prints the first error with its place in the "
	"file.\n",
    .example = "outbox-relay check-config --config relay.ini",
    .no_server = "it checks the configuration of this machine; call it on the host of the relay",
    .run = run_check_config,
};
