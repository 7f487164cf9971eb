#pragma once
/*
 * Which messages a rule counts together: one expression, of parts that are joined by commas.
 *
 *   topic                  the topic
 *   key                    the record's key
 *   header:NAME            the last header of this name
 *   json:$.user.ids[0]     a value in the payload, which is JSON; members and indexes
 *   payload                the whole payload
 *
 * as in "topic,header:user,json:$.user.id". A name with a comma, a dot, a bracket, a blank or a
 * quote in it stands in double quotes, in which a double quote is written twice:
 * json:$."user id", header:"a,b".
 *
 * JSON: a string is its text; everything else is its shortest form with members in order, kept
 * apart from a string with that text; 1 and 1.0 are not the same.
 */
#include <stdbool.h>
#include "errors.h"
#include "rules.h"
#include "text.h"

struct rule_key;

/* NULL: ERR_CONFIG, with what is wrong and how it is written. */
struct rule_key *rule_key_parse(const char *expression, struct err *err);
void rule_key_destroy(struct rule_key *key);

/* A message, and its payload as JSON, which is parsed when a key first asks for it. */
struct rule_message {
	const struct outbox_rules_message *message;
	bool parsed;
	struct json_t *json; /* NULL: not parsed, or it is no JSON */
};
void rule_message_finish(struct rule_message *message);

/* Adds the key of the message; two keys never are the same bytes. False: it has none. */
bool rule_key_add(
    const struct rule_key *key, struct rule_message *message, struct text *text) MUST_CHECK;
/* The same as an id: of an expression with one part its value alone. */
bool rule_key_add_id(
    const struct rule_key *key, struct rule_message *message, struct text *text) MUST_CHECK;
