/* Checks [lookback] and [check] sections with one another. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "config_source.h"

static void add_default(struct config_list *list, const char *word)
{
	list->items = xcalloc(1, sizeof *list->items);
	list->items[list->count++] = xstrdup(word);
}

/* Two sections that read the same topic. */
static bool compare_two_lookbacks(const struct config_source *source,
    const struct config_lookback *lookback, const struct config_lookback *other, struct err *err)
{
	for (int i = 0; i < lookback->types.count; i++)
		if (config_list_has(&other->types, lookback->types.items[i]))
			return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name,
			    "types",
			    "%s belongs to [lookback \"%s\"] as well; a type has one section",
			    lookback->types.items[i], other->name);

	if (other->kafka != lookback->kafka || !text_equal(other->topic, lookback->topic))
		return true;
	if (text_equal(other->group, lookback->group))
		return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name, "group",
		    "[lookback \"%s\"] has the same group; each section reads the whole topic in "
		    "its own group",
		    other->name);
	if (other->is_default && lookback->is_default)
		return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name, "default",
		    "[lookback \"%s\"] is the default of this topic already", other->name);
	return true;
}

/* A dead letter that is read as a message again would become a dead letter for ever. */
static bool check_dead_letter(const struct config *config, const struct config_source *source,
    const struct config_lookback *lookback, struct err *err)
{
	for (int i = 0; i < config->lookback_count; i++)
		if (text_equal(config->lookbacks[i].topic, lookback->dead_letter))
			return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name,
			    "dead_letter",
			    "%s is the topic that [lookback \"%s\"] reads; name another one",
			    lookback->dead_letter, config->lookbacks[i].name);
	return true;
}

/* A pattern matches business topics only; an internal topic given by its name is an error. */
static bool check_lookback_topics(const struct config *config, const struct config_source *source,
    const struct config_lookback *lookback, struct err *err)
{
	for (int i = 0; i < lookback->topics.count; i++) {
		const char *topic = lookback->topics.items[i];
		owned_text char *setting = config_internal_topic(config, topic);

		if (setting && topic[strlen(topic) - 1] != '*')
			return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name,
			    "topics", "%s belongs to %s; name topics of the business", topic,
			    setting);
	}
	return true;
}

/* If several sections read a topic, one must take the records that belong to no section. */
static bool has_default(const struct config *config, const struct config_lookback *lookback)
{
	int others = 0;

	for (int i = 0; i < config->lookback_count; i++) {
		const struct config_lookback *other = &config->lookbacks[i];

		if (other->kafka != lookback->kafka || !text_equal(other->topic, lookback->topic))
			continue;
		if (other->is_default)
			return true;
		others += other != lookback;
	}
	return others == 0;
}

static bool finish_lookback(
    const struct config_source *source, struct config_lookback *lookback, struct err *err)
{
	static const char alphabet[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

	if (lookback->types.count == 0)
		add_default(&lookback->types, lookback->name);
	if (!*lookback->group) {
		free(lookback->group);
		lookback->group = xformat("outbox-relay.%s", lookback->name);
	}
	for (int i = 0; i < lookback->types.count; i++) {
		const char *type = lookback->types.items[i];

		if (type[strspn(type, alphabet)] || strlen(type) > 100 || text_equal(type, ".") ||
		    text_equal(type, ".."))
			return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name,
			    "types",
			    "'%.40s' is not a business type; a type has 1 to 100 of a-z, A-Z, "
			    "0-9, '_', '.' and '-', and is neither '.' nor '..'",
			    type);
	}
	if (!*lookback->topic)
		return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name, "topic",
		    "it is empty; name the topic");
	if (!*lookback->dead_letter)
		return config_source_refuse(err, source, CONFIG_LOOKBACK, lookback->name,
		    "dead_letter", "it is empty; name the topic");
	return true;
}

/* The scheme of these URLs says the transport, so that url = grpc://shop is all to write. */
static void set_transport_of_url(struct config_check *check)
{
	bool is_grpc = strncasecmp(check->url, "grpc://", 7) == 0 ||
		       strncasecmp(check->url, "grpcs://", 8) == 0;

	if (check->transport == CHECK_HTTP && is_grpc)
		check->transport = CHECK_GRPC;
}

static bool check_batch_of_ids(
    const struct config_source *source, const struct config_check *check, struct err *err)
{
	/* one answer: a UUID and the decision commit */
	static const int64_t answer_bytes[] = {
	    [CHECK_HTTP] = 70, [CHECK_GRPC] = 42, [CHECK_SQL] = 42};
	int64_t needed = check->batch > 1 ? check->batch * answer_bytes[check->transport] : 0;

	return needed <= check->max_answer ||
	       config_source_refuse(err, source, CONFIG_CHECK, check->name, "batch",
		   "the answer about %lld ids has at least %lld bytes and does not fit "
		   "max_answer; lower batch or raise max_answer",
		   (long long)check->batch, (long long)needed);
}

bool config_lookback_finish(
    struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->check_count; i++) {
		set_transport_of_url(&config->checks[i]);
		if (!check_batch_of_ids(source, &config->checks[i], err))
			return false;
	}
	for (int i = 0; i < config->lookback_count; i++) {
		struct config_lookback *lookback = &config->lookbacks[i];

		if (!finish_lookback(source, lookback, err))
			return false;
		for (int k = 0; k < i; k++)
			if (!compare_two_lookbacks(source, lookback, &config->lookbacks[k], err))
				return false;
	}
	for (int i = 0; i < config->lookback_count; i++)
		if (!check_dead_letter(config, source, &config->lookbacks[i], err) ||
		    !check_lookback_topics(config, source, &config->lookbacks[i], err))
			return false;
	for (int i = 0; i < config->lookback_count; i++)
		if (!has_default(config, &config->lookbacks[i]))
			return config_source_refuse(err, source, CONFIG_LOOKBACK,
			    config->lookbacks[i].name, "default",
			    "several sections read topic %s, and none is the default; write "
			    "default = yes in one of them",
			    config->lookbacks[i].topic);
	return true;
}
