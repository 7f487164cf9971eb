#include "rules_spec.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

static const struct spec_type *const types[] = {&rule_sliding.spec, &rule_daily.spec, NULL};

static const struct {
	const char *word;
	enum outbox_rules_action action;
} actions[] = {{"drop", OUTBOX_RULES_DROP}, {"dead-letter", OUTBOX_RULES_DEAD_LETTER},
    {"count", OUTBOX_RULES_PASS}};
enum { ACTIONS = sizeof actions / sizeof *actions };

enum { DEFAULT_LATE = 600000 };

static bool set_action(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	struct rule *rule = object;
	(void)setting;
	(void)err;
	for (int i = 0; i < ACTIONS; i++)
		if (text_equal(actions[i].word, value)) {
			rule->acts = actions[i].word;
			rule->action = actions[i].action;
			return true;
		}
	return false;
}

static bool set_key(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	struct rule *rule = object;
	(void)setting;
	rule_key_destroy(rule->key);
	free(rule->expression);
	rule->expression = xstrdup(value);
	rule->key = rule_key_parse(value, err);
	return rule->key;
}

#define AT(member) offsetof(struct rule, member)
const struct spec_setting rule_settings[] = {
    {"name", "up to 100 letters, digits, dots, dashes and underscores, as name=burst",
	spec_set_name, AT(name)},
    {"most", "a number of messages from 1 to 1G, as most=5", spec_set_number, AT(most), units_count,
	1, 1000000000},
    {"key", "what is counted together, as key=topic,key", set_key, AT(key)},
    {"action", "drop, dead-letter or count, as action=drop", set_action, AT(acts)},
    {"late", "a time from 0 to 365d, as late=10m", spec_set_number, AT(late_ms), units_duration, 0,
	INT64_C(365) * 86400 * 1000},
    {NULL},
};

static struct rule *create_rule(const struct rule_type *type)
{
	struct rule *rule = xcalloc(1, type->size);
	rule->type = type;
	rule->late_ms = DEFAULT_LATE;
	return rule;
}

struct rule *rules_spec_parse(const char *line, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy;
	const struct spec_type *spec = spec_parse_type(&rest, types, "kind of rule", err);
	if (!spec)
		return NULL;
	struct rule *rule = create_rule((const struct rule_type *)spec);
	if (spec_parse_settings(rest, spec, rule, err) && spec_check_needs(spec, rule, err) &&
	    rule->type->check(rule, err))
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
