#pragma once
/*
 * A rule, from a line of a configuration:
 *
 *   sliding name=burst most=5 within=10s key="topic,header:user" action=drop
 *
 * first its kind, then settings in any order, in words as spec_words.h has them. Each refusal names
 * the setting and the cure.
 */
#include "rule.h"

/* NULL: ERR_CONFIG. Nothing is known of it yet. */
struct rule *rules_spec_parse(const char *line, struct err *err);
/* Takes NULL. */
void rules_spec_destroy(struct rule *rule);
