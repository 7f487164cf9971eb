#include "checks_deliver.h"

#include "cleanup.h"
#include "deliver_check.h"
#include "text.h"

static void check_deliver_section(struct checks *checks, const struct config_deliver *section)
{
	owned_text char *place = xformat("deliver %s (%s)", section->name, section->origin);
	struct preflight *report = &checks->report;
	struct err err;

	if (!deliver_check(section, &err))
		preflight_add(report, PREFLIGHT_FAIL, place, NULL, "%s", err.message);
	if (!section->secret[0])
		preflight_add(report, PREFLIGHT_WARN, place, "set secret_file",
		    "requests are not signed: the application cannot tell who asks");
	if (!section->dead_letter_topic[0])
		preflight_add(report, PREFLIGHT_WARN, place, "set dead_letter_topic",
		    "there is no topic for dead letters: a partition stands still behind the first "
		    "message that cannot be delivered");
	if (section->connect_timeout_ms > section->timeout_ms)
		preflight_add(report, PREFLIGHT_WARN, place, "set connect_timeout below timeout",
		    "connect_timeout is longer than timeout, which ends the request before");
}

void checks_deliver(struct checks *checks)
{
	for (int i = 0; i < checks->config->deliver_count; i++)
		check_deliver_section(checks, &checks->config->delivers[i]);
}
