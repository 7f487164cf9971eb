#pragma once
/*
 * The words of a line of a configuration. Blanks separate them. A word, or a part of it, that has
 * blanks is written in double quotes, and a double quote inside is written twice.
 */
#include <stdbool.h>
#include "errors.h"

/*
 * Cuts the next word from *rest, in place; NULL: the end of the line. ERR_CONFIG: a quote has no
 * end.
 */
bool spec_word_next(char **rest, char **ret_word, struct err *err) MUST_CHECK;

/* The word as an error may quote it: "(hidden)" if it may hold a password, as addresses do. */
const char *spec_word_shown(const char *word);
