#pragma once
/* Lists as they are configured: entries between commas and white space. */
#include <string.h>

/* The next entry, *at moved behind it; NULL at the end. The caller frees. */
static inline char *http_list_next(const char **at)
{
	static const char separators[] = ", \t\r\n";
	const char *begin = *at + strspn(*at, separators);
	size_t length = strcspn(begin, separators);

	*at = begin + length;
	return length ? strndup(begin, length) : NULL;
}
