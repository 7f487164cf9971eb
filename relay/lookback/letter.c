#include "letter.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "json_slice.h"
#include "text.h"

enum {
	KEY_MOST = 8192,      /* outbox.message_key */
	HEADERS_MOST = 32768, /* outbox.headers_valid */
	SPARE = 2048,         /* of it, for what is said here */
};

static void add(json_t *pairs, const char *name, json_t *value)
{
	json_array_append_new(pairs, json_pack("[so]", name, value));
}

/* A name that the table takes: text, and none of the relay's own. */
static bool is_name(const char *name)
{
	json_t *text = json_string(name);
	bool well = text && *name && !text_starts(name, "outbox-");

	json_decref(text);
	return well;
}

/* As many as there is room for; false: some were left out. */
static bool add_own(json_t *pairs, const struct consumer_record *record)
{
	const char *name;
	const void *value;
	size_t length, room = HEADERS_MOST - SPARE;

	for (size_t i = 0; consumer_header_at(record, i, &name, &value, &length); i++) {
		json_t *own;
		char *text;
		size_t size;

		if (!is_name(name) || length > room)
			return false;
		own = json_pack("[so]", name, json_bytes(value, length));
		text = json_dumps(own, JSON_COMPACT);
		/* jsonb puts a blank after each comma and colon */
		size = text ? strlen(text) + 8 : room;
		free(text);
		if (size >= room) {
			json_decref(own);
			return false;
		}
		room -= size;
		json_array_append_new(pairs, own);
	}
	return true;
}

struct batch_letter letter_of(const struct consumer_record *record, const char *topic,
    const struct refusal *refusal, enum letter_extent extent, char **ret_headers)
{
	struct batch_letter letter = {.topic = topic};
	json_t *pairs = json_array();
	char left_out[64] = "";
	char number[24];

	add(pairs, "dead-letter-reason", json_string(refusal->code));
	add(pairs, "dead-letter-error", json_bytes(refusal->text, strlen(refusal->text)));
	add(pairs, "dead-letter-topic", json_string(record->topic));
	snprintf(number, sizeof number, "%" PRId32, record->partition);
	add(pairs, "dead-letter-partition", json_string(number));
	snprintf(number, sizeof number, "%" PRId64, record->offset);
	add(pairs, "dead-letter-offset", json_string(number));
	if (extent == LETTER_BARE) {
		text_copy(left_out, sizeof left_out, "key payload headers");
	} else {
		letter.payload = record->payload;
		letter.payload_length = record->payload_length;
		if (record->key_length <= KEY_MOST) {
			letter.key = record->key;
			letter.key_length = record->key_length;
		} else {
			text_copy(left_out, sizeof left_out, "key ");
		}
		if (!add_own(pairs, record))
			snprintf(left_out + strlen(left_out), sizeof left_out - strlen(left_out),
			    "headers");
	}
	if (*left_out)
		add(pairs, "dead-letter-left-out", json_string(left_out));
	*ret_headers = json_dumps(pairs, JSON_COMPACT);
	letter.headers = *ret_headers;
	json_decref(pairs);
	return letter;
}
