#pragma once
/*
 * All rules of a configuration: lines (rules_spec.h), or one object of the form of the push
 * platform (rules_article.h).
 */
#include "rule.h"

struct rule_list {
	struct rule **rules;
	size_t count;
};

/* The expressions of user, content and channel; NULL: not given. */
struct rule_places {
	const char *user, *content, *channel, *zone;
};

/*
 * ERR_CONFIG: the error begins with "rule 2: ", and ret_wrong is the number of the line, from 0.
 * The caller finishes the list in any case. ret_wrong: NULL is fine.
 */
bool rule_list_parse(struct rule_list *list, const char *const *lines, size_t count,
    const struct rule_places *places, size_t *ret_wrong, struct err *err) MUST_CHECK;
void rule_list_finish(struct rule_list *list);
/* The rule of this name; NULL: there is none. */
struct rule *rule_list_find(const struct rule_list *list, const char *name);
