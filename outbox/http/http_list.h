#pragma once
/* Configured lists: entries separated by commas or white space. */
#include <string.h>

/* Returns the next entry and moves *at behind it; NULL at the end. The caller frees the entry. */
static inline char *http_list_next(const char **at)
{
	static const char separators[] = ", \t\r\n";
	const char *begin = *at + strspn(*at, separators);
	size_t length = strcspn(begin, separators);

	*at = begin + length;
	return length ? strndup(begin, length) : NULL;
}
