#pragma once
/*
 * The expression that says which messages a rule counts together. Its parts are joined by commas.
 *
 *   topic                  the topic
 *   key                    the record's key
 *   header:NAME            the last header of this name
 *   json:$.user.ids[0]     a value in the payload, which is JSON; members and indexes
 *   payload                the whole payload
 *
 * as in "topic,header:user,json:$.user.id". A name that contains a comma, a dot, a bracket, a blank
 * or a quote is written in double quotes, and a double quote inside is written twice: json:$."user
 * id", header:"a,b".
 *
 * JSON: the value of a string is its text. Any other value is its shortest form with sorted
 * members, and differs from a string with the same text; 1 and 1.0 differ.
 */
#include <stdbool.h>
#include "errors.h"
#include "rules.h"
#include "text.h"

struct rule_key;

/* NULL: ERR_CONFIG, and the error says what is wrong and how to write it. */
struct rule_key *rule_key_parse(const char *expression, struct err *err);
void rule_key_destroy(struct rule_key *key);
/* Does the key have all parts of the other one? Then messages with different values of the other
 * one have different keys. */
bool rule_key_has(const struct rule_key *key, const struct rule_key *other);

/* A message, and its payload as JSON, which is parsed when a key first asks for it. */
struct rule_message {
	const struct outbox_rules_message *message;
	bool parsed;
	struct json_t *json; /* NULL: not parsed, or not JSON */
};
void rule_message_finish(struct rule_message *message);

/* Adds the key of the message; different keys never have the same bytes. False: the message has no
 * key. */
bool rule_key_add(
    const struct rule_key *key, struct rule_message *message, struct text *text) MUST_CHECK;
/* The same, to be used as an id: for an expression with one part, only the value of that part. */
bool rule_key_add_id(
    const struct rule_key *key, struct rule_message *message, struct text *text) MUST_CHECK;
