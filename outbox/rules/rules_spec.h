#pragma once
/*
 * A rule, from a line of a configuration:
 *
 *   sliding name=burst most=5 within=10s key="topic,header:user" action=drop
 *
 * first its kind, then settings in any order, in the words of spec_words.h. Each refusal names the
 * setting and the cure.
 */
#include "rule.h"

/* NULL: ERR_CONFIG. The new rule has no records yet. */
struct rule *rules_spec_parse(const char *line, struct err *err);
/* NULL is fine. */
void rules_spec_destroy(struct rule *rule);
