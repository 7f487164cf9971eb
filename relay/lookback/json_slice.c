/*
 * Reads JSON in place, without a tree: values are slices of the text. It also finds numbers that
 * PostgreSQL cannot store. Begin at json_check and json_member_next.
 */
#include "json_slice.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "hex.h"
#include "text.h"

struct scan {
	const char *at, *end;
};

static void skip_slice_blanks(struct scan *scan)
{
	while (scan->at < scan->end && strchr(" \t\r\n", *scan->at))
		scan->at++;
}

static bool take_slice_char(struct scan *scan, char wanted)
{
	skip_slice_blanks(scan);
	if (scan->at == scan->end || *scan->at != wanted)
		return false;
	scan->at++;
	return true;
}

/* From behind the opening quote to behind the closing one. */
static void skip_slice_string(struct scan *scan)
{
	while (scan->at < scan->end && *scan->at != '"')
		scan->at += *scan->at == '\\' && scan->at + 1 < scan->end ? 2 : 1;
	if (scan->at < scan->end)
		scan->at++;
}

/* To the comma, brace or bracket behind it: those within it are in strings, or deeper. */
static void skip_value(struct scan *scan)
{
	for (int depth = 0; scan->at < scan->end;) {
		char next = *scan->at;

		if (depth == 0 && (next == ',' || next == '}' || next == ']'))
			return;
		scan->at++;
		if (next == '"')
			skip_slice_string(scan);
		else if (next == '{' || next == '[')
			depth++;
		else if (next == '}' || next == ']')
			depth--;
	}
}

/* The value that begins here, without the blanks behind it. */
static const char *take_value_slice(struct scan *scan, size_t *ret_length)
{
	const char *begin, *end;

	skip_slice_blanks(scan);
	begin = scan->at;
	skip_value(scan);
	for (end = scan->at; end > begin && strchr(" \t\r\n", end[-1]);)
		end--;
	*ret_length = (size_t)(end - begin);
	return begin;
}

/*
 * Is this the name, between its quotes, with escapes perhaps? Names of ours are ASCII without
 * quotes, backslashes and slashes: only the escape \uXXXX can stand for one of their characters.
 */
static bool is_member_name(const char *begin, size_t length, const char *name)
{
	const char *at = begin + 1, *end = begin + length - 1;

	for (; *name; name++) {
		unsigned code = 0;

		if (at == end)
			return false;
		if (*at != '\\') {
			if (*at++ != *name)
				return false;
			continue;
		}
		if (end - at < 6 || at[1] != 'u')
			return false;
		for (int i = 2; i < 6; i++)
			code = code << 4 | (unsigned)hex_digit(at[i]);
		if (code != (unsigned char)*name)
			return false;
		at += 6;
	}
	return at == end;
}

const char *json_slice(const char *text, size_t length, const char *name, size_t *ret_length)
{
	struct scan scan = {text, text + length};

	if (!take_slice_char(&scan, '{'))
		return NULL;
	while (take_slice_char(&scan, '"')) {
		const char *begin = scan.at - 1;
		bool found;

		skip_slice_string(&scan);
		found = is_member_name(begin, (size_t)(scan.at - begin), name);
		if (!take_slice_char(&scan, ':'))
			return NULL;
		begin = take_value_slice(&scan, ret_length);
		if (found)
			return begin;
		if (!take_slice_char(&scan, ','))
			return NULL;
	}
	return NULL;
}

bool json_member_next(
    const char *object, size_t length, size_t *offset, struct json_member *ret_member)
{
	struct scan scan = {object + *offset, object + length};

	if (!take_slice_char(&scan, *offset == 0 ? '{' : ',') || !take_slice_char(&scan, '"'))
		return false;
	ret_member->name = scan.at - 1;
	skip_slice_string(&scan);
	ret_member->name_length = (size_t)(scan.at - ret_member->name);
	if (!take_slice_char(&scan, ':'))
		return false;
	ret_member->value = take_value_slice(&scan, &ret_member->value_length);
	*offset = (size_t)(scan.at - object);
	return ret_member->value_length > 0;
}

bool json_member_is(const struct json_member *member, const char *name)
{
	return is_member_name(member->name, member->name_length, name);
}

/* Counted from 1; a column is a byte of its line. */
static void find_line_and_column(const char *text, size_t at, size_t *ret_line, size_t *ret_column)
{
	const char *line = text, *end = text + at, *newline;

	for (*ret_line = 1; (newline = memchr(line, '\n', (size_t)(end - line))); ++*ret_line)
		line = newline + 1;
	*ret_column = (size_t)(end - line) + 1;
}

bool json_check(
    const char *text, size_t length, const struct json_limits *limits, struct refusal *ret_refusal)
{
	size_t at, line, column;
	enum json_verdict verdict = json_text_check(text, length, limits, &at);

	if (verdict == JSON_WELL_FORMED)
		return true;
	find_line_and_column(text, at, &line, &column);
	switch (verdict) {
	case JSON_TOO_DEEP:
		return refusal_set(ret_refusal, "too_complex",
		    "line %zu, column %zu: JSON may be %d values deep", line, column,
		    limits->depth);
	case JSON_TOO_MANY_VALUES:
		return refusal_set(ret_refusal, "too_complex",
		    "line %zu, column %zu: JSON may have %zu values", line, column, limits->values);
	case JSON_WELL_FORMED:
	case JSON_MALFORMED:
		break;
	}
	return refusal_set(ret_refusal, "bad_json",
	    "line %zu, column %zu: this is no JSON in UTF-8 without lone surrogates", line, column);
}

bool json_has_nul(const json_t *value)
{
	return json_is_string(value) &&
	       strlen(json_string_value(value)) != json_string_length(value);
}

json_t *json_bytes(const void *bytes, size_t length)
{
	owned_text char *base64 = NULL;
	json_t *text;

	if (!bytes)
		return json_null();
	text = memchr(bytes, '\0', length) ? NULL : json_stringn(bytes, length);
	if (text)
		return text;
	base64 = xmalloc((length + 2) / 3 * 4 + 1);
	EVP_EncodeBlock((unsigned char *)base64, bytes, (int)length);
	return json_pack("{ss}", "base64", base64);
}

/* The code unit of \\uXXXX. */
static uint32_t escaped_code_unit(const char *escape)
{
	uint32_t unit = 0;

	for (int i = 2; i < 6; i++)
		unit = unit << 4 | (uint32_t)hex_digit(escape[i]);
	return unit;
}

/* Returns its end. */
static char *write_utf8(char *at, uint32_t code)
{
	const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;

	*at++ = (char)((0xff00 >> (more + 1) & 0xff) | code >> 6 * more);
	for (int i = more - 1; i >= 0; i--)
		*at++ = (char)(0x80 | (code >> 6 * i & 0x3f));
	return at;
}

char *json_without_escapes(const char *text, size_t length)
{
	char *result = xmalloc(length + 1), *at = result;
	const char *const end = text + length;

	while (text < end) {
		const bool is_unit = text[0] == '\\' && text[1] == 'u';
		uint32_t code = is_unit ? escaped_code_unit(text) : 0;
		const size_t taken = is_unit ? 6 : text[0] == '\\' ? 2 : 1;

		/* Escapes of ASCII stay: the character itself may need one, such as a quote. */
		if (code < 0x80) {
			memcpy(at, text, taken);
			at += taken;
			text += taken;
			continue;
		}
		text += 6;
		/* The other half follows: a lone surrogate was refused before. */
		if (code >= 0xd800 && code <= 0xdbff) {
			code =
			    0x10000 + ((code - 0xd800) << 10) + (escaped_code_unit(text) - 0xdc00);
			text += 6;
		}
		at = write_utf8(at, code);
	}
	*at = '\0';
	return result;
}

const char *json_slice_next(const char *array, size_t length, size_t *offset, size_t *ret_length)
{
	struct scan scan = {array + *offset, array + length};
	const char *begin;

	if (!take_slice_char(&scan, *offset == 0 ? '[' : ','))
		return NULL;
	begin = take_value_slice(&scan, ret_length);
	*offset = (size_t)(scan.at - array);
	return *ret_length > 0 ? begin : NULL;
}

/* --- numbers of any size -------------------------------------------------------------------- */

static const char number_characters[] = "+-.0123456789eE";

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *at)
{
	while (is_digit(*at))
		at++;
	return at;
}

/* Is all of the text one number of JSON? The byte behind the text must not be a digit. */
static bool is_json_number(const char *at, const char *end)
{
	at += *at == '-';
	if (!is_digit(*at))
		return false;

	at = *at == '0' ? at + 1 : skip_digits(at);
	if (*at == '.') {
		if (!is_digit(*++at))
			return false;
		at = skip_digits(at);
	}
	if (*at == 'e' || *at == 'E') {
		at++;
		at += *at == '+' || *at == '-';
		if (!is_digit(*at))
			return false;
		at = skip_digits(at);
	}
	return at == end;
}

/* True when the numeric type of Postgres holds this well-formed number. */
static bool is_numeric(const char *at, const char *end)
{
	enum { DIGITS_BEFORE = 131072, DIGITS_BEHIND = 16383 };
	const char *exponent, *point;
	int64_t shift = 0, before, behind;
	size_t mantissa;

	at += *at == '-';
	mantissa = (size_t)(end - at);
	if (!(exponent = memchr(at, 'e', mantissa)))
		exponent = memchr(at, 'E', mantissa);
	if (exponent) {
		mantissa = (size_t)(exponent - at);
		shift = strtoll(exponent + 1, NULL, 10);
	}
	/* neither sum below may overflow; the longest mantissa is far shorter than this */
	if (shift > INT32_MAX / 2 || shift < INT32_MIN / 2)
		return false;
	point = memchr(at, '.', mantissa);
	before = point ? point - at : (int64_t)mantissa;
	behind = (int64_t)mantissa - before - (point != NULL);
	return behind - shift <= DIGITS_BEHIND &&
	       (before + shift <= DIGITS_BEFORE || strspn(at, "0.") >= mantissa);
}

const char *json_unstorable_number(const char *text, size_t length, size_t *ret_length)
{
	struct scan scan = {text, text + length};

	while (scan.at < scan.end) {
		const char *begin = scan.at++;

		if (*begin == '"')
			skip_slice_string(&scan);
		if (!is_digit(*begin) && *begin != '-')
			continue;
		while (scan.at < scan.end && strchr(number_characters, *scan.at) && *scan.at)
			scan.at++;
		if (is_numeric(begin, scan.at))
			continue;
		*ret_length = (size_t)(scan.at - begin);
		return begin;
	}
	return NULL;
}

/* Replaces a number that no double holds by a large number. */
static void tame_number(char *begin, char *end)
{
	static const char large[] = "9e99";
	size_t length = (size_t)(end - begin);
	char *behind;

	if (length <= sizeof large - 1 || !is_json_number(begin, end) ||
	    !isinf(strtod(begin, &behind)) || behind != end)
		return;
	memset(begin, ' ', length);
	memcpy(begin, large, sizeof large - 1);
}

json_t *json_read(const char *text, size_t length, json_error_t *ret_why)
{
	static const size_t flags =
	    JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL;
	json_t *value = json_loadb(text, length, flags, ret_why);
	owned_text char *tame = NULL;

	/* Jansson refuses the whole text for one number beyond a double, though it is JSON. */
	if (value || json_error_code(ret_why) != json_error_numeric_overflow)
		return value;
	tame = xmalloc(length + 1);
	memcpy(tame, text, length);
	tame[length] = '\0';
	for (struct scan scan = {tame, tame + length}; scan.at < scan.end;) {
		char *begin = tame + (scan.at - tame);
		size_t run =
		    is_digit(*begin) || *begin == '-' ? strspn(begin, number_characters) : 0;

		tame_number(begin, begin + run);
		scan.at += run > 0 ? run : 1;
		if (*begin == '"')
			skip_slice_string(&scan);
	}
	return json_loadb(tame, length, flags, ret_why);
}
