/*
 * Copies the settings of the caller and checks them: numbers, texts, dedup line, rules and path.
 * Begin at inbox_settings_create, which calls the checks in the order of the sections.
 */
#include "inbox_settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "claims_store.h"
#include "cleanup.h"
#include "client_files.h"
#include "kafka_conf.h"
#include "report_spec.h"
#include "rules_check.h"
#include "text.h"

enum {
	MOST_CONCURRENCY = 1 << 16,
	MOST_THREADS = 1024,
	MOST_RETRIES = 16,
	MOST_MESSAGES = 10 << 20
};

/* --- copies --------------------------------------------------------------------------------- */

static size_t count_texts(const char *const *texts)
{
	size_t count = 0;
	while (texts && texts[count])
		count++;
	return count;
}

static char **copy_texts(const char *const *texts, size_t room)
{
	size_t count = count_texts(texts);
	char **copies = xcalloc(count + room + 1, sizeof *copies);
	for (size_t i = 0; i < count; i++)
		copies[i] = xstrdup(texts[i]);
	return copies;
}

static void free_texts(char **texts)
{
	for (size_t i = 0; texts && texts[i]; i++)
		free(texts[i]);
	free(texts);
}

static void copy_kafka(struct inbox_settings *settings)
{
	settings->kafka.name = xstrdup("main");
	for (const char *const *pair = settings->given.kafka; pair && pair[0] && pair[1]; pair += 2)
		client_files_add(&settings->kafka, pair[0], pair[1], "settings.kafka");
	settings->given.kafka = NULL;
}

static void copy_retries(struct inbox_settings *settings)
{
	const struct outbox_inbox_retry_topic *given = settings->given.retry_topics;
	int count = 0;
	while (given && given[count].topic)
		count++;
	struct outbox_inbox_retry_topic *copy = xcalloc((size_t)count + 1, sizeof *copy);
	for (int i = 0; i < count; i++)
		copy[i] =
		    (struct outbox_inbox_retry_topic){xstrdup(given[i].topic), given[i].delay_ms};
	settings->given.retry_topics = copy;
	settings->retry_count = count;
}

static void copy_topics(struct inbox_settings *settings)
{
	size_t count = count_texts(settings->given.topics);
	settings->topics = copy_texts(settings->given.topics, (size_t)settings->retry_count);
	for (int i = 0; i < settings->retry_count; i++)
		settings->topics[count + (size_t)i] =
		    xstrdup(settings->given.retry_topics[i].topic);
	settings->given.topics = (const char *const *)settings->topics;
	settings->told = xcalloc(count + (size_t)settings->retry_count + 1, sizeof *settings->told);
}

static void copy_all(struct inbox_settings *settings)
{
	struct outbox_inbox_settings *given = &settings->given;
	settings->rule_count = count_texts(given->rules);

	given->group = xstrdup(given->group);
	given->dedup = xstrdup(given->dedup);
	given->claims = xstrdup(given->claims);
	given->report = xstrdup(given->report);
	given->path = xstrdup(given->path);
	given->id = xstrdup(given->id ? given->id : "header:outbox-id");
	given->dead_letters = xstrdup(given->dead_letters);

	given->rules = (const char *const *)copy_texts(given->rules, 0);
	given->rules_store = xstrdup(given->rules_store);
	given->user = xstrdup(given->user);
	given->content = xstrdup(given->content);
	given->channel = xstrdup(given->channel);
	given->zone = xstrdup(given->zone);

	copy_kafka(settings);
	copy_retries(settings);
	copy_topics(settings);
}

/* --- numbers -------------------------------------------------------------------------------- */

static bool check_range(
    const char *name, int64_t *value, int64_t usual, int64_t low, int64_t high, struct err *err)
{
	if (*value == 0)
		*value = usual;
	return (*value >= low && *value <= high) ||
	       err_set(err, ERR_CONFIG, "%s = %" PRId64 ": it is from %" PRId64 " to %" PRId64,
		   name, *value, low, high);
}

static bool check_int(
    const char *name, int *value, int64_t usual, int64_t low, int64_t high, struct err *err)
{
	int64_t wide = *value;
	if (!check_range(name, &wide, usual, low, high, err))
		return false;
	*value = (int)wide;
	return true;
}

static bool check_numbers(struct outbox_inbox_settings *given, struct err *err)
{
	const int64_t day = 86400000;

	if (!check_int("concurrency", &given->concurrency, 16, 1, MOST_CONCURRENCY, err) ||
	    !check_int("batch", &given->batch, 1, 1, given->concurrency, err))
		return false;

	int needed = (given->concurrency + given->batch - 1) / given->batch;
	return check_int(
		   "threads", &given->threads, needed < 256 ? needed : 256, 1, MOST_THREADS, err) &&
	       check_range("most_messages", &given->most_messages, 10000, 1, MOST_MESSAGES, err) &&
	       check_range(
		   "most_bytes", &given->most_bytes, 32 << 20, 1 << 16, INT64_C(1) << 40, err) &&
	       check_range("commit_every_ms", &given->commit_every_ms, 1000, 1, 60000, err) &&
	       check_range("drain_ms", &given->drain_ms, 10000, 1, 3600000, err) &&
	       check_range("retry_first_ms", &given->retry_first_ms, 100, 1, day, err) &&
	       check_range("retry_most_ms", &given->retry_most_ms, 60000, given->retry_first_ms,
		   7 * day, err) &&
	       (given->attempts >= 0 ||
		   err_set(err, ERR_CONFIG, "attempts = %d: 0 is without end", given->attempts));
}

/* --- texts ---------------------------------------------------------------------------------- */

static bool check_names(const struct inbox_settings *settings, struct err *err)
{
	const struct outbox_inbox_settings *given = &settings->given;

	if (!given->group || !given->group[0])
		return err_set(err, ERR_CONFIG,
		    "group is missing: name the consumers that share "
		    "the work");
	if (!settings->topics[settings->retry_count])
		return err_set(err, ERR_CONFIG, "topics is empty: say what is to be consumed");
	if (!given->handle)
		return err_set(err, ERR_CONFIG, "handle is missing: say who handles a message");

	for (char **topic = settings->topics; *topic; topic++)
		if ((*topic)[0] == '^')
			return err_set(
			    err, ERR_CONFIG, "topic %s: patterns are not taken, name it", *topic);
	for (char **topic = settings->topics; *topic; topic++)
		for (char **other = settings->topics; other < topic; other++)
			if (text_equal(*topic, *other))
				return err_set(err, ERR_CONFIG,
				    "topic %s is listed twice, among topics and retry_topics",
				    *topic);
	/* A dead letter must not come back as a message. */
	for (char **topic = settings->topics; *topic; topic++)
		if (text_equal(*topic, given->dead_letters))
			return err_set(err, ERR_CONFIG,
			    "dead_letters = %s is consumed as well: they would go in circles",
			    *topic);
	return true;
}

static bool check_retries(const struct inbox_settings *settings, struct err *err)
{
	const struct outbox_inbox_settings *given = &settings->given;

	if (settings->retry_count > MOST_RETRIES)
		return err_set(err, ERR_CONFIG, "retry_topics: %d of them, at most are %d",
		    settings->retry_count, MOST_RETRIES);
	/* attempts = 0 tries in place for ever */
	if (settings->retry_count && given->attempts == 0)
		return err_set(err, ERR_CONFIG,
		    "retry_topics are never reached with attempts = 0, which tries in place for "
		    "ever");

	for (int i = 0; i < settings->retry_count; i++)
		if (given->retry_topics[i].delay_ms < 0)
			return err_set(err, ERR_CONFIG, "retry topic %s: delay_ms = %" PRId64,
			    given->retry_topics[i].topic, given->retry_topics[i].delay_ms);
	return true;
}

/* --- dedup ---------------------------------------------------------------------------------- */

static bool parse_id(struct inbox_settings *settings, struct err *err)
{
	static const char header[] = "header:";
	const char *id = settings->given.id;

	settings->id_key = rule_key_parse(id, err);
	if (!settings->id_key)
		return err_prefix(err, "id = %s", id);

	settings->id_place = ID_EXPRESSION;
	if (text_equal(id, "key"))
		settings->id_place = ID_KEY;
	else if (text_equal(id, "payload"))
		settings->id_place = ID_PAYLOAD;
	else if (text_starts(id, header) && !strpbrk(id, ",\" ")) {
		settings->id_place = ID_HEADER;
		settings->id_header = id + sizeof header - 1;
	}
	return true;
}

/* Checks the line as it was given: each partition adds its own path later. */
static bool parse_spec(struct inbox_settings *settings, struct err *err)
{
	const char *line = settings->given.dedup;
	if (!dedup_spec_parse(line, &settings->spec, err))
		return err_prefix(err, "dedup = %s", line);
	settings->local = settings->spec.type->local;
	settings->by_position = settings->spec.type->by_position;
	return !strstr(line, "path=") ||
	       err_set(err, ERR_CONFIG,
		   "dedup = %s: leave path= out, each partition has a folder of its own below "
		   "the setting path",
		   line);
}

static bool check_inbox_dedup(struct inbox_settings *settings, struct err *err)
{
	const struct outbox_inbox_settings *given = &settings->given;

	if (!parse_id(settings, err))
		return false;
	if (!given->dedup)
		return !given->take || err_set(err, ERR_CONFIG,
					   "take needs dedup = postgres name=..., from which the "
					   "ids are taken");
	if (!parse_spec(settings, err))
		return false;
	return !given->take || settings->spec.type->take ||
	       err_set(
		   err, ERR_CONFIG, "take needs a line of postgres, and dedup = %s", given->dedup);
}

static bool check_inbox_claims(const struct inbox_settings *settings, struct err *err)
{
	OWNED(claims_spec_finish) struct claims_spec spec = {0};
	const char *line = settings->given.claims;
	return !line || claims_spec_parse(line, &spec, err) || err_prefix(err, "claims = %s", line);
}

/* The line is not repeated: its dsn may have a password. */
static bool check_inbox_report(const struct inbox_settings *settings, struct err *err)
{
	OWNED(report_spec_finish) struct report_spec spec = {0};
	const char *line = settings->given.report;
	return !line || report_spec_parse(line, &spec, err) || err_prefix(err, "report");
}

static bool check_inbox_path(
    const struct inbox_settings *settings, bool local_rules, struct err *err)
{
	if (settings->given.path || (!settings->local && !local_rules))
		return true;
	return err_set(err, ERR_CONFIG,
	    "path is missing: say in which folder the state of %s is kept",
	    settings->local ? settings->given.dedup : "the rules");
}

bool inbox_settings_check_rules(
    const struct inbox_settings *settings, const char *const *rules, struct err *err)
{
	const struct outbox_inbox_settings *given = &settings->given;
	const struct rules_wanted wanted = {.store = given->rules_store,
	    .lines = rules,
	    .count = count_texts(rules),
	    .places = {given->user, given->content, given->channel, given->zone}};
	int wrong;

	/* an error of another setting names it */
	if (!rules_wanted_check(&wanted, &wrong, err))
		return wrong >= 0 && err_prefix(err, "rules");
	return check_inbox_path(settings, wanted.count > 0 && !wanted.store, err);
}

char **inbox_settings_copy_rules(const char *const *rules)
{
	return copy_texts(rules, 0);
}

void inbox_settings_free_rules(char **rules)
{
	free_texts(rules);
}

void inbox_settings_take_rules(struct inbox_settings *settings, char **rules)
{
	free_texts((char **)settings->given.rules);
	settings->given.rules = (const char *const *)rules;
	settings->rule_count = count_texts(settings->given.rules);
}

bool inbox_settings_local_rules(const struct inbox_settings *settings)
{
	return settings->rule_count > 0 && !settings->given.rules_store;
}

/* --- life ----------------------------------------------------------------------------------- */

struct inbox_settings *inbox_settings_create(
    const struct outbox_inbox_settings *given, struct err *err)
{
	struct inbox_settings *settings = xcalloc(1, sizeof *settings);
	settings->given = *given;
	dedup_spec_init(&settings->spec, NULL);
	copy_all(settings);

	if (check_names(settings, err) && check_numbers(&settings->given, err) &&
	    check_retries(settings, err) && check_inbox_dedup(settings, err) &&
	    check_inbox_claims(settings, err) && check_inbox_report(settings, err) &&
	    inbox_settings_check_rules(settings, settings->given.rules, err) &&
	    kafka_conf_check(&settings->kafka, false, err))
		return settings;
	inbox_settings_destroy(settings);
	return NULL;
}

void inbox_settings_destroy(struct inbox_settings *settings)
{
	if (!settings)
		return;

	struct outbox_inbox_settings *given = &settings->given;
	for (int i = 0; i < settings->retry_count; i++)
		free((char *)given->retry_topics[i].topic);
	free((void *)given->retry_topics);
	free_texts(settings->topics);
	free(settings->told);
	free_texts((char **)given->rules);
	free((char *)given->rules_store);
	free((char *)given->user);
	free((char *)given->content);
	free((char *)given->channel);
	free((char *)given->zone);
	kafka_settings_finish(&settings->kafka);
	rule_key_destroy(settings->id_key);
	dedup_spec_finish(&settings->spec);
	free((char *)given->group);
	free((char *)given->dedup);
	free((char *)given->claims);
	free((char *)given->report);
	free((char *)given->path);
	free((char *)given->id);
	free((char *)given->dead_letters);
	free(settings);
}

int inbox_settings_topic(const struct inbox_settings *settings, const char *topic)
{
	for (int i = 0; settings->topics[i]; i++)
		if (text_equal(settings->topics[i], topic))
			return i;
	return -1;
}

int inbox_settings_retry_of(const struct inbox_settings *settings, const char *topic)
{
	for (int i = 0; i < settings->retry_count; i++)
		if (text_equal(settings->given.retry_topics[i].topic, topic))
			return i;
	return -1;
}
