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
	VERSION = 1,
};
static const int64_t most_ms = INT64_C(3650) * 24 * 3600 * 1000;

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

static bool is_utf8(const char *text, size_t length)
{
	uint32_t code;

	/* text_utf8 stops at the NUL behind the text, which every caller's text has. */
	for (size_t i = 0; i < length;) {
		int step = text_utf8(text + i, &code);

		if (step == 0 || code == 0)
			return false;
		i += (size_t)step;
	}
	return true;
}

static bool set_text(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	if (said->length == 0 || said->length > field->most)
		return refusal_set(refusal, "bad_value", "%s has %zu bytes; it takes 1 to %zu",
		    field->name, said->length, field->most);
	owned_text char *text = xformat("%.*s", (int)said->length, said->text);
	if (strlen(text) != said->length || !is_utf8(text, said->length))
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

/* A name that is well formed: what may stand in a Kafka topic's as well. */
static bool set_name(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	char **at = (char **)((char *)request + field->offset);

	if (!set_text(request, field, said, refusal))
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
		return refusal_set(refusal, "bad_value", "%s has %zu bytes, more than %zu",
		    field->name, said->length, field->most);
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

/* --- headers of the message ----------------------------------------------------------------- */

static bool has_nul(const json_t *text)
{
	return json_is_string(text) && strlen(json_string_value(text)) != json_string_length(text);
}

static bool is_value(const json_t *value)
{
	size_t length;
	owned_text void *bytes = NULL;
	const json_t *base64 = json_object_get(value, "base64");

	if (!json_is_object(value))
		return !json_is_array(value) && !has_nul(value);
	return json_object_size(value) == 1 && json_is_string(base64) &&
	       text_base64_decode(
		   json_string_value(base64), json_string_length(base64), &bytes, &length);
}

static bool is_reserved(const char *name)
{
	return text_starts(name, "outbox-");
}

/* The rules of outbox.headers_valid. NULL: it keeps them. */
static const char *headers_fault(const json_t *headers)
{
	static const char no_value[] =
	    "hold a NUL, or a value that is neither text, number, boolean, null nor "
	    "{\"base64\": …}";
	const char *name;
	size_t index;
	json_t *value, *pair;

	if (!json_is_object(headers) && !json_is_array(headers))
		return "are neither an object nor an array of pairs";
	json_object_foreach((json_t *)headers, name, value)
	{
		if (is_reserved(name))
			return "have a name that begins with outbox-, which is reserved";
		if (!is_value(value))
			return no_value;
	}
	json_array_foreach(headers, index, pair)
	{
		if (json_array_size(pair) != 2 || !json_is_string(json_array_get(pair, 0)))
			return "have an element that is no pair of name and value";
		if (is_reserved(json_string_value(json_array_get(pair, 0))))
			return "have a name that begins with outbox-, which is reserved";
		if (has_nul(json_array_get(pair, 0)) || !is_value(json_array_get(pair, 1)))
			return no_value;
	}
	return NULL;
}

/* The text is what the headers were read from: numbers keep their digits. */
static bool keep_headers(struct lookback_request *request, const json_t *headers, const char *text,
    size_t length, struct refusal *refusal)
{
	const char *fault = headers_fault(headers);

	if (fault)
		return refusal_set(refusal, "bad_value", "headers %s", fault);
	if (json_longest(text, length) > MOST_HEADERS)
		return refusal_set(
		    refusal, "bad_value", "headers have more than %d bytes", MOST_HEADERS);
	free(request->headers);
	request->headers = lookback_bytes_copy(text, length).bytes;
	return true;
}

static bool set_headers(struct lookback_request *request, const struct field *field,
    const struct said *said, struct refusal *refusal)
{
	json_error_t ignored;
	json_t *headers = said->text ? json_read(said->text, said->length, &ignored) : NULL;
	bool kept = headers && keep_headers(request, headers, said->text, said->length, refusal);

	if (!headers)
		refusal_set(refusal, "bad_value", "%s is no JSON", field->name);
	json_decref(headers);
	return kept;
}

#define MEMBER(member) #member, offsetof(struct lookback_request, member)

/* "version", "payload" and "payload_base64" are looked at where each form is read. */
static const struct field fields[] = {
    {MEMBER(biz_type), set_name, MOST_TYPE, .required = true},
    {MEMBER(biz_id), set_text, MOST_ID, .required = true},
    {MEMBER(op), set_op, .required = true},
    {MEMBER(topic), set_name, MOST_TOPIC, .of_prepare = true, .required = true},
    {MEMBER(key), set_bytes, MOST_KEY, .of_prepare = true},
    {MEMBER(headers), set_headers, .of_prepare = true},
    {MEMBER(check_service), set_name, MOST_SERVICE, .of_prepare = true},
    {MEMBER(check_url), set_text, MOST_URL, .of_prepare = true},
    {"check_after", offsetof(struct lookback_request, check_after_ms), set_duration,
	.of_prepare = true},
    {"expires_after", offsetof(struct lookback_request, expires_after_ms), set_duration,
	.of_prepare = true},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static bool is_wanted(const struct lookback_request *request, const struct field *field)
{
	return !field->of_prepare || request->op == LOOKBACK_PREPARE;
}

static bool missing(struct refusal *refusal, const char *name)
{
	return refusal_set(refusal, "missing_field", "%s is missing", name);
}

/* --- JSON ----------------------------------------------------------------------------------- */

static bool is_known(const char *name)
{
	for (int i = 0; i < FIELDS; i++)
		if (text_equal(fields[i].name, name))
			return true;
	return text_equal(name, "version") || text_equal(name, "payload") ||
	       text_equal(name, "payload_base64");
}

static bool read_json_headers(struct lookback_request *request, const json_t *headers,
    const struct lookback_input *input, struct refusal *refusal)
{
	size_t length;
	const char *text = json_slice(input->value, input->value_length, "headers", &length);

	return keep_headers(request, headers, text, length, refusal);
}

static bool read_json_field(struct lookback_request *request, const struct field *field,
    const json_t *object, const struct lookback_input *input, struct refusal *refusal)
{
	const json_t *value = json_object_get(object, field->name);
	struct said said = {json_string_value(value), json_string_length(value), 0};

	if (!value || json_is_null(value))
		return field->required ? missing(refusal, field->name) : true;
	if (field->set == set_headers)
		return read_json_headers(request, value, input, refusal);
	if (field->set == set_duration && json_is_number(value))
		said.number = json_number_value(value);
	else if (!said.text)
		return refusal_set(refusal, "wrong_type", "%s is no string%s", field->name,
		    field->set == set_duration ? " or number" : "");
	return field->set(request, field, &said, refusal);
}

static bool read_json_payload(struct lookback_request *request, const json_t *object,
    const struct lookback_input *input, struct refusal *refusal)
{
	const json_t *payload = json_object_get(object, "payload");
	const json_t *base64 = json_object_get(object, "payload_base64");
	struct lookback_bytes *bytes = &request->payload;
	void *decoded;

	if (payload && base64)
		return refusal_set(
		    refusal, "bad_value", "payload and payload_base64 exclude each other");
	if (!payload && !base64)
		return refusal_set(refusal, "missing_field",
		    "payload and payload_base64 are missing; \"payload\": null is a tombstone");
	if (base64) {
		if (!json_is_string(base64))
			return refusal_set(refusal, "wrong_type", "payload_base64 is no string");
		if (!text_base64_decode(json_string_value(base64), json_string_length(base64),
			&decoded, &bytes->length))
			return refusal_set(refusal, "bad_value", "payload_base64 is not base64");
		bytes->bytes = decoded;
		return true;
	}
	if (json_is_null(payload))
		return true;
	/* As it was written: numbers keep their digits. */
	size_t length;
	const char *raw = json_slice(input->value, input->value_length, "payload", &length);
	*bytes = lookback_bytes_copy(raw, length);
	return true;
}

static bool read_json_object(struct lookback_request *request, const json_t *object,
    const struct lookback_input *input, struct refusal *refusal)
{
	const json_t *version = json_object_get(object, "version");
	const char *name;
	json_t *value;

	/* First of all whose it is, for whoever has to answer for a refusal. */
	if (!read_json_field(request, &fields[0], object, input, refusal))
		return false;
	if (!version)
		return missing(refusal, "version");
	if (!json_is_number(version) || json_number_value(version) != VERSION)
		return refusal_set(refusal, "bad_version", "version is not %d", VERSION);
	json_object_foreach((json_t *)object, name, value)
	{
		if (!is_known(name))
			return refusal_set(
			    refusal, "unknown_field", "%.100s is no field of version 1", name);
	}
	for (int i = 1; i < FIELDS; i++)
		if (is_wanted(request, &fields[i]) &&
		    !read_json_field(request, &fields[i], object, input, refusal))
			return false;
	return request->op != LOOKBACK_PREPARE ||
	       read_json_payload(request, object, input, refusal);
}

static bool read_json(
    struct lookback_request *request, const struct lookback_input *input, struct refusal *refusal)
{
	json_error_t why;
	json_t *object;
	bool well = false;

	if (!input->value)
		return refusal_set(refusal, "bad_json", "the value is null");
	object = json_read(input->value, input->value_length, &why);
	if (!object)
		refusal_set(
		    refusal, "bad_json", "line %d, column %d: %s", why.line, why.column, why.text);
	else if (!json_is_object(object))
		refusal_set(refusal, "bad_json", "the value is no JSON object");
	else
		well = read_json_object(request, object, input, refusal);
	json_decref(object);
	return well;
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
		return field->required ? missing(refusal, field->name) : true;
	return field->set(
	    request, field, &(const struct said){header->value, header->length, 0}, refusal);
}

static bool add_pair(json_t *pairs, const struct lookback_header *header, struct refusal *refusal)
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
	bool kept = true;

	if (request->headers)
		return true;
	pairs = json_array();
	for (size_t i = 0; i < input->header_count && kept; i++)
		if (!text_starts(input->headers[i].name, PREFIX) &&
		    !is_reserved(input->headers[i].name))
			kept = add_pair(pairs, &input->headers[i], refusal);
	if (kept && json_array_size(pairs) > 0) {
		owned_text char *text = json_dumps(pairs, 0);
		kept = keep_headers(request, pairs, text, strlen(text), refusal);
	}
	json_decref(pairs);
	return kept;
}

static bool read_headers(
    struct lookback_request *request, const struct lookback_input *input, struct refusal *refusal)
{
	const struct lookback_header *version = find_header(input, "version");

	if (!read_header_field(request, &fields[0], input, refusal))
		return false;
	if (!version->value || version->length != 1 || version->value[0] != '0' + VERSION)
		return refusal_set(refusal, "bad_version", "lookback-version is not %d", VERSION);
	if (!check_header_names(input, refusal))
		return false;
	for (int i = 1; i < FIELDS; i++)
		if (is_wanted(request, &fields[i]) &&
		    !read_header_field(request, &fields[i], input, refusal))
			return false;
	if (request->op != LOOKBACK_PREPARE)
		return true;
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

static void add_text(EVP_MD_CTX *digest, const char *text)
{
	add_digest(digest, text, text ? strlen(text) : 0);
}

/* The beginning of a SHA-256 of each field with its length. */
static void seal(struct lookback_request *request)
{
	unsigned char whole[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *digest = EVP_MD_CTX_new();

	EVP_DigestInit_ex(digest, EVP_sha256(), NULL);
	add_text(digest, request->topic);
	add_digest(digest, request->key.bytes, request->key.length);
	add_digest(digest, request->payload.bytes, request->payload.length);
	add_text(digest, request->headers);
	add_text(digest, request->check_service);
	add_text(digest, request->check_url);
	add_digest(digest, &request->check_after_ms, sizeof request->check_after_ms);
	add_digest(digest, &request->expires_after_ms, sizeof request->expires_after_ms);
	EVP_DigestFinal_ex(digest, whole, NULL);
	EVP_MD_CTX_free(digest);
	memcpy(request->digest, whole, LOOKBACK_DIGEST);
}

static bool has_right_key(const struct lookback_request *request,
    const struct lookback_input *input, struct refusal *refusal)
{
	owned_text char *key = lookback_wire_key(request);

	if (input->is_body || (input->key && input->key_length == strlen(key) &&
				  memcmp(input->key, key, input->key_length) == 0))
		return true;
	return refusal_set(refusal, "key_mismatch", "the record's key is not biz_type:biz_id");
}

bool lookback_wire_read(const struct lookback_input *input, struct lookback_request *ret_request,
    struct refusal *ret_refusal)
{
	*ret_request = (struct lookback_request){.check_after_ms = -1, .expires_after_ms = -1};
	bool in_headers = !input->is_body && find_header(input, "version");
	bool well = (in_headers ? read_headers : read_json)(ret_request, input, ret_refusal) &&
		    has_right_key(ret_request, input, ret_refusal);
	if (well) {
		seal(ret_request);
		return true;
	}
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
	ret_uuid[6] = (unsigned char)((ret_uuid[6] & 0x0f) | 0x50);
	ret_uuid[8] = (unsigned char)((ret_uuid[8] & 0x3f) | 0x80);
}
