#include "rules_spec.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "spec_words.h"
#include "text.h"
#include "units.h"

static const struct rule_type *const types[] = {&rule_sliding, &rule_daily};
enum { TYPES = sizeof types / sizeof *types };

static const struct {
	const char *word;
	enum outbox_rules_action action;
} actions[] = {{"drop", OUTBOX_RULES_DROP}, {"dead-letter", OUTBOX_RULES_DEAD_LETTER},
    {"count", OUTBOX_RULES_PASS}};
enum { ACTIONS = sizeof actions / sizeof *actions };

static const int64_t most_late = INT64_C(365) * 86400 * 1000, default_late = 600000;

/* --- settings of every rule ----------------------------------------------------------------- */

static bool set_rule_name(struct rule *rule, const char *value, struct err *err)
{
	size_t length =
	    strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	(void)err;
	free(rule->name);
	rule->name = xstrdup(value);
	return length > 0 && length <= 100 && !value[length];
}

static bool set_most(struct rule *rule, const char *value, struct err *err)
{
	(void)err;
	return units_parse(value, units_count, &rule->most) == UNITS_READ && rule->most > 0 &&
	       rule->most <= 1000000000;
}

static bool set_late(struct rule *rule, const char *value, struct err *err)
{
	(void)err;
	return units_parse(value, units_duration, &rule->late_ms) == UNITS_READ &&
	       rule->late_ms <= most_late;
}

static bool set_action(struct rule *rule, const char *value, struct err *err)
{
	(void)err;
	for (int i = 0; i < ACTIONS; i++)
		if (text_equal(actions[i].word, value)) {
			rule->acts = true;
			rule->action = actions[i].action;
			return true;
		}
	return false;
}

static bool set_key(struct rule *rule, const char *value, struct err *err)
{
	rule_key_destroy(rule->key);
	free(rule->expression);
	rule->expression = xstrdup(value);
	rule->key = rule_key_parse(value, err);
	return rule->key;
}

static const struct rule_setting settings[] = {
    {"name", "up to 100 letters, digits, dots, dashes and underscores, as name=burst",
	set_rule_name},
    {"most", "a number of messages from 1 to 1G, as most=5", set_most},
    {"key", "what is counted together, as key=topic,key", set_key},
    {"action", "drop, dead-letter or count, as action=drop", set_action},
    {"late", "a time from 0 to 365d, as late=10m", set_late},
    {NULL},
};

/* --- the line ------------------------------------------------------------------------------- */

static const struct rule_setting *find_rule_setting(
    const struct rule_setting *row, const char *name)
{
	while (row->name && !text_equal(row->name, name))
		row++;
	return row->name ? row : NULL;
}

static void list_rule_settings(const struct rule_setting *row, struct text *names)
{
	for (; row->name; row++)
		text_addf(names, "%s%s", names->length ? ", " : "", row->name);
}

static bool refuse_rule_setting(const struct rule *rule, const char *name, struct err *err)
{
	OWNED(text_finish) struct text names = {0};
	list_rule_settings(settings, &names);
	list_rule_settings(rule->type->settings, &names);
	return err_set(err, ERR_CONFIG, "'%.40s' is no setting of '%s'; there are: %s", name,
	    rule->type->name, names.data);
}

static bool parse_rule_word(struct rule *rule, char *word, struct err *err)
{
	char *value = strchr(word, '=');
	if (value)
		*value++ = '\0';
	const struct rule_setting *setting = find_rule_setting(settings, word);
	if (!setting)
		setting = find_rule_setting(rule->type->settings, word);
	if (!setting)
		return refuse_rule_setting(rule, word, err);
	err_set(err, ERR_CONFIG, "%s '%.40s' is refused; it is %s", word, value ? value : "",
	    setting->example);
	return value && setting->set(rule, value, err);
}

static bool miss_rule_setting(const char *name, struct err *err)
{
	const struct rule_setting *setting = find_rule_setting(settings, name);
	return err_set(err, ERR_CONFIG, "%s is missing: %s", name, setting->example);
}

static bool check_parsed_rule(struct rule *rule, struct err *err)
{
	if (!rule->name)
		return miss_rule_setting("name", err);
	if (!rule->most)
		return miss_rule_setting("most", err);
	if (!rule->key)
		return miss_rule_setting("key", err);
	if (!rule->acts)
		return miss_rule_setting("action", err);
	return rule->type->check(rule, err);
}

static struct rule *create_rule(const char *word, struct err *err)
{
	OWNED(text_finish) struct text known = {0};
	for (int i = 0; i < TYPES; i++) {
		text_addf(&known, "%s%s", i ? ", " : "", types[i]->name);
		if (!word || !text_equal(types[i]->name, word))
			continue;
		struct rule *rule = xcalloc(1, types[i]->size);
		rule->type = types[i];
		rule->late_ms = default_late;
		return rule;
	}
	err_set(err, ERR_CONFIG, "'%.40s' is no kind of rule; begin the line with one of: %s",
	    word ? word : "", known.data);
	return NULL;
}

static bool parse_words(struct rule *rule, char *rest, struct err *err)
{
	char *word;
	while (spec_word_next(&rest, &word, err))
		if (!word)
			return check_parsed_rule(rule, err);
		else if (!parse_rule_word(rule, word, err))
			return false;
	return false;
}

struct rule *rules_spec_parse(const char *line, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy, *word;
	struct rule *rule = spec_word_next(&rest, &word, err) ? create_rule(word, err) : NULL;
	if (rule && parse_words(rule, rest, err))
		return rule;
	rules_spec_destroy(rule);
	return NULL;
}

void rules_spec_destroy(struct rule *rule)
{
	if (!rule)
		return;
	if (rule->type->finish)
		rule->type->finish(rule);
	rule_key_destroy(rule->key);
	occurrences_finish(&rule->known);
	occurrences_finish(&rule->moved);
	free(rule->expression);
	free(rule->name);
	free(rule);
}
