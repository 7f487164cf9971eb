#include "commit_text.h"

#include <stdio.h>
#include <string.h>
#include "text.h"

static const char form[] = "inbox1:";
enum { FORM = sizeof form - 1 };
_Static_assert(FORM + 1 == COMMIT_TEXT_FORM, "and the colon behind FINISHED");

bool commit_text_parse(char *text, const char **ret_finished, const char **ret_mark)
{
	char *colon = text_starts(text, form) ? strchr(text + FORM, ':') : NULL;
	*ret_finished = *ret_mark = "";
	if (!colon)
		return text[0] == '\0';
	*colon = '\0';
	*ret_finished = text + FORM;
	*ret_mark = colon + 1;
	return true;
}

size_t commit_text_write(
    const struct offsets *offsets, const char *mark, char ret_text[COMMIT_TEXT_SIZE])
{
	size_t around = FORM + 1 + strlen(mark), needed;
	memcpy(ret_text, form, FORM);
	size_t length = offsets_text(offsets, ret_text + FORM, COMMIT_TEXT_SIZE - around, &needed);
	snprintf(ret_text + FORM + length, COMMIT_TEXT_SIZE - FORM - length, ":%s", mark);
	if (length == 0 && !mark[0])
		ret_text[0] = '\0';
	return around + needed;
}

bool commit_text_is_full(bool was_full, size_t needed, size_t mark_length)
{
	size_t finished = needed - COMMIT_TEXT_FORM - mark_length;
	size_t limit = (COMMIT_TEXT_MARK - mark_length) * 3 / 4;
	return finished > (was_full ? limit / 2 : limit);
}
