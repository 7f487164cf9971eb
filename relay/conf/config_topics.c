/* Checks [topic] sections against the publishers and consumers of their topics. */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"
#include "dedup_stores.h"

static bool publishes_to(const struct config_publisher *publisher, const char *topic)
{
	return config_list_matches(&publisher->topics, topic);
}

/* Exactly-once begins with reading a tail, whose records are recognised by the headers. */
static bool check_publisher_headers(const struct config_source *source,
    const struct config_topic *topic, const struct config_publisher *publisher, struct err *err)
{
	const struct publisher_settings *settings = &publisher->settings;
	bool exact = settings->delivery == DELIVERY_EXACTLY_ONCE;

	/* without a tail to read, a takeover needs no headers */
	if (settings->resume == RESUME_NONE || !publishes_to(publisher, topic->name))
		return true;
	return config_source_refuse(err, source, CONFIG_TOPIC, topic->name, "headers",
	    "none needs %sresume = none in [publisher \"%s\"] (%s), because a takeover "
	    "recognizes records by outbox-id and outbox-position; set %s there, or headers = "
	    "full here",
	    exact ? "delivery = at-least-once and " : "", settings->name, publisher->origin,
	    exact ? "both" : "it");
}

/* "header:outbox-id", alone or as one of several with commas. */
static bool is_known_by_own_id(const char *id)
{
	owned_text char *list = xstrdup(id);
	char *rest = NULL;

	for (char *part = strtok_r(list, ", ", &rest); part; part = strtok_r(NULL, ", ", &rest))
		if (text_equal(part, "header:outbox-id"))
			return true;
	return false;
}

/* The first setting that finds nothing in records without the headers; NULL: none. */
static const char *setting_without_headers(const struct config_deliver *deliver)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec = {0};
	struct err ignored; /* deliver_check refuses a wrong line */

	if (!deliver->dedup[0])
		return NULL;
	if (dedup_spec_parse(deliver->dedup, &spec, &ignored) && spec.type->by_position)
		return "dedup";
	return deliver->without_id != OUTBOX_INBOX_PROCESS && is_known_by_own_id(deliver->id)
		   ? "id"
		   : NULL;
}

/* Does a publisher of this configuration write the topic to that cluster? */
static bool is_published(
    const struct config *config, const struct kafka_settings *kafka, const char *topic)
{
	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.kafka == kafka &&
		    publishes_to(&config->publishers[i], topic))
			return true;
	return false;
}

static bool check_deliver_headers(const struct config *config, const struct config_source *source,
    const struct config_topic *topic, const struct config_deliver *deliver, struct err *err)
{
	const char *key = setting_without_headers(deliver);

	if (!key || !config_list_has(&deliver->topics, topic->name) ||
	    !is_published(config, deliver->kafka, topic->name))
		return true;
	return config_source_refuse(err, source, CONFIG_TOPIC, topic->name, "headers",
	    "none removes the header by which %s of [deliver \"%s\"] (%s) identifies a message; "
	    "set %s there, or headers = full here",
	    key, deliver->name, deliver->origin,
	    text_equal(key, "id") ? "id = key, or another id," : "another store");
}

bool config_topics_finish(
    const struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->topic_count; i++) {
		const struct config_topic *topic = &config->topics[i];

		/* records with the headers satisfy every publisher and consumer */
		if (topic->headers == TOPIC_HEADERS_FULL)
			continue;
		for (int k = 0; k < config->publisher_count; k++)
			if (!check_publisher_headers(source, topic, &config->publishers[k], err))
				return false;
		for (int k = 0; k < config->deliver_count; k++)
			if (!check_deliver_headers(
				config, source, topic, &config->delivers[k], err))
				return false;
	}
	return true;
}
