/*
 * Any text is a rule, or the key of one, or is refused with what to write; and any bytes are a
 * payload that has such a key, the same each time, or has none. The text ends at the first NUL,
 * which is not part of the payload behind it.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "rule_list.h"
#include "rules_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static bool add(const struct rule_key *key, const void *payload, size_t length, struct text *text)
{
	static const struct outbox_rules_header headers[] = {{"user", "a", 1}, {"", "", 0}};
	const struct outbox_rules_message from = {.topic = "t",
	    .key = "k",
	    .key_length = 1,
	    .payload = payload,
	    .payload_length = length,
	    .headers = headers,
	    .header_count = 2};
	OWNED(rule_message_finish) struct rule_message message = {&from};
	return rule_key_add(key, &message, text);
}

static void use(const struct rule_key *key, const void *payload, size_t length)
{
	OWNED(text_finish) struct text one = {0}, other = {0};
	bool has = add(key, payload, length, &one);
	require(add(key, payload, length, &other) == has);
	require(one.length == other.length &&
		(one.length == 0 || memcmp(one.data, other.data, one.length) == 0));
}

/* Any text is a list of rules, perhaps as a JSON object, or is refused. */
static void use_list(const char *text, struct err *err)
{
	static const struct rule_places places = {.user = "header:user"};
	const char *lines[] = {text};
	struct rule_list list;

	require(rule_list_parse(&list, lines, 1, &places, NULL, err) ||
		(err->kind == ERR_CONFIG && err->message[0]));
	rule_list_finish(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = {0};
	char *text = malloc(size + 1);
	memcpy(text, data, size);
	text[size] = '\0';
	size_t length = strlen(text), behind = length < size ? length + 1 : size;
	struct rule_key *key = rule_key_parse(text, &err);
	require(key || (err.kind == ERR_CONFIG && err.message[0]));
	if (key)
		use(key, data + behind, size - behind);
	rule_key_destroy(key);
	struct rule *rule = rules_spec_parse(text, &err);
	require(rule || (err.kind == ERR_CONFIG && err.message[0]));
	if (rule)
		use(rule->key, data + behind, size - behind);
	rules_spec_destroy(rule);
	use_list(text, &err);
	free(text);
	return 0;
}
