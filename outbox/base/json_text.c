#include "json_text.h"

#include <stdint.h>
#include <string.h>
#include "hex.h"
#include "text.h"

enum { DEEPEST = 2048, UTF8_MOST = 4 };

struct scan {
	const char *at, *end;
	int depth;
	size_t values;
	struct json_limits limits;
	enum json_verdict verdict; /* says which limit the text exceeds */
};

static bool take_spaced_value(struct scan *scan);

static bool take_char(struct scan *scan, char wanted)
{
	if (scan->at == scan->end || *scan->at != wanted)
		return false;
	scan->at++;
	return true;
}

static void skip_json_blanks(struct scan *scan)
{
	while (scan->at < scan->end &&
	       (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
		scan->at++;
}

static bool take_word(struct scan *scan, const char *word, size_t length)
{
	if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
		return false;
	scan->at += length;
	return true;
}

/* Takes one digit or more. */
static bool take_digits(struct scan *scan)
{
	const char *first = scan->at;

	while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
		scan->at++;
	return scan->at > first;
}

static bool take_number(struct scan *scan)
{
	take_char(scan, '-');
	/* A leading zero ends the integer part: JSON has no 007. */
	if (!take_char(scan, '0') && !take_digits(scan))
		return false;
	if (take_char(scan, '.') && !take_digits(scan))
		return false;
	if (!take_char(scan, 'e') && !take_char(scan, 'E'))
		return true;
	if (!take_char(scan, '+'))
		take_char(scan, '-');
	return take_digits(scan);
}

static bool take_hex(struct scan *scan, unsigned *ret_unit)
{
	*ret_unit = 0;
	for (int i = 0; i < 4; i++, scan->at++) {
		int digit = scan->at < scan->end ? hex_digit(*scan->at) : -1;

		if (digit < 0)
			return false;
		*ret_unit = *ret_unit << 4 | (unsigned)digit;
	}
	return true;
}

/* Takes the rest of an escape, after the backslash. */
static bool take_escape(struct scan *scan)
{
	unsigned unit, second;

	/* strchr would match a NUL with the end of its list. */
	if (scan->at == scan->end || !*scan->at)
		return false;
	if (!take_char(scan, 'u'))
		return strchr("\"\\/bfnrt", *scan->at++);
	if (!take_hex(scan, &unit))
		return false;
	if (unit < 0xd800 || unit > 0xdfff)
		return true;
	/* Half of a surrogate pair is no character. */
	return unit < 0xdc00 && take_word(scan, "\\u", 2) && take_hex(scan, &second) &&
	       second >= 0xdc00 && second <= 0xdfff;
}

static bool take_utf8(struct scan *scan)
{
	size_t left = (size_t)(scan->end - scan->at);
	char sequence[UTF8_MOST + 1] = {0};
	uint32_t code;
	int length;

	/* text_utf8 stops at a NUL: the copy has one behind a sequence that the end cuts off. */
	memcpy(sequence, scan->at, left < UTF8_MOST ? left : UTF8_MOST);
	length = text_utf8(sequence, &code);
	scan->at += length;
	return length > 0;
}

/* Takes the rest of a string, after the opening quote. */
static bool take_string(struct scan *scan)
{
	while (scan->at < scan->end) {
		unsigned char next = (unsigned char)*scan->at;

		if (next < ' ')
			return false;
		if (next >= 0x80) {
			if (!take_utf8(scan))
				return false;
			continue;
		}
		scan->at++;
		if (next == '"')
			return true;
		if (next == '\\' && !take_escape(scan))
			return false;
	}
	return false;
}

static bool take_member(struct scan *scan)
{
	skip_json_blanks(scan);
	if (!take_char(scan, '"') || !take_string(scan))
		return false;
	skip_json_blanks(scan);
	return take_char(scan, ':') && take_spaced_value(scan);
}

/* Takes the rest of an object or array, after the opening bracket. */
static bool take_list(struct scan *scan, bool (*take_one)(struct scan *scan), char closing)
{
	skip_json_blanks(scan);
	if (take_char(scan, closing))
		return true;
	do
		if (!take_one(scan))
			return false;
	while (take_char(scan, ','));
	return take_char(scan, closing);
}

static bool take_bare_value(struct scan *scan)
{
	if (scan->at == scan->end)
		return false;

	switch (*scan->at) {
	case '{':
		scan->at++;
		return take_list(scan, take_member, '}');
	case '[':
		scan->at++;
		return take_list(scan, take_spaced_value, ']');
	case '"':
		scan->at++;
		return take_string(scan);
	case 't':
		return take_word(scan, "true", 4);
	case 'f':
		return take_word(scan, "false", 5);
	case 'n':
		return take_word(scan, "null", 4);
	default:
		return take_number(scan);
	}
}

/* Takes a value with the blanks around it. */
static bool take_spaced_value(struct scan *scan)
{
	bool taken;

	/* Each level is a call on the stack, so a deep text could end the process. */
	if (++scan->depth > scan->limits.depth || ++scan->values > scan->limits.values) {
		scan->verdict =
		    scan->depth > scan->limits.depth ? JSON_TOO_DEEP : JSON_TOO_MANY_VALUES;
		return false;
	}
	skip_json_blanks(scan);
	taken = take_bare_value(scan);
	skip_json_blanks(scan);
	scan->depth--;
	return taken;
}

enum json_verdict json_text_check(
    const void *bytes, size_t length, const struct json_limits *limits, size_t *ret_at)
{
	struct scan scan = {.at = bytes,
	    .end = (const char *)bytes + length,
	    .limits = *limits,
	    .verdict = JSON_MALFORMED};
	bool well = length > 0 && take_spaced_value(&scan) && scan.at == scan.end;

	*ret_at = length > 0 ? (size_t)(scan.at - (const char *)bytes) : 0;
	return well ? JSON_WELL_FORMED : scan.verdict;
}

bool json_text_is(const void *bytes, size_t length)
{
	static const struct json_limits limits = {.depth = DEEPEST, .values = SIZE_MAX};
	size_t ignored;

	return json_text_check(bytes, length, &limits, &ignored) == JSON_WELL_FORMED;
}
