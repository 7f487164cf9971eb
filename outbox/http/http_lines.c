#include "http_lines.h"
#include <curl/curl.h>
#include <string.h>

void http_lines_add(struct text *lines, const char *line, size_t length)
{
	const char *colon = memchr(line, ':', length);
	const char *end = line + length, *value;

	/* A NUL would split the text in two, and later names would be taken for values. */
	if (!colon || colon == line || *line == ' ' || *line == '\t' || memchr(line, '\0', length))
		return;
	value = colon + 1;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	while (end > value && strchr(" \t\r\n", end[-1]))
		end--;
	text_append(lines, line, (size_t)(colon - line));
	text_append(lines, "", 1);
	text_append(lines, value, (size_t)(end - value));
	text_append(lines, "", 1);
}

const char *http_lines_find(const struct text *lines, size_t from, const char *name)
{
	const char *at = text_string(lines) + from;
	const char *end = text_string(lines) + lines->length;

	while (at < end) {
		const char *value = at + strlen(at) + 1;
		if (strcasecmp(at, name) == 0)
			return value;
		at = value + strlen(value) + 1;
	}
	return NULL;
}

/* A date of HTTP begins with the name of a day and contains a time; libcurl accepts more forms. */
static bool is_date(const char *text)
{
	return (*text >= 'A' && *text <= 'Z') && strchr(text, ':') && strchr(text, ' ');
}

int64_t http_lines_retry_after_ms(const char *text, int64_t wall_us)
{
	static const int64_t most_s = INT64_MAX / 2000;
	int64_t seconds, left;

	if (!text)
		return -1;

	if (*text >= '0' && *text <= '9')
		return text_to_int64(text, 0, most_s, &seconds) ? seconds * 1000 : -1;
	/* curl_getdate takes years of any length, whose milliseconds would not fit. */
	seconds = is_date(text) ? curl_getdate(text, NULL) : -1;
	if (seconds < 0 || seconds > most_s)
		return -1;
	left = seconds * 1000 - wall_us / 1000;
	return left > 0 ? left : 0;
}
