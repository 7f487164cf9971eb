#include "json_slice.h"

#include <ctype.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

struct scan {
	const char *at, *end;
};

static void skip_blanks(struct scan *scan)
{
	while (scan->at < scan->end && strchr(" \t\r\n", *scan->at))
		scan->at++;
}

static bool take(struct scan *scan, char wanted)
{
	skip_blanks(scan);
	if (scan->at == scan->end || *scan->at != wanted)
		return false;
	scan->at++;
	return true;
}

/* From behind the opening quote to behind the closing one. */
static void skip_string(struct scan *scan)
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
			skip_string(scan);
		else if (next == '{' || next == '[')
			depth++;
		else if (next == '}' || next == ']')
			depth--;
	}
}

/* The value that begins here, without the blanks behind it. */
static const char *take_value(struct scan *scan, size_t *ret_length)
{
	const char *begin, *end;

	skip_blanks(scan);
	begin = scan->at;
	skip_value(scan);
	for (end = scan->at; end > begin && strchr(" \t\r\n", end[-1]);)
		end--;
	*ret_length = (size_t)(end - begin);
	return begin;
}

/* Is this the name, between its quotes, with escapes perhaps? */
static bool is_name(const char *begin, size_t length, const char *name)
{
	json_t *text;
	bool is_it;

	if (!memchr(begin, '\\', length))
		return length == strlen(name) + 2 && memcmp(begin + 1, name, length - 2) == 0;
	text = json_loadb(begin, length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	is_it = text && json_string_length(text) == strlen(name) &&
		text_equal(json_string_value(text), name);
	json_decref(text);
	return is_it;
}

const char *json_slice(const char *text, size_t length, const char *name, size_t *ret_length)
{
	struct scan scan = {text, text + length};

	if (!take(&scan, '{'))
		return NULL;
	while (take(&scan, '"')) {
		const char *begin = scan.at - 1;
		bool found;

		skip_string(&scan);
		found = is_name(begin, (size_t)(scan.at - begin), name);
		if (!take(&scan, ':'))
			return NULL;
		begin = take_value(&scan, ret_length);
		if (found)
			return begin;
		if (!take(&scan, ','))
			return NULL;
	}
	return NULL;
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

const char *json_slice_next(const char *array, size_t length, size_t *offset, size_t *ret_length)
{
	struct scan scan = {array + *offset, array + length};
	const char *begin;

	if (!take(&scan, *offset == 0 ? '[' : ','))
		return NULL;
	begin = take_value(&scan, ret_length);
	*offset = (size_t)(scan.at - array);
	return *ret_length > 0 ? begin : NULL;
}

/* --- numbers of any size -------------------------------------------------------------------- */

static const char number_letters[] = "+-.0123456789eE";

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

/* Is all of it one number, as JSON has them? What is behind it is no digit. */
static bool is_number(const char *at, const char *end)
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

/* Puts a number that is large in the place of one that no double holds. */
static void tame_number(char *begin, char *end)
{
	static const char large[] = "9e99";
	size_t length = (size_t)(end - begin);
	char *behind;

	if (length <= sizeof large - 1 || !is_number(begin, end) ||
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

	if (value || json_error_code(ret_why) != json_error_numeric_overflow)
		return value;
	tame = xmalloc(length + 1);
	memcpy(tame, text, length);
	tame[length] = '\0';
	for (struct scan scan = {tame, tame + length}; scan.at < scan.end;) {
		char *begin = tame + (scan.at - tame);
		size_t run = is_digit(*begin) || *begin == '-' ? strspn(begin, number_letters) : 0;

		tame_number(begin, begin + run);
		scan.at += run > 0 ? run : 1;
		if (*begin == '"')
			skip_string(&scan);
	}
	return json_loadb(tame, length, flags, ret_why);
}

size_t json_longest(const char *text, size_t length)
{
	enum { MOST = 1 << 20 }; /* of an exponent; more than anybody takes */
	struct scan scan = {text, text + length};
	size_t longest = 0;

	while (scan.at < scan.end) {
		const char *begin = scan.at++;

		if (*begin == '"')
			skip_string(&scan);
		if (strchr(" \t\r\n", *begin))
			continue;
		longest += (size_t)(scan.at - begin) + (*begin == ',' || *begin == ':');
		if (toupper((unsigned char)*begin) != 'E' || !is_digit(begin[-1]))
			continue;
		scan.at += *scan.at == '+' || *scan.at == '-';
		int64_t exponent = strtoll(scan.at, NULL, 10);
		longest += (size_t)(exponent < MOST ? exponent : MOST);
	}
	return longest;
}
