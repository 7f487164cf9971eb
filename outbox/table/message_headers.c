/*
 * The application's headers of a row, as the application wrote them. Nearly all are plain: few, in
 * ASCII, with different names, and without escapes or base64. A plain header is a part of the row,
 * so it costs no allocation and no copy. Headers of any other form take the long way, through
 * jansson.
 */
#include "message.h"

#include <jansson.h>
#include <string.h>

#include "cleanup.h"
#include "text.h"

struct header_sink {
	message_header_see *see;
	void *context;
	struct text *scratch; /* has room for everything, so that no part of it moves */
};

/* --- plain headers -------------------------------------------------------------------------- */

enum { PLAIN_HEADERS = 16 };

struct plain_header {
	const char *name, *value;
	size_t name_length, length;
};

static const char *skip_header_blanks(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
		at++;
	return at;
}

/* The mark, and the blanks around it. */
static const char *skip_mark(const char *at, const char *end, char mark)
{
	at = skip_header_blanks(at, end);
	return at < end && *at == mark ? skip_header_blanks(at + 1, end) : NULL;
}

static const char *skip_literal(const char *at, const char *end, const char *literal)
{
	size_t length = strlen(literal);

	return (size_t)(end - at) >= length && memcmp(at, literal, length) == 0 ? at + length
										: NULL;
}

/* No escapes, and ASCII: the rest of UTF-8 is left to jansson, which checks it. */
static bool is_unescaped_ascii(const char *at, const char *end)
{
	unsigned char other = 0;

	/* without a branch, so that many bytes are checked at a time */
	for (; at < end; at++) {
		unsigned char from_space = (unsigned char)(*at - ' ');
		other |= (from_space > '~' - ' ') | (*at == '\\');
	}
	return !other;
}

static bool is_of_number(char c)
{
	return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Each function returns the place behind the text that it read, or NULL if the text is not plain.
 */
static const char *read_plain_string(
    const char *at, const char *end, const char **ret_string, size_t *ret_length)
{
	const char *close;

	if (at == end || *at != '"')
		return NULL;
	at++;
	close = memchr(at, '"', (size_t)(end - at));
	if (!close || !is_unescaped_ascii(at, close))
		return NULL;
	*ret_string = at;
	*ret_length = (size_t)(close - at);
	return close + 1;
}

static const char *read_plain_value(const char *at, const char *end, struct plain_header *header)
{
	const char *behind;

	if (at < end && *at == '"')
		return read_plain_string(at, end, &header->value, &header->length);
	header->value = at;
	if (at < end && (*at == '-' || (*at >= '0' && *at <= '9'))) {
		for (behind = at; behind < end && is_of_number(*behind);)
			behind++;
	} else if ((behind = skip_literal(at, end, "null"))) {
		header->value = NULL;
	} else if (!(behind = skip_literal(at, end, "true"))) {
		behind = skip_literal(at, end, "false");
	}

	header->length = header->value && behind ? (size_t)(behind - at) : 0;
	return behind;
}

static const char *read_plain_header(
    const char *at, const char *end, bool pair, struct plain_header *header)
{
	if (pair)
		at = skip_mark(at, end, '[');
	if (at)
		at = read_plain_string(at, end, &header->name, &header->name_length);
	if (at)
		at = skip_mark(at, end, pair ? ',' : ':');
	if (at)
		at = read_plain_value(at, end, header);
	return at && pair ? skip_mark(at, end, ']') : at;
}

static bool repeats_name(const struct plain_header *list, int count)
{
	for (int i = 1; i < count; i++) {
		for (int j = 0; j < i; j++) {
			if (list[i].name_length == list[j].name_length &&
			    memcmp(list[i].name, list[j].name, list[i].name_length) == 0)
				return true;
		}
	}
	return false;
}

/*
 * Returns their number; -1: some are not plain, or there are too many for the list. An object that
 * repeats a name is not plain: its last value counts, as in jansson and jsonb.
 */
static int read_plain_headers(
    const char *at, const char *end, struct plain_header list[PLAIN_HEADERS])
{
	const char *next = skip_mark(at, end, '[');
	bool pairs = next != NULL;

	if (!pairs)
		next = skip_mark(at, end, '{');
	for (int count = 0; next && count < PLAIN_HEADERS;) {
		at = read_plain_header(next, end, pairs, &list[count]);
		if (!at)
			return -1;
		count++;
		next = skip_mark(at, end, ',');
		if (!next && skip_mark(at, end, pairs ? ']' : '}') == end)
			return pairs || !repeats_name(list, count) ? count : -1;
	}
	return -1;
}

/* --- any headers ---------------------------------------------------------------------------- */

/* at: after the opening quote. Returns the place after the closing quote. */
static const char *skip_header_string(const char *at, const char *end)
{
	while (at < end && *at != '"')
		at += *at == '\\' && at + 1 < end ? 2 : 1;
	return at < end ? at + 1 : end;
}

/*
 * Turns numbers into strings: a header's value must be the number as it was written, of any size
 * and precision, and jansson would round it to a double or refuse it.
 */
static void quote_numbers(const char *at, const char *end, struct text *out)
{
	const char *copied = at;

	while (at < end) {
		const char *number = at;
		/* Digits within a string are no number. */
		if (*at == '"') {
			at = skip_header_string(at + 1, end);
		} else if (*at == '-' || (*at >= '0' && *at <= '9')) {
			while (at < end && strchr("+-.0123456789eE", *at))
				at++;
			text_append(out, copied, (size_t)(number - copied));
			text_add(out, "\"");
			text_append(out, number, (size_t)(at - number));
			text_add(out, "\"");
			copied = at;
		} else {
			at++;
		}
	}
	text_append(out, copied, (size_t)(end - copied));
}

static void see_copy(const struct header_sink *sink, const char *name, size_t name_length,
    const void *value, size_t length)
{
	struct text *scratch = sink->scratch;
	const char *bytes = scratch->data + scratch->length;

	text_append(scratch, name, name_length);
	/* An empty value needs an address as well: only NULL means null. */
	text_append(scratch, value ? value : "", length);
	sink->see(sink->context, bytes, name_length, value ? bytes + name_length : NULL, length);
}

/* A value is a string (quote_numbers made numbers strings), null, a boolean or {"base64": "…"}. */
static bool see_header(
    const struct header_sink *sink, const char *name, size_t name_length, json_t *value)
{
	json_t *base64 = json_object_size(value) == 1 ? json_object_get(value, "base64") : NULL;

	if (json_is_null(value)) {
		see_copy(sink, name, name_length, NULL, 0);
	} else if (json_is_string(value)) {
		see_copy(
		    sink, name, name_length, json_string_value(value), json_string_length(value));
	} else if (json_is_string(base64)) {
		owned_text void *bytes = NULL;
		size_t length;
		if (!text_base64_decode(
			json_string_value(base64), json_string_length(base64), &bytes, &length))
			return false;
		see_copy(sink, name, name_length, bytes, length);
	} else if (json_is_boolean(value)) {
		const char *text = json_is_true(value) ? "true" : "false";
		see_copy(sink, name, name_length, text, strlen(text));
	} else {
		return false;
	}
	return true;
}

static bool see_headers(const struct header_sink *sink, json_t *headers)
{
	const char *name;
	json_t *value;
	size_t index;
	if (json_is_object(headers)) {
		json_object_foreach(headers, name, value)
		{
			if (!see_header(sink, name, strlen(name), value))
				return false;
		}
		return true;
	}

	json_array_foreach(headers, index, value)
	{
		json_t *item_name = json_array_get(value, 0);
		if (json_array_size(value) != 2 || !json_is_string(item_name) ||
		    !see_header(sink, json_string_value(item_name), json_string_length(item_name),
			json_array_get(value, 1)))
			return false;
	}
	return json_is_array(headers);
}

static bool see_any_headers(const struct header_sink *sink, const char *json, size_t length)
{
	OWNED(text_finish) struct text quoted = {0};
	json_error_t problem;
	json_t *headers;
	bool good;

	text_clear(sink->scratch);
	/* a header has fewer bytes than its JSON */
	text_reserve(sink->scratch, length);
	quote_numbers(json, json + length, &quoted);
	headers = json_loadb(text_string(&quoted), quoted.length, JSON_ALLOW_NUL, &problem);
	good = headers && see_headers(sink, headers);
	json_decref(headers);
	return good;
}

bool message_headers(const struct message *message, struct text *scratch, message_header_see *see,
    void *context, struct err *err)
{
	const char *json = message->headers;
	size_t length = json ? (size_t)message->headers_length : 0;
	const struct header_sink sink = {see, context, scratch};
	struct plain_header plain[PLAIN_HEADERS];
	int count = json ? read_plain_headers(json, json + length, plain) : 0;

	for (int i = 0; i < count; i++)
		see(context, plain[i].name, plain[i].name_length, plain[i].value, plain[i].length);
	return count >= 0 || see_any_headers(&sink, json, length) ||
	       err_set(err, ERR_REJECT,
		   "headers of row %lld are neither an object nor an array of [name, value]",
		   (long long)message->id);
}
