#include "checks_deliver.h"

#include "checks_reach.h"
#include "cleanup.h"
#include "deliver_check.h"
#include "text.h"

enum { KAFKA_MS = 5000 };

static void add_check_finding(struct preflight *report, const char *place,
    const struct config_deliver *section, const struct err *err)
{
	owned_text char *folder = deliver_missing_folder(section);
	owned_text char *cure = folder ? xformat("mkdir -p %s", folder) : NULL;
	struct preflight_finding *finding =
	    preflight_add(report, PREFLIGHT_FAIL, place, cure, "%s", err->message);

	if (folder)
		preflight_set_item(finding, "mkdir -p {}", folder);
}

static void check_deliver_section(struct checks *checks, const struct config_deliver *section)
{
	owned_text char *place = xformat("deliver %s (%s)", section->name, section->origin);
	struct preflight *report = &checks->report;
	struct err err;

	/* The URL of a section that is wrong is not connected to. */
	if (!deliver_check(section, &err))
		add_check_finding(report, place, section, &err);
	else {
		checks_reach(report, place, section->url, section->networks);
		checks_credentials(report, place, "deliver", section->name, &section->credentials,
		    section->networks);
	}
	if (!section->secret[0])
		preflight_add(report, PREFLIGHT_WARN, place, "set secret_file",
		    "requests are not signed: the application cannot tell who asks");
	if (!section->dead_letter_topic[0])
		preflight_add(report, PREFLIGHT_WARN, place, "set dead_letter_topic",
		    "there is no topic for dead letters: a partition is blocked by the first "
		    "message that cannot be delivered");
	if (section->connect_timeout_ms > section->timeout_ms)
		preflight_add(report, PREFLIGHT_WARN, place, "set connect_timeout below timeout",
		    "connect_timeout is longer than timeout, which ends the request before");
}

static bool has_topic_findings(const struct preflight *report, const char *topic)
{
	owned_text char *place = xformat("topic %s", topic);

	for (int i = 0; i < report->count; i++)
		if (text_equal(report->findings[i].place, place))
			return true;
	return false;
}

static bool check_read_topics(struct checks *checks, const struct config_deliver *section,
    struct topic_metadata *metadata, struct err *err)
{
	for (int i = 0; i < section->topics.count; i++)
		if (!has_topic_findings(&checks->report, section->topics.items[i]) &&
		    !preflight_topic_exists(&checks->report, metadata, section->kafka,
			section->topics.items[i], KAFKA_MS, err))
			return false;
	return true;
}

static bool check_written_topic(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, const char *topic, struct err *err)
{
	return !topic[0] || has_topic_findings(&checks->report, topic) ||
	       preflight_topic(&checks->report, metadata, kafka, topic, 0, KAFKA_MS, err);
}

bool checks_deliver_topics(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err)
{
	for (int i = 0; i < checks->config->deliver_count; i++) {
		const struct config_deliver *section = &checks->config->delivers[i];

		if (section->kafka != kafka)
			continue;
		if (!check_read_topics(checks, section, metadata, err))
			return false;
		if (!check_written_topic(checks, kafka, metadata, section->dead_letter_topic, err))
			return false;
		for (int j = 0; section->retry_steps && section->retry_steps[j].topic; j++)
			if (!check_written_topic(
				checks, kafka, metadata, section->retry_steps[j].topic, err))
				return false;
	}
	return true;
}

void checks_deliver(struct checks *checks)
{
	for (int i = 0; i < checks->config->deliver_count; i++)
		check_deliver_section(checks, &checks->config->delivers[i]);
}
