#include "spec_words.h"

#include <string.h>

bool spec_word_next(char **rest, char **ret_word, struct err *err)
{
	char *from = *rest + strspn(*rest, " \t"), *to = from;
	bool quoted = false;

	*ret_word = *from ? from : NULL;
	for (; *from && (quoted || !strchr(" \t", *from)); from++) {
		if (*from != '"')
			*to++ = *from;
		/* Within quotes, two quotes are one. */
		else if (quoted && from[1] == '"')
			*to++ = *from++;
		else
			quoted = !quoted;
	}
	if (quoted)
		return err_set(err, ERR_CONFIG, "a quote in the line has no end");

	*rest = *from ? from + 1 : from;
	*to = '\0';
	return true;
}

const char *spec_word_shown(const char *word)
{
	return strchr(word, '@') || strcasestr(word, "passw") ? "(hidden)" : word;
}
