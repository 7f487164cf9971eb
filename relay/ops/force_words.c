#include "force_words.h"

#include <string.h>
#include "cleanup.h"
#include "text.h"

/* The length of the first word of a list; *list moves behind its comma. */
static size_t next_word(const char **list)
{
	size_t length = strcspn(*list, ",");

	*list += length + ((*list)[length] == ',');
	return length;
}

static bool has_word(const char *const *words, const char *word, size_t length)
{
	for (; *words; words++)
		if (strlen(*words) == length && strncmp(*words, word, length) == 0)
			return true;
	return false;
}

bool force_words_check(
    const char *option, const char *force, const char *const *known, struct err *err)
{
	OWNED(text_finish) struct text names = {0};

	for (const char *list = force; *list;) {
		const char *word = list;
		size_t length = next_word(&list);

		if (has_word(known, word, length))
			continue;
		for (; *known; known++)
			text_addf(&names, "%s%s", names.length ? ", " : "", *known);
		return err_set(err, ERR_REJECT, "%s names what is forced (%s), not \"%.*s\"",
		    option, text_string(&names), (int)(length < 60 ? length : 60), word);
	}
	return true;
}

bool force_words_have(const char *force, const char *word)
{
	const char *const words[] = {word, NULL};

	for (const char *list = force; *list;) {
		const char *named = list;

		if (has_word(words, named, next_word(&list)))
			return true;
	}
	return false;
}
