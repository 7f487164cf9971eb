/*
 * Makes a CloudEvent from a record: attributes from headers and position, and the payload, in
 * binary or structured form. Begin at deliver_event_init and deliver_event_write.
 */
#include "deliver_event.h"

#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "cleanup.h"
#include "deliver_text.h"
#include "hex.h"
#include "http_sign.h"
#include "json_text.h"

enum {
	MOST_NAME = 64,
	MOST_CONTENT_TYPE = 256,
	NAME_BYTES = 16,
};

static const char type_of_json[] = "application/json", type_of_bytes[] = "application/octet-stream";

/* --- texts ---------------------------------------------------------------------------------- */

static const char *copy_event_text(struct deliver_event *event, const char *text)
{
	return arena_text(&event->memory, text);
}

/* A copy, if it is UTF-8 that is not empty, without control characters; else NULL. */
static const char *clean_copy(struct deliver_event *event, const void *bytes, size_t length)
{
	const char *made;
	uint32_t code;

	if (!bytes || length == 0)
		return NULL;
	made = arena_copy(&event->memory, bytes, length);
	for (size_t i = 0; i < length;) {
		int step = text_utf8(made + i, &code);

		/* CloudEvents forbids control characters in attributes, also those from 0x7f on. */
		if (step == 0 || code < ' ' || (code >= 0x7f && code < 0xa0))
			return NULL;
		i += (size_t)step;
	}
	return made;
}

/* The value of a header of redelivery or of the relay, as clean text; NULL: there is none. */
static const char *header_copy(
    struct deliver_event *event, const struct outbox_inbox_message *message, const char *name)
{
	for (size_t i = message->header_count; i > 0; i--)
		if (text_equal(message->headers[i - 1].name, name))
			return clean_copy(
			    event, message->headers[i - 1].value, message->headers[i - 1].length);
	return NULL;
}

static void digest_name(const void *bytes, size_t length, char name[DELIVER_NAME_SIZE])
{
	unsigned char whole[EVP_MAX_MD_SIZE];

	EVP_Digest(bytes, length, whole, NULL, EVP_sha256(), NULL);
	*hex_write(stpcpy(name, "msg_"), whole, NAME_BYTES) = '\0';
}

static bool may_be_signed(const char *id)
{
	size_t length = 0;

	for (; id[length]; length++)
		if (id[length] <= ' ' || id[length] >= 0x7f || id[length] == '.')
			return false;
	return length > 0 && length <= HTTP_SIGN_ID_MAX;
}

const char *deliver_event_name(const char *id, char made[DELIVER_NAME_SIZE])
{
	if (may_be_signed(id))
		return id;
	digest_name(id, strlen(id), made);
	return made;
}

/* --- attributes ----------------------------------------------------------------------------- */

const char *deliver_event_attribute(const struct deliver_event *event, const char *name)
{
	for (size_t i = 0; i < event->count; i++)
		if (text_equal(event->attributes[i].name, name))
			return event->attributes[i].value;
	return NULL;
}

/* NULL adds nothing. */
static void add_event_attribute(
    struct deliver_event *event, const char *name, const char *value, bool bare)
{
	if (value)
		event->attributes[event->count++] = (struct deliver_attribute){name, value, bare};
}

static bool has_attribute(const struct deliver_event *event, const char *name)
{
	return deliver_event_attribute(event, name) != NULL;
}

static bool is_outbox_attribute(const char *name)
{
	return text_starts(name, "outbox");
}

/*
 * The data is no attribute, and the content type has a header of its own. The last two are
 * attributes of CloudEvents 0.3: libraries refuse them in an event of 1.0, or decode its data by
 * them.
 */
static bool may_be_taken(const char *name)
{
	static const char *const others[] = {
	    "data", "datacontenttype", "specversion", "schemaurl", "datacontentencoding"};
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (text_equal(name, others[i]))
			return false;
	return *name && !name[strspn(name, alphabet)] && strlen(name) <= MOST_NAME &&
	       !is_outbox_attribute(name);
}

/* NULL: as if the record did not have the header. */
static const char *given_attribute(
    struct deliver_event *event, const struct outbox_rules_header *header, const char *name)
{
	const char *value = clean_copy(event, header->value, header->length);

	if (!value || (text_equal(name, "time") && !deliver_text_is_time(value)) ||
	    (text_equal(name, "source") && !deliver_text_is_uri_reference(value)) ||
	    (text_equal(name, "dataschema") && !deliver_text_is_uri(value)))
		return NULL;
	return value;
}

/* If several headers have the same name, the last one counts. */
static void take_headers(struct deliver_event *event, const struct outbox_inbox_message *message)
{
	for (size_t i = message->header_count; i > 0 && event->count < DELIVER_HEADERS_TAKEN; i--) {
		const struct outbox_rules_header *header = &message->headers[i - 1];

		/* From the last header on, so an attribute that is there came later and counts. */
		if (text_starts(header->name, "ce_") && may_be_taken(header->name + 3) &&
		    !has_attribute(event, header->name + 3))
			add_event_attribute(event, header->name + 3,
			    given_attribute(event, header, header->name + 3), false);
	}
}

static bool is_other_version(
    struct deliver_event *event, const struct outbox_inbox_message *message)
{
	const char *version = header_copy(event, message, "ce_specversion");

	return version && !text_equal(version, "1.0");
}

/* Where the message was first. */
struct origin {
	const char *topic, *partition, *offset, *time;
};

static const char *integer_text(struct deliver_event *event, int64_t number)
{
	char digits[24];

	*text_write_int64(digits, number) = '\0';
	return copy_event_text(event, digits);
}

static const char *origin_integer(struct deliver_event *event,
    const struct outbox_inbox_message *message, const char *name, int64_t own)
{
	const char *said = header_copy(event, message, name);

	return said ? said : integer_text(event, own);
}

static struct origin find_origin(
    struct deliver_event *event, const struct outbox_inbox_message *message)
{
	const char *topic = header_copy(event, message, "outbox-origin-topic");

	return (struct origin){
	    .topic = topic ? topic : copy_event_text(event, message->topic),
	    .partition =
		origin_integer(event, message, "outbox-origin-partition", message->partition),
	    .offset = origin_integer(event, message, "outbox-origin-offset", message->offset),
	    .time = origin_integer(event, message, "outbox-origin-time", message->time_ms),
	};
}

static const char *id_of(struct deliver_event *event, const struct outbox_inbox_message *message,
    const struct origin *origin)
{
	char name[DELIVER_NAME_SIZE];
	const char *id = NULL, *place;

	if (message->id) {
		id = clean_copy(event, message->id, message->id_length);
		if (!id)
			digest_name(message->id, message->id_length, name);
	} else {

		/* The message keeps its first place through retry topics, and so its id. */
		place = arena_join(&event->memory, origin->topic, "\n", origin->partition, "\n",
		    origin->offset, NULL);
		digest_name(place, strlen(place), name);
	}
	return id ? id : copy_event_text(event, name);
}

/* RFC 3339. NULL: it is none, or none of our calendar. */
static const char *time_of(struct deliver_event *event, const struct origin *origin)
{
	static const int64_t most = INT64_C(253402300799999); /* the end of the year 9999 */
	char text[40];
	int64_t ms;
	struct tm parts;
	time_t seconds;

	if (!text_to_int64(origin->time, 0, most, &ms))
		return NULL;
	seconds = (time_t)(ms / 1000);
	size_t length =
	    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
	snprintf(text + length, sizeof text - length, ".%03dZ", (int)(ms % 1000));
	return copy_event_text(event, text);
}

static void add_outbox_attributes(struct deliver_event *event,
    const struct outbox_inbox_message *message, const struct origin *origin)
{
	int64_t partition;

	add_event_attribute(event, "outboxtopic", origin->topic, false);
	/* written anew, since "007" of a header is no number of JSON */
	if (text_to_int64(origin->partition, 0, INT32_MAX, &partition))
		add_event_attribute(event, "outboxpartition", integer_text(event, partition), true);
	/* integers of CloudEvents have 32 bits: offset and token are texts */
	add_event_attribute(event, "outboxoffset", origin->offset, false);
	add_event_attribute(event, "outboxattempt", integer_text(event, message->attempt), true);
	add_event_attribute(event, DELIVER_TOKEN, event->token, false);
	if (!message->payload)
		add_event_attribute(event, "outboxtombstone", "true", true);
}

static void add_missing_attributes(struct deliver_event *event,
    const struct outbox_inbox_message *message, const struct origin *origin,
    const struct deliver_event_defaults *defaults)
{
	if (!has_attribute(event, "id"))
		add_event_attribute(event, "id", id_of(event, message, origin), false);
	if (!has_attribute(event, "source"))
		add_event_attribute(event, "source",
		    *defaults->source ? defaults->source
				      : arena_join(&event->memory, "/topics/", origin->topic, NULL),
		    false);
	if (!has_attribute(event, "type"))
		add_event_attribute(
		    event, "type", *defaults->type ? defaults->type : origin->topic, false);

	if (!has_attribute(event, "subject"))
		add_event_attribute(
		    event, "subject", clean_copy(event, message->key, message->key_length), false);
	if (!has_attribute(event, "time"))
		add_event_attribute(event, "time", time_of(event, origin), false);
}

/* --- the payload ---------------------------------------------------------------------------- */

static bool is_visible(const char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text >= 0x7f)
			return false;
	return true;
}

/* Whatever parameters follow. */
static bool is_media_type(const char *type, const char *name)
{
	size_t length = strcspn(type, "; \t");

	return length == strlen(name) && strncasecmp(type, name, length) == 0;
}

/* application/json and application/…+json. */
static bool is_json_type(const char *type)
{
	size_t length = strcspn(type, "; \t");

	return is_media_type(type, type_of_json) ||
	       (length > 5 && strncasecmp(type + length - 5, "+json", 5) == 0);
}

static const char *given_content_type(
    struct deliver_event *event, const struct outbox_inbox_message *message)
{
	for (size_t i = message->header_count; i > 0; i--) {
		const struct outbox_rules_header *header = &message->headers[i - 1];

		if (strcasecmp(header->name, "content-type") != 0 ||
		    header->length > MOST_CONTENT_TYPE)
			continue;
		const char *type = clean_copy(event, header->value, header->length);
		if (type && is_visible(type) && deliver_text_is_media_type(type))
			return type;
	}
	return NULL;
}

/* The id of a payload that is a CloudEvent in JSON; NULL: it is none. */
static const char *structured_id(struct deliver_event *event)
{
	static const char *const needed[] = {"specversion", "source", "type", "id"};
	json_t *object = json_loadb(
	    event->payload, event->length, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
	const char *id = NULL;

	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
		const json_t *value = json_object_get(object, needed[i]);

		/* The id is the last one needed, so that it is the result. */
		id = clean_copy(event, json_string_value(value), json_string_length(value));
		if (!id)
			break;
	}
	json_decref(object);
	return id;
}

/* Returns whether the record is a structured event. */
static bool take_structured(struct deliver_event *event)
{
	static const char type[] = "application/cloudevents+json";

	if (!event->payload || !event->content_type || !is_media_type(event->content_type, type))
		return false;
	event->id = structured_id(event);
	event->structured = event->id;
	if (!event->structured)
		event->content_type = NULL; /* or it would look structured */
	return event->structured;
}

static void guess_content_type(struct deliver_event *event)
{
	if (event->content_type || !event->payload)
		return;
	event->known_json = json_text_is(event->payload, event->length);
	event->content_type = event->known_json ? type_of_json : type_of_bytes;
}

/* --- the whole ------------------------------------------------------------------------------ */

void deliver_event_init(struct deliver_event *event, const struct outbox_inbox_message *message,
    const struct deliver_event_defaults *defaults)
{
	struct origin origin;

	event->count = 0;
	event->payload = message->payload;
	event->length = message->payload ? message->payload_length : 0;
	event->known_json = event->structured = false;
	event->memory = (struct arena){0};
	event->token = message->token ? integer_text(event, message->token) : NULL;
	event->content_type = given_content_type(event, message);
	/* Its attributes are in the payload: others beside them could contradict those. */
	if (take_structured(event))
		return;
	origin = find_origin(event, message);
	add_event_attribute(event, "specversion", "1.0", false);
	/* Attributes of another version may have other meanings. */
	if (!is_other_version(event, message))
		take_headers(event, message);
	add_missing_attributes(event, message, &origin, defaults);
	add_outbox_attributes(event, message, &origin);
	event->id = deliver_event_attribute(event, "id");
	guess_content_type(event);
}

bool deliver_event_is_text(const struct deliver_event *event)
{
	return event->known_json || !event->payload || text_is_utf8(event->payload, event->length);
}

void deliver_event_finish(struct deliver_event *event)
{
	arena_finish(&event->memory);
}

static bool stands_as_it_is(unsigned char byte)
{
	return byte > ' ' && byte < 0x7f && byte != '"' && byte != '%';
}

const char *deliver_event_encode(struct arena *memory, const char *value)
{
	static const char digits[] = "0123456789ABCDEF";
	char *encoded = arena_take(memory, 3 * strlen(value) + 1), *at = encoded;

	for (; *value; value++) {
		unsigned char byte = (unsigned char)*value;

		if (stands_as_it_is(byte)) {
			*at++ = *value;
			continue;
		}
		*at++ = '%';
		*at++ = digits[byte >> 4];
		*at++ = digits[byte & 15];
	}
	*at = '\0';
	return encoded;
}

/* The value must have no control characters. */
static void add_quoted_attribute(struct text *text, const char *value)
{
	text_append(text, "\"", 1);
	for (size_t plain; *value; value += plain) {
		plain = strcspn(value, "\"\\");
		text_append(text, value, plain);
		if (value[plain])
			text_append(text, value[plain] == '"' ? "\\\"" : "\\\\", 2);
		plain += value[plain] != '\0';
	}
	text_append(text, "\"", 1);
}

static void add_member(struct text *text, const char *name, const char *value, bool bare)
{
	text_append(text, "\"", 1);
	text_add(text, name);
	text_append(text, "\":", 2);
	if (bare)
		text_add(text, value);
	else
		add_quoted_attribute(text, value);
}

static void add_base64(struct text *text, const void *bytes, size_t length)
{
	owned_text char *encoded = xmalloc((length + 2) / 3 * 4 + 1);

	EVP_EncodeBlock((unsigned char *)encoded, bytes, (int)length);
	text_addf(text, ",\"data_base64\":\"%s\"", encoded);
}

static void add_data(const struct deliver_event *event, struct text *text)
{
	if (!event->payload)
		return;
	/* Payload that only claims to be JSON would break the object around it. */
	if (!event->known_json &&
	    (!is_json_type(event->content_type) || !json_text_is(event->payload, event->length))) {
		add_base64(text, event->payload, event->length);
		return;
	}
	text_add(text, ",\"data\":");
	text_append(text, event->payload, event->length);
}

void deliver_event_write(const struct deliver_event *event, struct text *text)
{
	if (event->structured) {
		text_append(text, event->payload, event->length);
		return;
	}
	for (size_t i = 0; i < event->count; i++) {
		const struct deliver_attribute *attribute = &event->attributes[i];

		text_append(text, i ? "," : "{", 1);
		add_member(text, attribute->name, attribute->value, attribute->bare);
	}
	if (event->content_type) {
		text_append(text, ",", 1);
		add_member(text, "datacontenttype", event->content_type, false);
	}
	add_data(event, text);
	text_append(text, "}", 1);
}
