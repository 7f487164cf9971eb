#include "dead_letter.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "json_slice.h"
#include "text.h"

enum {
	KEY_MOST = 8192,      /* outbox.message_rules */
	HEADERS_MOST = 32768, /* outbox.headers_valid */
	SPARE = 2048,         /* kept of HEADERS_MOST for the headers that this file adds */
};

static void add_text_header(json_t *pairs, const char *name, json_t *value)
{
	json_array_append_new(pairs, json_pack("[so]", name, value));
}

/* Does the table take this name of a header? It must be text, and not one of the relay's own. */
static bool is_storable_name(const char *name)
{
	json_t *text = json_string(name);
	bool well = text && *name && !text_starts(name, "outbox-");

	json_decref(text);
	return well;
}

/* As many as there is room for; false: some were left out. */
static bool add_record_headers(json_t *pairs, const struct consumer_record *record)
{
	const char *name;
	const void *value;
	size_t length, room = HEADERS_MOST - SPARE;

	for (size_t i = 0; consumer_header_at(record, i, &name, &value, &length); i++) {
		json_t *own;
		char *text;
		size_t size;

		/* All headers then go to a part of their own, so that none is lost. */
		if (!is_storable_name(name) || length > room)
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

/* A part of the record that has no room in the first dead letter. */
struct rest {
	const char *what;
	const char *bytes;
	size_t length;
};

/* All headers of the record as JSON: binary safe, and readable where they are text. */
static char *all_headers(const struct consumer_record *record)
{
	json_t *pairs = json_array();
	const char *name;
	const void *value;
	size_t length;
	char *text;

	for (size_t i = 0; consumer_header_at(record, i, &name, &value, &length); i++) {
		json_t *pair = json_array();

		/* A name need not be text: json_bytes writes such a name as base64. */
		json_array_append_new(pair, json_bytes(name, strlen(name)));
		json_array_append_new(pair, json_bytes(value, length));
		json_array_append_new(pairs, pair);
	}
	text = json_dumps(pairs, JSON_COMPACT);
	json_decref(pairs);
	return text;
}

static json_t *base_headers(const struct consumer_record *record, const struct refusal *refusal)
{
	json_t *pairs = json_array();
	char number[24];

	add_text_header(pairs, "dead-letter-reason", json_string(refusal->code));
	add_text_header(
	    pairs, "dead-letter-error", json_bytes(refusal->text, strlen(refusal->text)));
	add_text_header(pairs, "dead-letter-topic", json_string(record->topic));
	snprintf(number, sizeof number, "%" PRId32, record->partition);
	add_text_header(pairs, "dead-letter-partition", json_string(number));
	snprintf(number, sizeof number, "%" PRId64, record->offset);
	add_text_header(pairs, "dead-letter-offset", json_string(number));
	return pairs;
}

/* Takes over the pairs. The dead letter's other texts stay the caller's. */
static void put_dead_letter(
    struct dead_letters *dead_letters, struct batch_dead_letter dead_letter, json_t *pairs)
{
	dead_letter.headers = json_dumps(pairs, JSON_COMPACT);
	json_decref(pairs);
	dead_letters->list = xrealloc(
	    dead_letters->list, (size_t)(dead_letters->count + 1) * sizeof *dead_letters->list);
	dead_letters->list[dead_letters->count++] = dead_letter;
}

static int count_parts(const struct rest *rests, int count, size_t most)
{
	int parts = 0;

	for (int i = 0; i < count; i++)
		parts += (int)((rests[i].length + most - 1) / most);
	return parts;
}

static void put_parts(struct dead_letters *dead_letters, const struct consumer_record *record,
    const struct refusal *refusal, const struct batch_dead_letter *first, const struct rest *rests,
    int count, size_t most)
{
	int total = 1 + count_parts(rests, count, most), number = 1;
	char text[40];

	for (int i = 0; i < count; i++)
		for (size_t at = 0; at < rests[i].length; at += most) {
			size_t left = rests[i].length - at;
			struct batch_dead_letter dead_letter = *first;
			json_t *pairs = base_headers(record, refusal);

			dead_letter.payload = rests[i].bytes + at;
			dead_letter.payload_length = left < most ? left : most;
			snprintf(text, sizeof text, "%d/%d", ++number, total);
			add_text_header(pairs, "dead-letter-part", json_string(text));
			add_text_header(pairs, "dead-letter-holds", json_string(rests[i].what));
			put_dead_letter(dead_letters, dead_letter, pairs);
		}
}

struct dead_letters dead_letters_of(const struct consumer_record *record, const char *topic,
    const struct refusal *refusal, enum dead_letter_extent extent, int64_t payload_most)
{
	enum { PART_MOST = 500000 }; /* bytes of a part, far below the limit of a topic */
	struct dead_letters dead_letters = {0};
	struct batch_dead_letter dead_letter = {.topic = topic};
	struct rest rests[3];
	int count = 0;
	size_t most = payload_most < PART_MOST ? (size_t)payload_most : PART_MOST;
	json_t *pairs = base_headers(record, refusal);
	owned_text char *headers = NULL;
	owned_text char *place = NULL;
	char left_out[64] = "", text[24];

	/* The last resort keeps only the reason and the place, which the relay wrote itself. */
	if (extent == DEAD_LETTER_BARE) {
		add_text_header(pairs, "dead-letter-left-out", json_string("key payload headers"));
		put_dead_letter(&dead_letters, dead_letter, pairs);
		return dead_letters;
	}

	if (record->key_length <= KEY_MOST) {
		dead_letter.key = record->key;
		dead_letter.key_length = record->key_length;
	} else {
		rests[count++] = (struct rest){"key", record->key, record->key_length};
	}
	if ((int64_t)record->payload_length <= payload_most) {
		dead_letter.payload = record->payload;
		dead_letter.payload_length = record->payload_length;
	} else {
		rests[count++] = (struct rest){"payload", record->payload, record->payload_length};
	}
	if (!add_record_headers(pairs, record)) {
		headers = all_headers(record);
		rests[count++] = (struct rest){"headers", headers, strlen(headers)};
	}

	for (int i = 0; i < count; i++)
		snprintf(left_out + strlen(left_out), sizeof left_out - strlen(left_out), "%s%s",
		    i ? " " : "", rests[i].what);
	if (count > 0) {
		add_text_header(pairs, "dead-letter-left-out", json_string(left_out));
		snprintf(text, sizeof text, "1/%d", 1 + count_parts(rests, count, most));
		add_text_header(pairs, "dead-letter-part", json_string(text));
		/* one key, so that they are in one partition and in order */
		place = xformat(
		    "%s/%" PRId32 "/%" PRId64, record->topic, record->partition, record->offset);
		if (!dead_letter.key) {
			dead_letter.key = place;
			dead_letter.key_length = strlen(place);
		}
	}
	put_dead_letter(&dead_letters, dead_letter, pairs);
	put_parts(&dead_letters, record, refusal, &dead_letter, rests, count, most);

	/* Copied last: until here they point into the record, into `headers` and `place`. */
	for (int i = 0; i < dead_letters.count; i++) {
		struct batch_dead_letter *one = &dead_letters.list[i];

		one->key = lookback_bytes_copy(one->key, one->key_length).bytes;
		one->payload = lookback_bytes_copy(one->payload, one->payload_length).bytes;
	}
	return dead_letters;
}

void dead_letters_finish(struct dead_letters *dead_letters)
{
	for (int i = 0; i < dead_letters->count; i++) {
		free((char *)dead_letters->list[i].key);
		free((char *)dead_letters->list[i].payload);
		free((char *)dead_letters->list[i].headers);
	}
	free(dead_letters->list);
	*dead_letters = (struct dead_letters){0};
}
