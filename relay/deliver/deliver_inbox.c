#include "deliver_inbox.h"

#include <stdlib.h>
#include "client_files.h"
#include "inbox_settings.h"
#include "text.h"

/* Those arguments of outbox_inbox_open that must be built from a section. */
struct settings {
	char **kafka; /* owns its texts */
	const char **topics, **rules;
};

/* Messages that the handler hands over at once, where each has a request of its own. */
enum { HANDED_OVER = 32 };

static int batch_of_section(const struct config_deliver *section)
{
	if (section->form == DELIVER_BATCH)
		return (int)section->batch;
	return section->concurrency < HANDED_OVER ? (int)section->concurrency : HANDED_OVER;
}

static const char **texts_of_list(const struct config_list *list)
{
	const char **texts = xcalloc((size_t)list->count + 1, sizeof *texts);

	for (int i = 0; i < list->count; i++)
		texts[i] = list->items[i];
	return texts;
}

/* A file is named rather than its content, so that the inbox reads it again. */
static char **kafka_property_texts(const struct kafka_settings *kafka)
{
	char **texts = xcalloc(2 * (size_t)kafka->property_count + 1, sizeof *texts);

	for (int i = 0; i < kafka->property_count; i++) {
		const struct kafka_property *property = &kafka->properties[i];
		bool file = client_files_rereads(property);

		texts[2 * i] = xformat("%s%s", property->name, file ? "_file" : "");
		texts[2 * i + 1] = xstrdup(file ? property->file : property->value);
	}
	return texts;
}

static const char *text_or_none(const char *text)
{
	return text[0] ? text : NULL;
}

static struct outbox_inbox_settings make_inbox_settings(
    const struct config_deliver *section, const struct settings *made)
{
	return (struct outbox_inbox_settings){.kafka = (const char *const *)made->kafka,
	    .group = section->group,
	    .topics = made->topics,
	    .dedup = text_or_none(section->dedup),
	    .claims = text_or_none(section->claims),
	    .report = text_or_none(section->report),
	    .path = text_or_none(section->path),
	    .id = section->id,
	    .without_id = section->without_id,
	    .rules = made->rules,
	    .rules_store = text_or_none(section->rules_store),
	    .user = text_or_none(section->user),
	    .content = text_or_none(section->content),
	    .channel = text_or_none(section->channel),
	    .zone = text_or_none(section->zone),
	    .concurrency = (int)section->concurrency,
	    .batch = batch_of_section(section),
	    .threads = 1, /* one is enough: the handler only hands messages over */
	    .most_bytes = section->memory,
	    .commit_every_ms = section->commit_every_ms,
	    .drain_ms = section->drain_ms ? section->drain_ms : 1,
	    .start = section->start,
	    .retry_first_ms = section->retry_first_ms,
	    .retry_most_ms = section->retry_max_ms,
	    .attempts = (int)section->attempts,
	    .retry_topics = section->retry_steps,
	    .dead_letters = text_or_none(section->dead_letter_topic)};
}

bool deliver_inbox_error(
    const struct config_deliver *section, const struct outbox_error *error, struct err *err)
{
	static const enum err_kind kinds[] = {[OUTBOX_RETRY] = ERR_RETRY,
	    [OUTBOX_REJECT] = ERR_REJECT,
	    [OUTBOX_CONFIG] = ERR_CONFIG,
	    [OUTBOX_DENIED] = ERR_DENIED,
	    [OUTBOX_FENCED] = ERR_FENCED,
	    [OUTBOX_FATAL] = ERR_FATAL};

	return err_set(err, kinds[error->kind], "%s: [deliver \"%s\"] %s", section->origin,
	    section->name, error->message);
}

static void free_made_settings(struct settings *made)
{
	for (char **text = made->kafka; *text; text++)
		free(*text);
	free(made->kafka);
	free(made->topics);
	free(made->rules);
}

static struct settings make_lists(const struct config_deliver *section)
{
	return (struct settings){kafka_property_texts(section->kafka),
	    texts_of_list(&section->topics), texts_of_list(&section->rules)};
}

/* Never called: the settings want a handler. */
static void handle_nothing(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	(void)context;
	(void)inbox;
	(void)messages;
	(void)count;
}

bool deliver_inbox_check(const struct config_deliver *section, struct err *err)
{
	struct settings made = make_lists(section);
	struct outbox_inbox_settings given = make_inbox_settings(section, &made);
	struct inbox_settings *settings;
	struct err why;

	given.handle = handle_nothing;
	settings = inbox_settings_create(&given, &why);
	free_made_settings(&made);
	inbox_settings_destroy(settings);
	return settings || err_set(err, why.kind, "%s: [deliver \"%s\"] %s", section->origin,
			       section->name, why.message);
}

bool deliver_inbox_change_rules(struct outbox_inbox *inbox, const struct config_deliver *section,
    const struct config_list *rules, struct err *err)
{
	const char **lines = texts_of_list(rules);
	struct outbox_error error;
	bool good = outbox_inbox_change_rules(inbox, lines, &error);

	free(lines);
	return good || deliver_inbox_error(section, &error, err);
}

struct outbox_inbox *deliver_inbox_open(const struct config_deliver *section,
    outbox_inbox_handler *handle, void *context, struct err *err)
{
	struct settings made = make_lists(section);
	struct outbox_inbox_settings settings = make_inbox_settings(section, &made);
	struct outbox_inbox *inbox;
	struct outbox_error error;

	settings.handle = handle;
	settings.context = context;
	inbox = outbox_inbox_open(&settings, &error);
	if (!inbox)
		deliver_inbox_error(section, &error, err);
	free_made_settings(&made);
	return inbox;
}
