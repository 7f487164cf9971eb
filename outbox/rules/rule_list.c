#include "rule_list.h"

#include <stdlib.h>
#include "rules_article.h"
#include "rules_spec.h"
#include "text.h"

static bool check_rule_name(const struct rule_list *list, const struct rule *rule, struct err *err)
{
	for (size_t i = 0; i < list->count; i++)
		if (text_equal(list->rules[i]->name, rule->name))
			return err_set(err, ERR_CONFIG,
			    "name=%s is also the name of rule %zu: the records of a rule are found "
			    "by its name; give each rule its own name",
			    rule->name, i + 1);
	return true;
}

static bool add_rule(struct rule_list *list, const char *line, struct err *err)
{
	struct rule *rule = rules_spec_parse(line, err);
	if (!rule || !check_rule_name(list, rule, err)) {
		rules_spec_destroy(rule);
		return err_prefix(err, "rule %zu", list->count + 1);
	}
	list->rules = xrealloc(list->rules, (list->count + 1) * sizeof *list->rules);
	list->rules[list->count++] = rule;
	return true;
}

static bool add_article(
    struct rule_list *list, const char *json, const struct rule_places *places, struct err *err)
{
	struct rules_article article;
	bool good = rules_article_read(json, places, &article, err);

	for (int i = 0; good && i < article.count; i++)
		good = add_rule(list, article.lines[i], err);
	rules_article_finish(&article);
	return good;
}

bool rule_list_parse(struct rule_list *list, const char *const *lines, size_t count,
    const struct rule_places *places, size_t *ret_wrong, struct err *err)
{
	*list = (struct rule_list){0};
	for (size_t i = 0; i < count; i++) {
		if (ret_wrong)
			*ret_wrong = i;
		if (!(rules_article_is(lines[i]) ? add_article(list, lines[i], places, err)
						 : add_rule(list, lines[i], err)))
			return false;
	}
	return true;
}

void rule_list_finish(struct rule_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		rules_spec_destroy(list->rules[i]);
	free(list->rules);
	*list = (struct rule_list){0};
}

struct rule *rule_list_find(const struct rule_list *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++)
		if (text_equal(list->rules[i]->name, name))
			return list->rules[i];
	return NULL;
}
