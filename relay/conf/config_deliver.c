/*
 * Checks [deliver] sections, each alone and with one another, and reads a file of rules. Begin at
 * config_deliver_finish.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"
#include "config_value.h"
#include "producer.h"
#include "units.h"

enum { TOPIC_LENGTH = 249 };
static const int64_t longest_delay_ms = INT64_C(7) * 24 * 3600 * 1000;

static bool check_deliver_topics(
    const struct config_source *source, const struct config_deliver *deliver, struct err *err)
{
	for (int i = 0; i < deliver->topics.count; i++)
		if (!producer_topic_is_valid(deliver->topics.items[i]))
			return config_source_refuse(err, source, CONFIG_DELIVER, deliver->name,
			    "topics",
			    "'%.40s' is not a topic name; a name has 1 to %d of a-z, A-Z, 0-9, "
			    "'_', '.' and '-'",
			    deliver->topics.items[i], TOPIC_LENGTH);
	return true;
}

static bool check_batch(
    const struct config_source *source, const struct config_deliver *deliver, struct err *err)
{
	/* {"id":"…","status":200} with a UUID, and a comma */
	enum { ANSWER_BYTES = 59 };
	int64_t needed = deliver->batch > 1 ? deliver->batch * ANSWER_BYTES : 0;

	/* a batch is filled from the messages in progress, so a larger one would never be full */
	if (deliver->batch > deliver->concurrency)
		return config_source_refuse(err, source, CONFIG_DELIVER, deliver->name, "batch",
		    "it is larger than concurrency, which is %lld; lower batch or raise "
		    "concurrency",
		    (long long)deliver->concurrency);
	return needed <= deliver->max_answer ||
	       config_source_refuse(err, source, CONFIG_DELIVER, deliver->name, "batch",
		   "the answer to %lld messages has at least %lld bytes and does not fit "
		   "max_answer; lower batch or raise max_answer",
		   (long long)deliver->batch, (long long)needed);
}

/* --- failures ------------------------------------------------------------------------------- */

/* "orders.retry.10s=10s". A topic's name has no "=" in it. */
static bool read_step(const char *text, struct outbox_inbox_retry_topic *ret_step, struct err *err)
{
	const char *equals = strchr(text, '=');
	owned_text char *topic = xformat("%.*s", equals ? (int)(equals - text) : 0, text);
	int64_t delay_ms;

	if (!equals || !producer_topic_is_valid(topic))
		return err_set(err, ERR_CONFIG,
		    "'%.80s' is not a topic and a duration; write for example orders.retry=10s",
		    text);
	if (units_parse(equals + 1, units_duration, &delay_ms) != UNITS_READ || delay_ms < 0 ||
	    delay_ms > longest_delay_ms)
		return err_set(err, ERR_CONFIG,
		    "'%.40s' is not a duration from 0 to 7d; write for example %.80s=10s",
		    equals + 1, topic);
	*ret_step = (struct outbox_inbox_retry_topic){topic, delay_ms};
	/* the step owns it */
	topic = NULL;
	return true;
}

/* A message that is sent to the topic that it was read from would circulate for ever. */
static bool is_read(const struct config_deliver *deliver, const char *topic)
{
	return config_list_has(&deliver->topics, topic);
}

static bool set_steps(
    const struct config_source *source, struct config_deliver *deliver, struct err *err)
{
	const char *name = deliver->name;
	struct err why;

	deliver->retry_steps =
	    xcalloc((size_t)deliver->retry_topics.count + 1, sizeof *deliver->retry_steps);
	for (int i = 0; i < deliver->retry_topics.count; i++) {
		struct outbox_inbox_retry_topic *step = &deliver->retry_steps[i];

		if (!read_step(deliver->retry_topics.items[i], step, &why))
			return config_source_refuse(
			    err, source, CONFIG_DELIVER, name, "retry_topics", "%s", why.message);
		for (int k = 0; k < i; k++)
			/* with two delays, records with the short one wait behind the others */
			if (text_equal(deliver->retry_steps[k].topic, step->topic))
				return config_source_refuse(err, source, CONFIG_DELIVER, name,
				    "retry_topics", "%s is listed twice; remove one of them",
				    step->topic);
		if (is_read(deliver, step->topic) ||
		    text_equal(step->topic, deliver->dead_letter_topic))
			return config_source_refuse(err, source, CONFIG_DELIVER, name,
			    "retry_topics",
			    "%s is also in topics or dead_letter_topic; use a separate topic",
			    step->topic);
	}
	return true;
}

static bool check_failures(
    const struct config_source *source, struct config_deliver *deliver, struct err *err)
{
	const char *name = deliver->name;

	if (deliver->retry_max_ms < deliver->retry_first_ms)
		return config_source_refuse(err, source, CONFIG_DELIVER, name, "retry_max",
		    "it is shorter than retry_first; set at least the value of retry_first");

	/* 0: tries never end, so a message never leaves its place */
	if (deliver->retry_topics.count > 0 && deliver->attempts == 0)
		return config_source_refuse(err, source, CONFIG_DELIVER, name, "retry_topics",
		    "with attempts = 0 no message ever goes there; set another number of attempts");
	if (*deliver->dead_letter_topic && !producer_topic_is_valid(deliver->dead_letter_topic))
		return config_source_refuse(err, source, CONFIG_DELIVER, name, "dead_letter_topic",
		    "'%.40s' is not a topic name; a name has 1 to %d of a-z, A-Z, 0-9, '_', '.' "
		    "and '-'",
		    deliver->dead_letter_topic, TOPIC_LENGTH);
	if (is_read(deliver, deliver->dead_letter_topic))
		return config_source_refuse(err, source, CONFIG_DELIVER, name, "dead_letter_topic",
		    "%s is also in topics; use a separate topic", deliver->dead_letter_topic);
	return set_steps(source, deliver, err);
}

/* --- sections beside each other ------------------------------------------------------------- */

static bool compare_delivers(const struct config_source *source,
    const struct config_deliver *deliver, const struct config_deliver *other, struct err *err)
{
	/* sections of one group would share its partitions, and each would miss messages */
	if (deliver->kafka == other->kafka && text_equal(deliver->group, other->group))
		return config_source_refuse(err, source, CONFIG_DELIVER, deliver->name, "group",
		    "[deliver \"%s\"] has the same group; each section needs its own group",
		    other->name);
	if (*deliver->path && text_equal(deliver->path, other->path))
		return config_source_refuse(err, source, CONFIG_DELIVER, deliver->name, "path",
		    "[deliver \"%s\"] has the same folder; each section needs its own folder",
		    other->name);
	return true;
}

static bool compare_with_lookbacks(const struct config *config, const struct config_source *source,
    const struct config_deliver *deliver, struct err *err)
{
	for (int i = 0; i < config->lookback_count; i++)
		if (config->lookbacks[i].kafka == deliver->kafka &&
		    text_equal(config->lookbacks[i].group, deliver->group))
			return config_source_refuse(err, source, CONFIG_DELIVER, deliver->name,
			    "group",
			    "[lookback \"%s\"] has the same group; each section needs its own "
			    "group",
			    config->lookbacks[i].name);
	return true;
}

/* Sets the values that follow from others. */
static void derive_deliver_settings(struct config_deliver *deliver)
{
	if (!*deliver->group) {
		free(deliver->group);
		deliver->group = xformat("outbox-relay-deliver-%s", deliver->name);
	}
	if (deliver->topics.count == 0) {
		deliver->topics.items = xcalloc(1, sizeof *deliver->topics.items);
		deliver->topics.items[deliver->topics.count++] = xstrdup(deliver->name);
	}
	if (deliver->form == DELIVER_SINGLE)
		deliver->batch = 1;
}

const struct config_deliver *config_find_deliver(
    const struct config *config, const char *name, struct err *err)
{
	const struct config_deliver *found = config_rows_item_named(config, CONFIG_DELIVER, name);

	if (!found)
		err_set(err, ERR_CONFIG, "there is no section [deliver \"%.63s\"]%s%s", name,
		    config->path ? " in " : "", config->path ? config->path : "");
	return found;
}

#define EMPTY_RULES                                                                                \
	"is empty, as a write that failed leaves it; if no rules are meant, write the comment "    \
	"# none into it"

bool config_rules_read(const char *path, struct config_list *ret_rules, struct err *err)
{
	OWNED(text_finish) struct text warnings = {0};
	owned_text char *text = config_source_read_file(path, &warnings, err);
	struct config_deliver section = {.rules = {0}};

	if (text && text_is_blank(text))
		return err_set(err, ERR_CONFIG, "%s: " EMPTY_RULES, path);
	if (!text ||
	    !config_value_set(&section, config_rows_find(CONFIG_DELIVER, "rules"), text, err))
		return false;
	*ret_rules = section.rules;
	return true;
}

/* An empty file would end all limits. */
static bool check_rules_file(
    const struct config_source *source, const struct config_deliver *deliver, struct err *err)
{
	const struct config_section *section =
	    config_source_find(source, CONFIG_DELIVER, deliver->name);
	const struct config_entry *entry = config_source_entry(section, "rules");

	return !entry || !entry->file || !text_is_blank(entry->value) ||
	       config_source_refuse(err, source, CONFIG_DELIVER, deliver->name, "rules",
		   "%s " EMPTY_RULES, entry->file);
}

bool config_deliver_finish(
    struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->deliver_count; i++) {
		struct config_deliver *deliver = &config->delivers[i];

		derive_deliver_settings(deliver);
		if (!check_rules_file(source, deliver, err) ||
		    !check_deliver_topics(source, deliver, err) ||
		    !check_batch(source, deliver, err) || !check_failures(source, deliver, err) ||
		    !compare_with_lookbacks(config, source, deliver, err))
			return false;
		/* with those before it only: each pair is compared once */
		for (int k = 0; k < i; k++)
			if (!compare_delivers(source, deliver, &config->delivers[k], err))
				return false;
	}
	return true;
}

void config_deliver_free(struct config *config)
{
	for (int i = 0; i < config->deliver_count; i++) {
		struct outbox_inbox_retry_topic *steps = config->delivers[i].retry_steps;

		for (struct outbox_inbox_retry_topic *step = steps; step && step->topic; step++)
			free((char *)step->topic);
		free(steps);
	}
}
