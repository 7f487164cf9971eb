#include "json_slice.h"

#include <stdbool.h>
#include <string.h>

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

/* To the comma or brace behind it: those within it are in strings, or deeper. */
static void skip_value(struct scan *scan)
{
	for (int depth = 0; scan->at < scan->end;) {
		char next = *scan->at;

		if (depth == 0 && (next == ',' || next == '}'))
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
		skip_blanks(&scan);
		begin = scan.at;
		skip_value(&scan);
		if (found) {
			while (scan.at > begin && strchr(" \t\r\n", scan.at[-1]))
				scan.at--;
			*ret_length = (size_t)(scan.at - begin);
			return begin;
		}
		if (!take(&scan, ','))
			return NULL;
	}
	return NULL;
}
