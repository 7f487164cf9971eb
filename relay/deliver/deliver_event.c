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
#include "http_sign.h"

enum {
	MOST_NAME = 64,
	MOST_ATTRIBUTES = 64, /* more are left out: a server takes so many headers */
	MOST_CONTENT_TYPE = 256,
	NAME_BYTES = 16,
};

static const char type_of_json[] = "application/json", type_of_bytes[] = "application/octet-stream";

/* --- texts ---------------------------------------------------------------------------------- */

/* A copy, if it is UTF-8 that is not empty, without control characters; else NULL. */
static char *clean_copy(const void *bytes, size_t length)
{
	owned_text char *copy = xmalloc(length + 1);
	char *clean = copy;
	uint32_t code;

	if (!bytes || length == 0)
		return NULL;
	memcpy(copy, bytes, length);
	copy[length] = '\0';
	for (size_t i = 0; i < length;) {
		int step = text_utf8(copy + i, &code);

		if (step == 0 || code < ' ' || (code >= 0x7f && code < 0xa0))
			return NULL;
		i += (size_t)step;
	}
	copy = NULL;
	return clean;
}

/* What letters and other headers of the relay say of it; NULL: nothing. The caller frees. */
static char *header_copy(const struct outbox_inbox_message *message, const char *name)
{
	for (size_t i = message->header_count; i > 0; i--)
		if (text_equal(message->headers[i - 1].name, name))
			return clean_copy(
			    message->headers[i - 1].value, message->headers[i - 1].length);
	return NULL;
}

static char *digest_name(const void *bytes, size_t length)
{
	unsigned char whole[EVP_MAX_MD_SIZE];
	struct text name = {0};

	EVP_Digest(bytes, length, whole, NULL, EVP_sha256(), NULL);
	text_add(&name, "msg_");
	for (int i = 0; i < NAME_BYTES; i++)
		text_addf(&name, "%02x", whole[i]);
	return name.data;
}

static bool may_be_signed(const char *id)
{
	size_t length = 0;

	for (; id[length]; length++)
		if (id[length] <= ' ' || id[length] >= 0x7f || id[length] == '.')
			return false;
	return length > 0 && length <= HTTP_SIGN_ID_MAX;
}

char *deliver_event_name(const char *id)
{
	return may_be_signed(id) ? xstrdup(id) : digest_name(id, strlen(id));
}

/* --- attributes ----------------------------------------------------------------------------- */

const char *deliver_event_attribute(const struct deliver_event *event, const char *name)
{
	for (size_t i = 0; i < event->count; i++)
		if (text_equal(event->attributes[i].name, name))
			return event->attributes[i].value;
	return NULL;
}

/* Takes the value over; NULL adds nothing. */
static void add(struct deliver_event *event, const char *name, char *value, bool bare)
{
	size_t size = (event->count + 1) * sizeof *event->attributes;

	if (!value)
		return;
	event->attributes = xrealloc(event->attributes, size);
	event->attributes[event->count++] = (struct deliver_attribute){xstrdup(name), value, bare};
}

/* Takes the value over. */
static void add_missing(struct deliver_event *event, const char *name, char *value)
{
	if (deliver_event_attribute(event, name))
		free(value);
	else
		add(event, name, value, false);
}

static bool is_ours(const char *name)
{
	return text_starts(name, "outbox");
}

/* data is no attribute, and the content type stands in a header of its own. */
static bool may_be_taken(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

	return *name && !name[strspn(name, letters)] && strlen(name) <= MOST_NAME &&
	       !is_ours(name) && !text_equal(name, "data") &&
	       !text_equal(name, "datacontenttype") && !text_equal(name, "specversion");
}

/* Of several headers with a name the last counts. */
static void take_headers(struct deliver_event *event, const struct outbox_inbox_message *message)
{
	for (size_t i = message->header_count; i > 0 && event->count < MOST_ATTRIBUTES; i--) {
		const struct outbox_rules_header *header = &message->headers[i - 1];

		if (text_starts(header->name, "ce_") && may_be_taken(header->name + 3))
			add_missing(
			    event, header->name + 3, clean_copy(header->value, header->length));
	}
}

static bool is_other_version(const struct outbox_inbox_message *message)
{
	owned_text char *version = header_copy(message, "ce_specversion");

	return version && !text_equal(version, "1.0");
}

/* Where the message was first. */
struct origin {
	char *topic, *partition, *offset, *time;
};

static char *origin_text(const struct outbox_inbox_message *message, const char *name, char *own)
{
	char *said = header_copy(message, name);

	if (said)
		free(own);
	return said ? said : own;
}

static char *integer_text(int64_t number)
{
	return xformat("%" PRId64, number);
}

static struct origin find_origin(const struct outbox_inbox_message *message)
{
	return (struct origin){
	    .topic = origin_text(message, "outbox-origin-topic", xstrdup(message->topic)),
	    .partition =
		origin_text(message, "outbox-origin-partition", integer_text(message->partition)),
	    .offset = origin_text(message, "outbox-origin-offset", integer_text(message->offset)),
	    .time = origin_text(message, "outbox-origin-time", integer_text(message->time_ms)),
	};
}

static void origin_finish(struct origin *origin)
{
	free(origin->topic);
	free(origin->partition);
	free(origin->offset);
	free(origin->time);
}

static char *id_of(const struct outbox_inbox_message *message, const struct origin *origin)
{
	owned_text char *place =
	    xformat("%s\n%s\n%s", origin->topic, origin->partition, origin->offset);
	char *id;

	if (!message->id)
		return digest_name(place, strlen(place));
	id = clean_copy(message->id, message->id_length);
	return id ? id : digest_name(message->id, message->id_length);
}

/* RFC 3339. NULL: it is none, or none of our calendar. */
static char *time_of(const struct origin *origin)
{
	static const int64_t most = INT64_C(253402300799999); /* the end of the year 9999 */
	char text[40];
	int64_t ms;
	struct tm parts;
	time_t seconds;

	if (!text_to_int64(origin->time, 0, most, &ms))
		return NULL;
	seconds = (time_t)(ms / 1000);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &parts));
	return xformat("%s.%03dZ", text, (int)(ms % 1000));
}

static bool is_integer(const char *text)
{
	int64_t ignored;

	return text_to_int64(text, INT64_MIN, INT64_MAX, &ignored);
}

static void add_own(struct deliver_event *event, const struct outbox_inbox_message *message,
    const struct origin *origin)
{
	add(event, "outboxtopic", xstrdup(origin->topic), false);
	if (is_integer(origin->partition))
		add(event, "outboxpartition", xstrdup(origin->partition), true);
	/* integers of CloudEvents have 32 bits */
	add(event, "outboxoffset", xstrdup(origin->offset), false);
	add(event, "outboxattempt", integer_text(message->attempt), true);
	if (!message->payload)
		add(event, "outboxtombstone", xstrdup("true"), true);
}

static void add_missing_attributes(struct deliver_event *event,
    const struct outbox_inbox_message *message, const struct origin *origin,
    const struct deliver_event_defaults *defaults)
{
	add_missing(event, "id", id_of(message, origin));
	add_missing(event, "source",
	    *defaults->source ? xstrdup(defaults->source) : xformat("/topics/%s", origin->topic));
	add_missing(event, "type", xstrdup(*defaults->type ? defaults->type : origin->topic));
	add_missing(event, "subject", clean_copy(message->key, message->key_length));
	add_missing(event, "time", time_of(origin));
}

/* --- the payload ---------------------------------------------------------------------------- */

static bool is_visible(const char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text >= 0x7f)
			return false;
	return true;
}

static char *given_content_type(const struct outbox_inbox_message *message)
{
	for (size_t i = message->header_count; i > 0; i--) {
		const struct outbox_rules_header *header = &message->headers[i - 1];

		if (strcasecmp(header->name, "content-type") != 0 ||
		    header->length > MOST_CONTENT_TYPE)
			continue;
		char *type = clean_copy(header->value, header->length);
		if (type && is_visible(type))
			return type;
		free(type);
	}
	return NULL;
}

/* Large numbers are taken as they are: nothing is done with the values. */
static bool is_json(const void *bytes, size_t length)
{
	json_t *value = json_loadb(
	    bytes, length, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);

	json_decref(value);
	return value;
}

static void take_content_type(
    struct deliver_event *event, const struct outbox_inbox_message *message)
{
	event->content_type = given_content_type(message);
	if (event->content_type || !event->payload)
		return;
	event->known_json = is_json(event->payload, event->length);
	event->content_type = xstrdup(event->known_json ? type_of_json : type_of_bytes);
}

/* application/json and application/…+json, whatever parameters follow. */
static bool is_json_type(const char *type)
{
	size_t length = strcspn(type, "; \t");

	return (length == strlen(type_of_json) && strncasecmp(type, type_of_json, length) == 0) ||
	       (length > 5 && strncasecmp(type + length - 5, "+json", 5) == 0);
}

/* --- the whole ------------------------------------------------------------------------------ */

void deliver_event_init(struct deliver_event *event, const struct outbox_inbox_message *message,
    const struct deliver_event_defaults *defaults)
{
	struct origin origin = find_origin(message);

	*event = (struct deliver_event){
	    .payload = message->payload, .length = message->payload ? message->payload_length : 0};
	add(event, "specversion", xstrdup("1.0"), false);
	if (!is_other_version(message))
		take_headers(event, message);
	add_missing_attributes(event, message, &origin, defaults);
	add_own(event, message, &origin);
	event->id = deliver_event_attribute(event, "id");
	take_content_type(event, message);
	origin_finish(&origin);
}

void deliver_event_finish(struct deliver_event *event)
{
	for (size_t i = 0; i < event->count; i++) {
		free(event->attributes[i].name);
		free(event->attributes[i].value);
	}
	free(event->attributes);
	free(event->content_type);
	*event = (struct deliver_event){0};
}

void deliver_event_encode(struct text *text, const char *value)
{
	for (; *value; value++) {
		unsigned char byte = (unsigned char)*value;

		if (byte <= ' ' || byte >= 0x7f || byte == '"' || byte == '%')
			text_addf(text, "%%%02X", byte);
		else
			text_append(text, value, 1);
	}
}

/* Of text without control characters. */
static void add_quoted(struct text *text, const char *value)
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
		add_quoted(text, value);
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
	if (!event->known_json &&
	    (!is_json_type(event->content_type) || !is_json(event->payload, event->length))) {
		add_base64(text, event->payload, event->length);
		return;
	}
	text_add(text, ",\"data\":");
	text_append(text, event->payload, event->length);
}

void deliver_event_write(const struct deliver_event *event, struct text *text)
{
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
