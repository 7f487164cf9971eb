/*
 * Builds the structs of the configuration from the parsed file and the environment. Begin at
 * config_parse: config_rows.c has the keys, config_value.c reads values, config_source.c has the
 * sections; then checks across sections, and lookups.
 */
#include "config.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "pg_password.h"
#include "config_source.h"
#include "config_value.h"

DEFINE_OWNED(struct config, config_destroy)

/* Sets a member that points to another section; the other section was built before. */
static bool set_section(const struct config *config, void *item, const struct config_row *row,
    const char *name, struct err *err)
{
	const char *word = config_kinds[row->refers].word;
	const void *section = config_rows_item_named(config, row->refers, name);

	if (!*name && !*row->default_value)
		return true; /* none */
	if (!section)
		return err_set(err, ERR_CONFIG,
		    "there is no [%s \"%.63s\"]; declare it, or name one that is declared", word,
		    name);
	memcpy((char *)item + row->offset, &section, sizeof section);
	return true;
}

/* config_secret_read has put the content of the file under the key without _file. */
static void note_file(
    const struct config_section *section, void *item, const struct config_row *row)
{
	owned_text char *key = config_source_other_key(row->key);
	const struct config_entry *entry = config_source_entry(section, key);

	if (row->offset && entry && entry->file)
		*(char **)((char *)item + row->offset) = xstrdup(entry->file);
}

static bool set_value(const struct config *config, const struct config_section *section, void *item,
    const struct config_row *row, struct err *err)
{
	const struct config_entry *entry = config_source_entry(section, row->key);
	const char *value = entry ? entry->value : row->default_value;
	struct err reason;
	bool done;

	if (row->type == CONFIG_FILE) {
		note_file(section, item, row);
		return true;
	}
	done = row->type == CONFIG_SECTION ? set_section(config, item, row, value, &reason)
					   : config_value_set(item, row, value, &reason);
	return done || config_source_fail(err, entry ? entry->origin : section->origin, section,
			   row->key, "%s", reason.message);
}

static bool set_item(
    const struct config *config, const struct config_section *section, void *item, struct err *err)
{
	for (int i = 0; i < config_row_count; i++)
		if (config_rows[i].kind == section->kind &&
		    !set_value(config, section, item, &config_rows[i], err))
			return false;

	/* an open kind has no rows: its properties go to librdkafka as they are */
	for (int i = 0; config_kinds[section->kind].open && i < section->count; i++) {
		const struct config_entry *entry = &section->entries[i];

		kafka_settings_add(item, entry->key, entry->value, entry->origin);
		if (entry->file)
			kafka_settings_set_file(item, entry->file);
	}
	return true;
}

/* The next element of the kind's list, which has room for all elements; or the configuration
 * itself. */
static void *next_item(struct config *config, const struct config_section *section)
{
	const struct config_kind_row *kind = &config_kinds[section->kind];
	int number = config_rows_items(config, section->kind);
	char **item;

	if (!kind->size)
		return config;

	/* the count grows before the members are set, so that config_destroy frees a half-built
	 * item */
	item = config_rows_item(config, section->kind, number++);
	*item = xstrdup(section->name);
	if (kind->origin)
		*(char **)((char *)item + kind->origin) = xstrdup(section->origin);
	memcpy((char *)config + kind->count, &number, sizeof number);
	return item;
}

static void allocate_sections(struct config *config, const struct config_source *source, int kind)
{
	void *list = xcalloc((size_t)source->count, config_kinds[kind].size);

	memcpy((char *)config + config_kinds[kind].list, &list, sizeof list);
}

/* Of struct publisher_settings. */
static enum stream_policy publisher_topic_policy(const void *context, const char *topic)
{
	const struct config_publisher *publisher = context;

	return config_topic_policy(publisher->config, topic);
}

/* Of struct publisher_settings. */
static enum topic_headers publisher_topic_headers(const void *context, const char *topic)
{
	const struct config_publisher *publisher = context;

	return config_topic_headers(publisher->config, topic);
}

/* Of struct publisher_settings; the reason names the setting. */
static char *refuse_publisher_topic(const void *context, const char *topic)
{
	const struct config_publisher *publisher = context;
	char *setting = config_internal_topic(publisher->config, topic);
	char *why = NULL;

	if (setting)
		why = xformat(
		    "messages of the table may not go to this topic: it belongs to %s", setting);
	else if (publisher->topics.count > 0 && !config_list_matches(&publisher->topics, topic))
		why = xformat(
		    "the topic is not in [publisher \"%s\"] topics", publisher->settings.name);
	free(setting);
	return why;
}

/* The pace sets the values that are not configured. */
static void set_pace(struct publisher_settings *settings, const struct config_section *section)
{
	const struct publisher_pace_row *pace = &publisher_paces[settings->pace];

	if (!config_source_entry(section, "poll_busy"))
		settings->poll_busy_ms = pace->poll_busy_ms;
	if (!config_source_entry(section, "poll_idle"))
		settings->poll_idle_ms = pace->poll_idle_ms;
}

static bool finish_publishers(
    struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->publisher_count; i++) {
		struct config_publisher *publisher = &config->publishers[i];
		const struct config_section *section =
		    config_source_find(source, CONFIG_PUBLISHER, publisher->settings.name);
		publisher->config = config;
		publisher->settings.policy = publisher_topic_policy;
		publisher->settings.refused_topic = refuse_publisher_topic;
		publisher->settings.headers = publisher_topic_headers;
		publisher->settings.context = publisher;
		publisher->settings.in_flight_said =
		    config_source_entry(section, "max_in_flight") != NULL;
		set_pace(&publisher->settings, section);
		if (publisher->topics.count == 0)
			return config_source_refuse(err, source, CONFIG_PUBLISHER,
			    publisher->settings.name, "topics",
			    "it is empty, and nothing would be published; write * for all topics");

		/* the tail shows which records the last transaction left; without it rows would
		 * be repeated */
		if (publisher->settings.delivery == DELIVERY_EXACTLY_ONCE &&
		    publisher->settings.resume != RESUME_TAIL)
			return err_set(err, ERR_CONFIG,
			    "%s: [publisher \"%s\"] delivery = exactly-once needs resume = tail",
			    publisher->origin, publisher->settings.name);
	}
	return true;
}

static bool finish_databases(
    const struct config *config, const struct config_source *source, struct err *err)
{
	for (int i = 0; i < config->postgres_count; i++) {
		const struct postgres_settings *postgres = &config->postgres[i];

		/* without a folder each partition would be detached, and then wait for ever */
		if (postgres->retention == RETENTION_ARCHIVE && !postgres->archive_path[0])
			return config_source_refuse(err, source, CONFIG_POSTGRES, postgres->name,
			    "retention",
			    "archive writes partitions to files: name their folder with "
			    "archive_path");
		/* commands look for the files from other folders than the relay's */
		if (postgres->archive_path[0] && postgres->archive_path[0] != '/')
			return config_source_refuse(err, source, CONFIG_POSTGRES, postgres->name,
			    "archive_path",
			    "it is no absolute path; write for example /var/lib/outbox-relay");
	}
	return true;
}

static int compare_topics(const void *a, const void *b)
{
	const struct config_topic *left = a, *right = b;

	return strcmp(left->name, right->name);
}

static struct config *build_config(const struct config_source *source, struct err *err)
{
	OWNED(owned_config_destroy) struct config *config = xcalloc(1, sizeof *config);
	struct config *built = config;

	/* in the order of the kinds: a section refers only to kinds that are built before it */
	for (int kind = 0; kind < CONFIG_KINDS; kind++) {
		if (config_kinds[kind].size)
			allocate_sections(config, source, kind);
		for (int i = 0; i < source->count; i++) {
			const struct config_section *section = &source->sections[i];
			if ((int)section->kind != kind)
				continue;
			if (!set_item(config, section, next_item(config, section), err))
				return NULL;
		}
	}
	/* [deliver] first: a [lookback] publishes to none of its retry and dead-letter topics */
	if (!finish_databases(config, source, err) || !finish_publishers(config, source, err) ||
	    !config_deliver_finish(config, source, err) ||
	    !config_topics_finish(config, source, err) ||
	    !config_lookback_finish(config, source, err) ||
	    !config_tokens_finish(config, source, err) || !config_api_finish(config, source, err))
		return NULL;

	/* for the binary search of find_topic; no section points to a topic */
	if (config->topic_count > 0)
		qsort(config->topics, (size_t)config->topic_count, sizeof *config->topics,
		    compare_topics);

	/* the caller owns it from here on */
	config = NULL;
	return built;
}

static struct config *parse_config(struct config_source *source, const char *name, const char *ini,
    char *const *environ_list, struct err *err)
{
	struct config *config;

	if (!config_ini_read(source, name, ini, err) ||
	    !config_environ_apply(source, environ_list, err) ||
	    !config_secret_read(source, environ_list, err))
		return NULL;
	config = build_config(source, err);
	if (!config)
		return NULL;
	text_add(&config->warnings, text_string(&source->warnings));
	if (config_files_finish(config, err))
		return config;
	config_destroy(config);
	return NULL;
}

struct config *config_parse(
    const char *name, const char *ini, char *const *environ_list, struct err *err)
{
	OWNED(config_source_finish) struct config_source source = {0};

	return parse_config(&source, name, ini, environ_list, err);
}

struct config *config_load(const char *path, struct err *err)
{
	OWNED(config_source_finish) struct config_source source = {0};
	owned_text char *ini = NULL;

	struct config *config;

	if (path)
		ini = config_source_read_file(path, &source.warnings, err);
	else
		ini = xstrdup("");
	config = ini ? parse_config(&source, path ? path : "", ini, environ, err) : NULL;
	if (config)
		config->path = xstrdup(path);
	return config;
}

/* The list of one kind, with the names and origins in it. */
static void free_sections(struct config *config, enum config_kind kind)
{
	const struct config_kind_row *row = &config_kinds[kind];
	void *list;

	if (!row->size)
		return;
	for (int i = 0; i < config_rows_items(config, kind); i++) {
		char *item = config_rows_item(config, kind, i);

		free(*(char **)item);
		if (row->origin)
			free(*(char **)(item + row->origin));
	}
	memcpy(&list, (char *)config + row->list, sizeof list);
	free(list);
}

void config_destroy(struct config *config)
{
	if (!config)
		return;

	/* members before lists: the rows say where the members of each item are */
	for (int i = 0; i < config_row_count; i++)
		for (int k = 0; k < config_rows_items(config, config_rows[i].kind); k++)
			config_value_free(
			    config_rows_item(config, config_rows[i].kind, k), &config_rows[i]);
	for (int i = 0; i < config->kafka_count; i++)
		kafka_settings_finish(&config->kafka[i]);
	config_deliver_free(config);
	for (int kind = 0; kind < CONFIG_KINDS; kind++)
		free_sections(config, (enum config_kind)kind);
	text_finish(&config->warnings);
	free(config->path);
	free(config);
}

const struct postgres_settings *config_find_postgres(const struct config *config, const char *name)
{
	return config_rows_item_named(config, CONFIG_POSTGRES, name);
}

const struct config_publisher *config_find_publisher(const struct config *config, const char *name)
{
	return config_rows_item_named(config, CONFIG_PUBLISHER, name);
}

/* NULL: the topic has no section. */
static const struct config_topic *find_topic(const struct config *config, const char *topic)
{
	const struct config_topic wanted = {.name = (char *)topic};

	if (config->topic_count == 0)
		return NULL;
	return bsearch(&wanted, config->topics, (size_t)config->topic_count, sizeof *config->topics,
	    compare_topics);
}

enum stream_policy config_topic_policy(const struct config *config, const char *topic)
{
	const struct config_topic *found = find_topic(config, topic);

	return found ? found->on_refusal : STREAM_BLOCK;
}

enum topic_headers config_topic_headers(const struct config *config, const char *topic)
{
	const struct config_topic *found = find_topic(config, topic);

	return found ? found->headers : TOPIC_HEADERS_FULL;
}

const struct config_check *config_find_check(const struct config *config, const char *name)
{
	return config_rows_item_named(config, CONFIG_CHECK, name);
}

bool config_is_default(const char *origin)
{
	return text_equal(origin, CONFIG_SOURCE_DEFAULT);
}

void config_use_password_commands(const struct config *config)
{
	for (int i = 0; i < config->postgres_count; i++) {
		const struct postgres_settings *postgres = &config->postgres[i];

		if (postgres->password_command[0])
			pg_password_from(postgres->dsn, postgres->password_command,
			    postgres->password_timeout_ms);
	}
}

bool config_has_transactions(const struct config *config, const struct kafka_settings *kafka)
{
	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.kafka == kafka &&
		    config->publishers[i].settings.delivery == DELIVERY_EXACTLY_ONCE)
			return true;
	return false;
}

bool config_list_matches(const struct config_list *list, const char *word)
{
	for (int i = 0; i < list->count; i++) {
		const char *pattern = list->items[i];
		size_t length = strlen(pattern);

		if (length > 0 && pattern[length - 1] == '*'
			? strncmp(word, pattern, length - 1) == 0
			: text_equal(pattern, word))
			return true;
	}
	return false;
}

static char *internal_of_deliver(const struct config_deliver *deliver, const char *topic)
{
	if (text_equal(deliver->dead_letter_topic, topic))
		return xformat("[deliver \"%s\"] dead_letter_topic", deliver->name);
	for (int i = 0; i < deliver->retry_topics.count; i++)
		if (text_equal(deliver->retry_steps[i].topic, topic))
			return xformat("[deliver \"%s\"] retry_topics", deliver->name);
	return NULL;
}

char *config_internal_topic(const struct config *config, const char *topic)
{
	char *setting = NULL;

	for (int i = 0; i < config->lookback_count; i++) {
		const struct config_lookback *lookback = &config->lookbacks[i];

		if (text_equal(lookback->topic, topic))
			return xformat("[lookback \"%s\"] topic", lookback->name);
		if (text_equal(lookback->dead_letter, topic))
			return xformat("[lookback \"%s\"] dead_letter", lookback->name);
	}
	for (int i = 0; i < config->deliver_count && !setting; i++)
		setting = internal_of_deliver(&config->delivers[i], topic);

	/* Kafka keeps offsets and transactions in such topics */
	if (!setting && strncmp(topic, "__", 2) == 0)
		setting = xstrdup("Kafka's own topics, which begin with __");
	return setting;
}

bool config_list_has(const struct config_list *list, const char *word)
{
	for (int i = 0; i < list->count; i++)
		if (strcmp(list->items[i], word) == 0)
			return true;
	return false;
}
