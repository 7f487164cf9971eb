#include <stdio.h>
#include "commands.h"
#include "deliver_check.h"
#include "kafka_conf.h"
#include "session.h"

static int run_check_config(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);

	if (!config)
		return session_failed(&err);
	for (int i = 0; i < config->kafka_count; i++) {
		const struct kafka_settings *kafka = &config->kafka[i];

		if (!kafka_conf_check(kafka, config_has_transactions(config, kafka), &err))
			return session_failed(&err);
	}
	for (int i = 0; i < config->deliver_count; i++)
		if (!deliver_check(&config->delivers[i], &err))
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
	"Reads the file and the environment as `run` does, and lets librdkafka check "
	"the properties of each [kafka] section. In a [deliver] section it also checks the URL, "
	"the secrets, dedup and the rules. The first error is printed with its place.\n",
    .example = "outbox-relay check-config --config relay.ini",
    .run = run_check_config,
};
