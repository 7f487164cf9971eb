/*
 * Reads a message of the look-back topic, in JSON or header form, and checks every field. Begin at
 * lookback_wire_read; each form fills the same request.
 */
#include "wire.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "json_slice.h"
#include "units.h"

enum {
	MOST_TYPE = 100,
	MOST_ID = 500,
	MOST_KEY = 8192, /* as outbox.message */
	MOST_HEADERS = 32768,
	MOST_TOPIC = 249,
	MOST_SERVICE = 100,
	MOST_URL = 2000,
	MOST_UNIQUE_KEY = 512, /* as outbox.publish */
	VERSION = 1,
	DEEPEST = 100,         /* values of JSON within each other */
	MOST_VALUES = 1000000, /* of a whole message */
};
static const int64_t most_ms = INT64_C(3650) * 24 * 3600 * 1000;
static const int64_t default_within_ms = INT64_C(24) * 3600 * 1000; /* as outbox.publish */

const char *const lookback_op_names[LOOKBACK_OPS] = {
    [LOOKBACK_PREPARE] = "prepare",
    [LOOKBACK_COMMIT] = "commit",
    [LOOKBACK_ROLLBACK] = "rollback",
};

struct lookback_bytes lookback_bytes_copy(const char *bytes, size_t length)
{
	struct lookback_bytes copy = {.length = length};

	if (bytes) {
		copy.bytes = xmalloc(length + 1);
		memcpy(copy.bytes, bytes, length);
		copy.bytes[length] = '\0';
	}
	return copy;
}

/* --- fields --------------------------------------------------------------------------------- */

/* One field as it was said: text of a JSON string or a header's value, or a JSON number. */
struct said {
	const char *text; /* NULL: a number */
	size_t length;
	double number;
};

struct field;
typedef bool field_setter(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal);

struct field {
	const char *name;
	size_t offset;
	field_setter *set;
	size_t most;
	bool of_prepare; /* and of nothing else */
	bool required;
};

/*
 * The code for a text with more bytes than `most`. The schema of a message counts characters, and
 * takes a text with so many bytes that are few characters: such a text has a code of its own.
 */
static const char *code_of_length(const struct said *said, size_t most)
{
	size_t characters = 0;

	for (size_t i = 0; i < said->length; i++)
		characters += ((unsigned char)said->text[i] & 0xC0) != 0x80;
	return said->length > most && characters <= most ? "too_many_bytes" : "bad_value";
}

static bool set_text_field(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	if (said->length == 0 || said->length > field->most)
		return refusal_set(refusal, code_of_length(said, field->most),
		    "%s has %zu bytes; it takes 1 to %zu", field->name, said->length, field->most);

	/* The copy ends at a NUL, which the database's text cannot hold. */
	owned_text char *text = xformat("%.*s", (int)said->length, said->text);
	if (strlen(text) != said->length || !text_is_utf8(text, said->length))
		return refusal_set(
		    refusal, "bad_value", "%s is not UTF-8 text without a NUL", field->name);

	char **at = (char **)((char *)request + field->offset);
	free(*at);
	*at = text;
	text = NULL;
	return true;
}

static bool of_alphabet(const char *text)
{
	return text[strspn(text,
		   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

/* Sets a well-formed name: it has only characters that the name of a Kafka topic may have. */
static bool set_name_field(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	char **at = (char **)((char *)request + field->offset);

	if (!set_text_field(request, field, said, refusal))
		return false;
	if (of_alphabet(*at) && !text_equal(*at, ".") && !text_equal(*at, ".."))
		return true;
	free(*at);
	*at = NULL;
	return refusal_set(
	    refusal, "bad_value", "%s takes letters, digits, '.', '_' and '-' only", field->name);
}

static bool set_op(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	for (int i = 0; i < LOOKBACK_OPS; i++)
		if (said->length == strlen(lookback_op_names[i]) &&
		    memcmp(said->text, lookback_op_names[i], said->length) == 0) {
			request->op = (enum lookback_op)i;
			return true;
		}
	return refusal_set(
	    refusal, "bad_value", "%s is none of prepare, commit and rollback", field->name);
}

static bool set_bytes(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	struct lookback_bytes *bytes = (struct lookback_bytes *)((char *)request + field->offset);

	if (said->length > field->most)
		return refusal_set(refusal, code_of_length(said, field->most),
		    "%s has %zu bytes, more than %zu", field->name, said->length, field->most);
	free(bytes->bytes);
	*bytes = lookback_bytes_copy(said->text, said->length);
	return true;
}

/* "90s" as in the configuration, or a number of seconds. */
static bool set_duration(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	double ms = said->number * 1e3;
	bool known = !said->text;
	char text[32];

	if (said->text && said->length < sizeof text) {
		int64_t number = 0;

		snprintf(text, sizeof text, "%.*s", (int)said->length, said->text);
		enum units_result result = units_parse(text, units_duration, &number);
		known = result == UNITS_READ || result == UNITS_MISSING;
		ms = (double)number * (result == UNITS_MISSING ? 1e3 : 1);
	}
	if (!known || !(ms >= 0 && ms <= (double)most_ms))
		return refusal_set(refusal, "bad_value",
		    "%s is neither a number of seconds nor a duration such as 90s, and at most "
		    "3650d",
		    field->name);
	*(int64_t *)((char *)request + field->offset) = (int64_t)ms;
	return true;
}

/* --- unique key of the message --------------------------------------------------------------- */

static bool set_unique_key(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	if (said->length <= field->most)
		return set_text_field(request, field, said, refusal);
	return refusal_set(refusal, code_of_length(said, field->most),
	    "%s has %zu bytes; it takes 1 to %zu: send the SHA-256 of a longer one", field->name,
	    said->length, field->most);
}

static bool set_within(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	if (!set_duration(request, field, said, refusal))
		return false;
	/* In a window of 0 no message would ever be the second one. */
	return request->within_ms > 0 ||
	       refusal_set(refusal, "bad_value",
		   "%s is less than 1 ms; it takes 1ms to 3650d, for example 24h", field->name);
}

static bool set_while_pending(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	static const char *const words[] = {"published", "done"};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (said->length == strlen(words[i]) &&
		    memcmp(said->text, words[i], said->length) == 0)
			return set_text_field(request, field, said, refusal);
	return refusal_set(refusal, "bad_value", "%s is neither published nor done", field->name);
}

/*
 * The default is filled in before the digest: a prepare that names it is equal to one that does
 * not.
 */
static bool complete_unique_key(struct lookback_request *request, struct refusal *refusal)
{
	if (request->unique_key) {
		if (request->within_ms < 0)
			request->within_ms = default_within_ms;
		return true;
	}
	/* The application believes that its message is unique: better refused than published twice.
	 */
	if (request->within_ms >= 0 || request->while_pending)
		return refusal_set(refusal, "missing_field",
		    "unique_key is missing, which %s is about",
		    request->while_pending ? "while_pending" : "within");
	return true;
}

/* --- headers of the message ----------------------------------------------------------------- */

static bool is_value(const json_t *value)
{
	size_t length;
	owned_text void *bytes = NULL;
	const json_t *base64 = json_object_get(value, "base64");

	if (!json_is_object(value))
		return !json_is_array(value) && !json_has_nul(value);
	return json_object_size(value) == 1 && json_is_string(base64) &&
	       text_base64_decode(
		   json_string_value(base64), json_string_length(base64), &bytes, &length);
}

static bool is_reserved_header(const char *name)
{
	return text_starts(name, "outbox-");
}

static bool check_header(const char *name, const json_t *value, struct refusal *refusal)
{
	if (is_reserved_header(name))
		return refusal_set(refusal, "bad_value",
		    "headers: %.100s begins with outbox-, which is reserved", name);
	return is_value(value) ||
	       refusal_set(refusal, "bad_value",
		   "headers: %.100s holds a NUL, or is neither text, number, boolean, null nor "
		   "{\"base64\": …}",
		   name);
}

static bool check_header_pair(const json_t *pair, struct refusal *refusal)
{
	const json_t *name = json_array_get(pair, 0);

	if (json_array_size(pair) != 2 || !json_is_string(name) || json_has_nul(name))
		return refusal_set(refusal, "bad_value",
		    "headers: an element is no pair of a name without NUL and a value");
	return check_header(json_string_value(name), json_array_get(pair, 1), refusal);
}

/* The rules of outbox.headers_valid. */
static bool check_each_header(const json_t *headers, struct refusal *refusal)
{
	const char *name;
	size_t index;
	json_t *value, *pair;

	json_object_foreach((json_t *)headers, name, value)
	{
		if (!check_header(name, value, refusal))
			return false;
	}
	json_array_foreach(headers, index, pair)
	{
		if (!check_header_pair(pair, refusal))
			return false;
	}
	return true;
}

static bool refuse_size_of_headers(struct refusal *refusal)
{
	return refusal_set(
	    refusal, "too_many_bytes", "headers have more than %d bytes", MOST_HEADERS);
}

/*
 * The text has been checked. A tree of it costs hundreds of bytes a value: its size is checked
 * first.
 */
static bool check_headers(const char *text, size_t length, struct refusal *refusal)
{
	size_t number_length;
	const char *number;
	json_error_t why;
	json_t *headers;
	bool good;

	if (!strchr("{[", text[strspn(text, " \t\r\n")]))
		return refusal_set(
		    refusal, "bad_value", "headers are neither an object nor an array of pairs");
	if (length > MOST_HEADERS)
		return refuse_size_of_headers(refusal);
	number = json_unstorable_number(text, length, &number_length);
	if (number)
		return refusal_set(refusal, "bad_value",
		    "headers have at byte %td the number %.*s, which has more digits than the "
		    "database takes (131072 before the point, 16383 behind it)",
		    number - text + 1, (int)(number_length < 40 ? number_length : 40), number);
	headers = json_read(text, length, &why);
	if (!headers)
		return refusal_set(refusal, "bad_json", "headers, line %d, column %d: %s", why.line,
		    why.column, why.text);
	good = check_each_header(headers, refusal);
	json_decref(headers);
	return good;
}

/* Keeps the text of the headers, so that numbers keep their digits; only escapes are replaced. */
static bool keep_headers(
    struct lookback_request *request, const char *text, size_t length, struct refusal *refusal)
{
	if (!check_headers(text, length, refusal))
		return false;
	free(request->headers);
	request->headers = json_without_escapes(text, length);
	return true;
}

static bool set_headers_field(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	static const struct json_limits limits = {DEEPEST, MOST_VALUES};
	struct refusal why;

	if (!said->text || !json_check(said->text, said->length, &limits, &why))
		return refusal_set(refusal, "bad_value", "%s: %s", field->name,
		    said->text ? why.text : "a number");
	return keep_headers(request, said->text, said->length, refusal);
}

#define MEMBER(member) #member, offsetof(struct lookback_request, member)

/* "version", "payload" and "payload_base64" are looked at where each form is read. */
static const struct field fields[] = {
    {MEMBER(biz_type), set_name_field, MOST_TYPE, .required = true},
    {MEMBER(biz_id), set_text_field, MOST_ID, .required = true},
    {MEMBER(op), set_op, .required = true},
    {MEMBER(topic), set_name_field, MOST_TOPIC, .of_prepare = true, .required = true},
    {MEMBER(key), set_bytes, MOST_KEY, .of_prepare = true},
    {MEMBER(headers), set_headers_field, .of_prepare = true},
    {MEMBER(check_service), set_name_field, MOST_SERVICE, .of_prepare = true},
    {MEMBER(check_url), set_text_field, MOST_URL, .of_prepare = true},
    {"check_after", offsetof(struct lookback_request, check_after_ms), set_duration,
	.of_prepare = true},
    {"expires_after", offsetof(struct lookback_request, expires_after_ms), set_duration,
	.of_prepare = true},
    {MEMBER(unique_key), set_unique_key, MOST_UNIQUE_KEY, .of_prepare = true},
    {"within", offsetof(struct lookback_request, within_ms), set_within, .of_prepare = true},
    {MEMBER(while_pending), set_while_pending, MOST_TYPE, .of_prepare = true},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static bool is_duration(const struct field *field)
{
	return field->set == set_duration || field->set == set_within;
}

static bool is_wanted_field(const struct lookback_request *request, const struct field *field)
{
	return !field->of_prepare || request->op == LOOKBACK_PREPARE;
}

static bool refuse_missing_field(struct refusal *refusal, const char *name)
{
	return refusal_set(refusal, "missing_field", "%s is missing", name);
}

/* --- JSON ----------------------------------------------------------------------------------- */

/*
 * The text is checked as a whole, and then read member by member in place: no tree is built
 * of it, which would take a hundred times as much memory as the text.
 */
struct member {
	const char *text; /* NULL: not there, or null */
	size_t length;
	bool there;
};

/* The places of a struct body: those of `fields`, and behind them the other names. */
enum { AT_VERSION = FIELDS, AT_PAYLOAD, AT_BASE64, MEMBERS };

struct body {
	struct member members[MEMBERS];
	char unknown[100]; /* the first name that is none of a message; "": none */
};

static const char *member_name(int place)
{
	static const char *const others[] = {"version", "payload", "payload_base64"};

	return place < FIELDS ? fields[place].name : others[place - FIELDS];
}

static int find_member(const struct json_member *member)
{
	for (int i = 0; i < MEMBERS; i++)
		if (json_member_is(member, member_name(i)))
			return i;
	return -1;
}

/* json_check has accepted the text: only the names are still unchecked. */
static bool find_members(
    const struct lookback_input *input, struct body *body, struct refusal *refusal)
{
	struct json_member found;
	size_t offset = 0;

	/* More of them than fields have an unknown one: a hostile object is not read to its end. */
	for (int count = 0; count <= MEMBERS; count++) {
		if (!json_member_next(input->value, input->value_length, &offset, &found))
			break;
		int place = find_member(&found);

		if (place < 0 && !*body->unknown)
			snprintf(body->unknown, sizeof body->unknown, "%.*s",
			    (int)(found.name_length < 60 ? found.name_length : 60), found.name);
		if (place < 0)
			continue;
		if (body->members[place].there)
			return refusal_set(
			    refusal, "bad_json", "%s is there twice", member_name(place));
		body->members[place].there = true;
		body->members[place].length = found.value_length;
		if (*found.value != 'n')
			body->members[place].text = found.value;
	}
	return true;
}

/* The string without quotes and escapes; the caller owns the reference. */
static json_t *string_of(const struct member *member)
{
	return *member->text == '"' ? json_loadb(member->text, member->length,
					  JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
				    : NULL;
}

static bool is_number_member(const struct member *member)
{
	return *member->text == '-' || (*member->text >= '0' && *member->text <= '9');
}

static bool read_json_field(struct lookback_request *request, const struct field *field,
    const struct member *member, struct refusal *refusal)
{
	bool kept;

	if (!member->text)
		return field->required ? refuse_missing_field(refusal, field->name) : true;
	/* The text as it is, since numbers of a tree would lose digits. */
	if (field->set == set_headers_field)
		return keep_headers(request, member->text, member->length, refusal);
	if (is_duration(field) && is_number_member(member))
		return field->set(request, field,
		    &(const struct said){.number = strtod(member->text, NULL)}, refusal);
	json_t *string = string_of(member);
	if (!string)
		return refusal_set(refusal, "wrong_type", "%s is no string%s", field->name,
		    is_duration(field) ? " or number" : "");
	kept = field->set(request, field,
	    &(const struct said){json_string_value(string), json_string_length(string), 0},
	    refusal);
	json_decref(string);
	return kept;
}

static bool read_base64(
    struct lookback_request *request, const struct member *member, struct refusal *refusal)
{
	json_t *base64 = member->text ? string_of(member) : NULL;
	void *decoded;
	bool well = base64 && text_base64_decode(json_string_value(base64),
				  json_string_length(base64), &decoded, &request->payload.length);

	if (well)
		request->payload.bytes = decoded;
	else if (base64)
		refusal_set(refusal, "bad_value", "payload_base64 is not base64");
	else
		refusal_set(refusal, "wrong_type", "payload_base64 is no string");
	json_decref(base64);
	return well;
}

static bool read_json_payload(
    struct lookback_request *request, const struct body *body, struct refusal *refusal)
{
	const struct member *payload = &body->members[AT_PAYLOAD];
	const struct member *base64 = &body->members[AT_BASE64];

	if (payload->there && base64->there)
		return refusal_set(
		    refusal, "bad_value", "payload and payload_base64 exclude each other");
	if (!payload->there && !base64->there)
		return refusal_set(refusal, "missing_field",
		    "payload and payload_base64 are missing; \"payload\": null is a tombstone");
	if (base64->there)
		return read_base64(request, base64, refusal);
	/* As it was written: numbers keep their digits. */
	if (payload->text)
		request->payload = lookback_bytes_copy(payload->text, payload->length);
	return true;
}

static bool check_json_version(const struct member *version, struct refusal *refusal)
{
	if (!version->there)
		return refuse_missing_field(refusal, "version");
	if (!version->text || !is_number_member(version) || strtod(version->text, NULL) != VERSION)
		return refusal_set(refusal, "bad_version", "version is not %d", VERSION);
	return true;
}

static bool read_json_object(
    struct lookback_request *request, const struct body *body, struct refusal *refusal)
{
	/* The type comes first: it decides who reports a refusal. */
	if (!read_json_field(request, &fields[0], &body->members[0], refusal) ||
	    !check_json_version(&body->members[AT_VERSION], refusal))
		return false;
	if (*body->unknown)
		return refusal_set(
		    refusal, "unknown_field", "%s is no field of version 1", body->unknown);

	for (int i = 1; i < FIELDS; i++)
		if (is_wanted_field(request, &fields[i]) &&
		    !read_json_field(request, &fields[i], &body->members[i], refusal))
			return false;
	return request->op != LOOKBACK_PREPARE ||
	       (complete_unique_key(request, refusal) && read_json_payload(request, body, refusal));
}

static bool read_json(
    struct lookback_request *request, const struct lookback_input *input, struct refusal *refusal)
{
	static const struct json_limits limits = {DEEPEST, MOST_VALUES};
	struct body body = {0};
	size_t blanks;

	if (!input->value)
		return refusal_set(refusal, "bad_json", "the value is null");
	if (!json_check(input->value, input->value_length, &limits, refusal))
		return false;
	/* Ends within the value: json_check has found something other than blanks. */
	blanks = strspn(input->value, " \t\r\n");
	if (input->value[blanks] != '{')
		return refusal_set(refusal, "bad_json", "the value is no JSON object");
	return find_members(input, &body, refusal) && read_json_object(request, &body, refusal);
}

/* --- header form ---------------------------------------------------------------------------- */

#define PREFIX "lookback-"

/* lookback-biz-type is the header of biz_type. */
static bool names_field(const char *header, const char *field)
{
	if (!text_starts(header, PREFIX))
		return false;
	for (header += strlen(PREFIX); *field; header++, field++)
		if (*header != (*field == '_' ? '-' : *field))
			return false;
	return *header == '\0';
}

/* NULL: not there. More than one is refused before. */
static const struct lookback_header *find_header(
    const struct lookback_input *input, const char *field)
{
	for (size_t i = 0; i < input->header_count; i++)
		if (names_field(input->headers[i].name, field))
			return &input->headers[i];
	return NULL;
}

static bool check_header_names(const struct lookback_input *input, struct refusal *refusal)
{
	for (size_t i = 0; i < input->header_count; i++) {
		const char *name = input->headers[i].name;
		bool known = names_field(name, "version");

		if (!text_starts(name, PREFIX))
			continue;
		for (int j = 0; j < FIELDS && !known; j++)
			known = names_field(name, fields[j].name);
		if (!known)
			return refusal_set(
			    refusal, "unknown_field", "%.100s is no header of version 1", name);
		/* Each field passes at most once, so that this loop runs only a few times. */
		for (size_t j = 0; j < i; j++)
			if (text_equal(input->headers[j].name, name))
				return refusal_set(refusal, "bad_value", "%s is there twice", name);
	}
	return true;
}

static bool read_header_field(struct lookback_request *request, const struct field *field,
    const struct lookback_input *input, struct refusal *refusal)
{
	const struct lookback_header *header = find_header(input, field->name);

	if (!header || !header->value)
		return field->required ? refuse_missing_field(refusal, field->name) : true;
	return field->set(
	    request, field, &(const struct said){header->value, header->length, 0}, refusal);
}

static bool add_header_pair(
    json_t *pairs, const struct lookback_header *header, struct refusal *refusal)
{
	json_t *name = json_string(header->name);
	json_t *pair;

	if (!name)
		return refusal_set(refusal, "bad_value", "the name of a header is not UTF-8");
	pair = json_array();
	json_array_append_new(pair, name);
	json_array_append_new(pair, json_bytes(header->value, header->length));
	json_array_append_new(pairs, pair);
	return true;
}

/* Headers of other names go with the message, unless lookback-headers says which do. */
static bool pass_headers(
    struct lookback_request *request, const struct lookback_input *input, struct refusal *refusal)
{
	json_t *pairs;
	size_t least = 0;
	bool kept = true;

	if (request->headers)
		return true;

	for (size_t i = 0; i < input->header_count; i++)
		if (!text_starts(input->headers[i].name, PREFIX) &&
		    !is_reserved_header(input->headers[i].name))
			least += strlen("[\"\", \"\"]") + strlen(input->headers[i].name) +
				 input->headers[i].length;
	/* Before a tree of them is built, which takes many times as much memory. */
	if (least > MOST_HEADERS)
		return refuse_size_of_headers(refusal);

	pairs = json_array();
	for (size_t i = 0; i < input->header_count && kept; i++)
		if (!text_starts(input->headers[i].name, PREFIX) &&
		    !is_reserved_header(input->headers[i].name))
			kept = add_header_pair(pairs, &input->headers[i], refusal);
	if (kept && json_array_size(pairs) > 0) {
		owned_text char *text = json_dumps(pairs, 0);
		kept = keep_headers(request, text, strlen(text), refusal);
	}
	json_decref(pairs);
	return kept;
}

static bool read_header_fields(
    struct lookback_request *request, const struct lookback_input *input, struct refusal *refusal)
{
	const struct lookback_header *version = find_header(input, "version");

	/* The type comes first: it decides who reports a refusal. */
	if (!read_header_field(request, &fields[0], input, refusal))
		return false;
	if (!version->value || version->length != 1 || version->value[0] != '0' + VERSION)
		return refusal_set(refusal, "bad_version", "lookback-version is not %d", VERSION);
	if (!check_header_names(input, refusal))
		return false;
	for (int i = 1; i < FIELDS; i++)
		if (is_wanted_field(request, &fields[i]) &&
		    !read_header_field(request, &fields[i], input, refusal))
			return false;
	if (request->op != LOOKBACK_PREPARE)
		return true;
	if (!complete_unique_key(request, refusal))
		return false;
	request->payload = lookback_bytes_copy(input->value, input->value_length);
	return pass_headers(request, input, refusal);
}

/* --- the whole ------------------------------------------------------------------------------ */

static void add_digest(EVP_MD_CTX *digest, const void *bytes, size_t length)
{
	int64_t size = bytes ? (int64_t)length : -1;

	EVP_DigestUpdate(digest, &size, sizeof size);
	EVP_DigestUpdate(digest, bytes ? bytes : "", bytes ? length : 0);
}

static void add_text_digest(EVP_MD_CTX *digest, const char *text)
{
	add_digest(digest, text, text ? strlen(text) : 0);
}

/* The beginning of a SHA-256 of each field with its length. */
static void seal_request(struct lookback_request *request)
{
	unsigned char whole[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *digest = EVP_MD_CTX_new();

	EVP_DigestInit_ex(digest, EVP_sha256(), NULL);
	add_text_digest(digest, request->topic);
	add_digest(digest, request->key.bytes, request->key.length);
	add_digest(digest, request->payload.bytes, request->payload.length);
	add_text_digest(digest, request->headers);
	add_text_digest(digest, request->check_service);
	add_text_digest(digest, request->check_url);
	add_digest(digest, &request->check_after_ms, sizeof request->check_after_ms);
	add_digest(digest, &request->expires_after_ms, sizeof request->expires_after_ms);
	add_text_digest(digest, request->unique_key);
	add_digest(digest, &request->within_ms, sizeof request->within_ms);
	add_text_digest(digest, request->while_pending);
	EVP_DigestFinal_ex(digest, whole, NULL);
	EVP_MD_CTX_free(digest);
	memcpy(request->digest, whole, LOOKBACK_DIGEST);
}

static bool has_right_key(const struct lookback_request *request,
    const struct lookback_input *input, struct refusal *refusal)
{
	owned_text char *key = lookback_wire_key(request);

	/* With another key, records of an id could be in several partitions, and in no order. */
	if (input->is_body || (input->key && input->key_length == strlen(key) &&
				  memcmp(input->key, key, input->key_length) == 0))
		return true;
	return refusal_set(refusal, "key_mismatch", "the record's key is not biz_type:biz_id");
}

bool lookback_wire_read(const struct lookback_input *input, struct lookback_request *ret_request,
    struct refusal *ret_refusal)
{
	*ret_request = (struct lookback_request){
	    .check_after_ms = -1, .expires_after_ms = -1, .within_ms = -1};

	bool in_headers = !input->is_body && find_header(input, "version");
	bool well =
	    (in_headers ? read_header_fields : read_json)(ret_request, input, ret_refusal) &&
	    has_right_key(ret_request, input, ret_refusal);

	if (well) {
		seal_request(ret_request);
		return true;
	}

	/* The type outlives the refusal: it decides which section reports it. */
	char *biz_type = ret_request->biz_type;
	ret_request->biz_type = NULL;
	lookback_request_finish(ret_request);
	ret_request->biz_type = biz_type;
	return false;
}

void lookback_request_finish(struct lookback_request *request)
{
	free(request->biz_type);
	free(request->biz_id);
	free(request->topic);
	free(request->key.bytes);
	free(request->payload.bytes);
	free(request->headers);
	free(request->check_service);
	free(request->check_url);
	free(request->unique_key);
	free(request->while_pending);
	*request = (struct lookback_request){0};
}

char *lookback_wire_key(const struct lookback_request *request)
{
	return xformat("%s:%s", request->biz_type, request->biz_id);
}

void lookback_event_id(const char *biz_type, const char *biz_id, unsigned char ret_uuid[UUID_BYTES])
{
	static const unsigned char space[UUID_BYTES] = {0x4f, 0x9d, 0x35, 0xb8, 0x3a, 0x1c, 0x5e,
	    0x0e, 0x9d, 0x55, 0x2f, 0x6a, 0x7f, 0x3e, 0x0c, 0x11};
	owned_text char *name = xformat("%s:%s", biz_type, biz_id);
	unsigned char whole[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *digest = EVP_MD_CTX_new();

	EVP_DigestInit_ex(digest, EVP_sha1(), NULL);
	EVP_DigestUpdate(digest, space, sizeof space);
	EVP_DigestUpdate(digest, name, strlen(name));
	EVP_DigestFinal_ex(digest, whole, NULL);
	EVP_MD_CTX_free(digest);
	memcpy(ret_uuid, whole, UUID_BYTES);
	/* Version 5, and the variant of RFC 4122. */
	ret_uuid[6] = (unsigned char)((ret_uuid[6] & 0x0f) | 0x50);
	ret_uuid[8] = (unsigned char)((ret_uuid[8] & 0x3f) | 0x80);
}
