/*
 * The expression that makes the key of a rule from a message: key, payload, headers and parts of
 * JSON. [values of a message] evaluates it, [the expression] parses it.
 */
#include "rule_key.h"

#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "cleanup.h"
#include "fingerprint.h"

enum { MOST_PARTS = 16, MOST_STEPS = 32, MOST_INDEX = 1000000000 };
enum { VALUE_HEAD = 1 + sizeof(uint64_t) }; /* bytes before a value: its kind and length */

struct step {
	char *member; /* NULL: an index */
	size_t index;
};

struct part {
	const struct source *source;
	char *name; /* name of a header */
	struct step steps[MOST_STEPS];
	size_t step_count;
};

struct rule_key {
	struct part parts[MOST_PARTS];
	size_t count;
};

/* The source of a part. */
struct source {
	const char *word;
	bool (*parse)(struct part *part, const char **at, struct err *err); /* reads the rest */
	bool (*add)(const struct part *part, struct rule_message *message, struct text *text);
};

/* --- values of a message --------------------------------------------------------------------- */

/* Writes the length before each value, so that no two lists of values have the same bytes. */
static bool add_value(struct text *text, char kind, const void *bytes, size_t length)
{
	uint64_t size = length;
	if (!bytes)
		return false;
	text_append(text, &kind, 1);
	text_append(text, (const char *)&size, sizeof size);
	text_append(text, bytes, length);
	return true;
}

static bool add_key_topic(const struct part *part, struct rule_message *message, struct text *text)
{
	const char *topic = message->message->topic;
	(void)part;
	return add_value(text, 'b', topic, topic ? strlen(topic) : 0);
}

static bool add_key(const struct part *part, struct rule_message *message, struct text *text)
{
	(void)part;
	return add_value(text, 'b', message->message->key, message->message->key_length);
}

/* Adds the hash of the payload, which may be large; the whole key is hashed later anyway. */
static bool add_payload(const struct part *part, struct rule_message *message, struct text *text)
{
	const struct outbox_rules_message *from = message->message;
	(void)part;
	if (!from->payload)
		return false;
	struct fingerprint hash = fingerprint_of(from->payload, from->payload_length, 0);
	return add_value(text, 'h', &hash, sizeof hash);
}

static bool add_key_header(const struct part *part, struct rule_message *message, struct text *text)
{
	const struct outbox_rules_message *from = message->message;
	for (size_t i = from->header_count; i-- > 0;)
		if (text_equal(from->headers[i].name, part->name))
			return add_value(
			    text, 'b', from->headers[i].value, from->headers[i].length);
	return false;
}

static const json_t *payload_json(struct rule_message *message)
{
	if (!message->parsed && message->message->payload)
		message->json = json_loadb(message->message->payload,
		    message->message->payload_length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	message->parsed = true;
	return message->json;
}

static bool add_json_value(const json_t *value, struct text *text)
{
	if (json_is_string(value))
		return add_value(text, 's', json_string_value(value), json_string_length(value));
	owned_text char *dump = json_dumps(
	    value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
	return add_value(text, 'j', dump, dump ? strlen(dump) : 0);
}

static bool add_json(const struct part *part, struct rule_message *message, struct text *text)
{
	const json_t *value = payload_json(message);
	for (size_t i = 0; value && i < part->step_count; i++) {
		const struct step *step = &part->steps[i];
		value = step->member ? json_object_get(value, step->member)
				     : json_array_get(value, step->index);
	}
	return value && add_json_value(value, text);
}

bool rule_key_add(const struct rule_key *key, struct rule_message *message, struct text *text)
{
	for (size_t i = 0; i < key->count; i++)
		if (!key->parts[i].source->add(&key->parts[i], message, text))
			return false;
	return true;
}

bool rule_key_add_id(const struct rule_key *key, struct rule_message *message, struct text *text)
{
	size_t begin = text->length, around = key->count == 1 ? VALUE_HEAD : 0;
	if (!rule_key_add(key, message, text))
		return false;
	text->length -= around;
	memmove(text->data + begin, text->data + begin + around, text->length - begin);
	return true;
}

void rule_message_finish(struct rule_message *message)
{
	json_decref(message->json);
}

/* --- the expression ------------------------------------------------------------------------- */

static bool refuse_rule_key(const char *at, const char *why, struct err *err)
{
	return err_set(err, ERR_CONFIG,
	    "key is refused at '%.40s': %s; it is a list of topic, key, header:NAME, json:$.PATH "
	    "and payload, as key=\"topic,header:user,json:$.user.id\"",
	    at, why);
}

static bool parse_quoted(const char **at, struct text *name, struct err *err)
{
	const char *begin = *at;
	for (++*at; **at && (**at != '"' || (*at)[1] == '"'); ++*at) {
		*at += **at == '"';
		text_append(name, *at, 1);
	}
	if (!**at)
		return refuse_rule_key(begin, "the quote has no end", err);
	++*at;
	return true;
}

/* Reads a name. NULL: there is none. ends: characters that end a name without quotes. */
static char *parse_key_name(const char **at, const char *ends, struct err *err)
{
	OWNED(text_finish) struct text name = {0};
	const char *begin = *at;
	size_t length = strcspn(*at, ends);

	if (**at == '"') {
		if (!parse_quoted(at, &name, err))
			return NULL;
	} else {
		text_append(&name, *at, length);
		*at += length;
	}
	if (name.length)
		return xstrdup(name.data);

	refuse_rule_key(begin, "a name is missing", err);
	return NULL;
}

static bool parse_header(struct part *part, const char **at, struct err *err)
{
	part->name = parse_key_name(at, ",\"", err);
	return part->name;
}

static bool parse_index(struct step *step, const char **at, struct err *err)
{
	const char *begin = (*at)++;
	size_t digits = strspn(*at, "0123456789");
	owned_text char *number = xformat("%.*s", (int)digits, *at);
	int64_t index;
	if (!text_to_int64(number, 0, MOST_INDEX, &index) || (*at)[digits] != ']')
		return refuse_rule_key(begin, "an index is a number in brackets, as [0]", err);
	*at += digits + 1;
	step->index = (size_t)index;
	return true;
}

static bool parse_step(struct part *part, const char **at, struct err *err)
{
	if (part->step_count == MOST_STEPS)
		return refuse_rule_key(*at, "a path has at most 32 steps", err);
	struct step *step = &part->steps[part->step_count++];
	if (**at == '[')
		return parse_index(step, at, err);
	++*at;
	step->member = parse_key_name(at, ".,[]\" \t", err);
	return step->member;
}

static bool parse_path(struct part *part, const char **at, struct err *err)
{
	if (**at != '$')
		return refuse_rule_key(*at, "a path begins with $, as json:$.user.id", err);
	++*at;
	while (**at == '.' || **at == '[')
		if (!parse_step(part, at, err))
			return false;
	return true;
}

static bool parse_nothing(struct part *part, const char **at, struct err *err)
{
	(void)part, (void)at, (void)err;
	return true;
}

static const struct source sources[] = {
    {"topic", parse_nothing, add_key_topic},
    {"key", parse_nothing, add_key},
    {"payload", parse_nothing, add_payload},
    {"header:", parse_header, add_key_header},
    {"json:", parse_path, add_json},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static bool parse_part(struct part *part, const char **at, struct err *err)
{
	const char *begin = *at;
	for (int i = 0; i < SOURCES; i++) {
		if (!text_starts(begin, sources[i].word))
			continue;
		part->source = &sources[i];
		*at += strlen(sources[i].word);
		return part->source->parse(part, at, err) &&
		       (!**at || **at == ',' || refuse_rule_key(*at, "a comma is missing", err));
	}
	return refuse_rule_key(begin, "it is nothing that a message has", err);
}

static bool parse_key_parts(struct rule_key *key, const char *at, struct err *err)
{
	for (;; at++) {
		if (key->count == MOST_PARTS)
			return refuse_rule_key(at, "a key has at most 16 parts", err);
		if (!parse_part(&key->parts[key->count++], &at, err))
			return false;
		if (!*at)
			return true;
	}
}

struct rule_key *rule_key_parse(const char *expression, struct err *err)
{
	struct rule_key *key = xcalloc(1, sizeof *key);
	if (parse_key_parts(key, expression, err))
		return key;
	rule_key_destroy(key);
	return NULL;
}

void rule_key_destroy(struct rule_key *key)
{
	for (size_t i = 0; key && i < key->count; i++) {
		free(key->parts[i].name);
		for (size_t step = 0; step < key->parts[i].step_count; step++)
			free(key->parts[i].steps[step].member);
	}
	free(key);
}

/* --- comparison ----------------------------------------------------------------------------- */

static bool steps_equal(const struct part *a, const struct part *b)
{
	for (size_t i = 0; i < a->step_count; i++)
		if (!text_equal(a->steps[i].member, b->steps[i].member) ||
		    a->steps[i].index != b->steps[i].index)
			return false;
	return true;
}

static bool parts_equal(const struct part *a, const struct part *b)
{
	return a->source == b->source && text_equal(a->name, b->name) &&
	       a->step_count == b->step_count && steps_equal(a, b);
}

bool rule_key_has(const struct rule_key *key, const struct rule_key *other)
{
	for (size_t i = 0; i < other->count; i++) {
		bool found = false;
		for (size_t k = 0; k < key->count; k++)
			found |= parts_equal(&key->parts[k], &other->parts[i]);
		if (!found)
			return false;
	}
	return true;
}
