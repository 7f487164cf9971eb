#include "json_slice.h"

#include <openssl/evp.h>
#include <stdbool.h>
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

const char *json_slice(const char *text, size_t length, const char *name, size_t *ret_length)
{
	struct scan scan = {text, text + length};

	if (!take(&scan, '{'))
		return NULL;
	while (take(&scan, '"')) {
		const char *begin = scan.at;
		bool found;

		skip_string(&scan);
		found = (size_t)(scan.at - begin) == strlen(name) + 1 &&
			memcmp(begin, name, strlen(name)) == 0;
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
