#pragma once
/*
 * Rules in the form of a push platform: one JSON object, with either name of each rule.
 *
 *   {"deduplication_10":{"num":1,"time":300},"deduplication_20":{"num":5}}
 *   {"contentDeduplication":{"num":1,"time":300},"frequencyDeduplication":{"num":5}}
 *
 * deduplication_10: messages with the same user and content, at most num in any `time` seconds.
 * deduplication_20: messages with the same user and channel, at most num in a calendar day. Both
 * become lines for rules_spec.h, with the expressions of user, content and channel as keys.
 */
#include <stdbool.h>
#include "errors.h"

struct rule_places;

enum { RULES_ARTICLE_MOST = 2 };
struct rules_article {
	char *lines[RULES_ARTICLE_MOST];
	int count;
};

/* Is it an object, and no line of a rule? */
bool rules_article_is(const char *text);
/* ERR_CONFIG: names the line or the member, and the cure. The caller finishes ret_article in any
 * case. places NULL: none are given. */
bool rules_article_read(const char *json, const struct rule_places *places,
    struct rules_article *ret_article, struct err *err) MUST_CHECK;
void rules_article_finish(struct rules_article *article);
