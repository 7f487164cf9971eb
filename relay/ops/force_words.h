#pragma once
/* Words such as "owned,last": the checks that an operator wants to skip. */
#include "errors.h"

/*
 * Is each word one of `known`, which ends with NULL? An empty text has no word. option: the name
 * that the operator used, for the error.
 */
bool force_words_check(
    const char *option, const char *force, const char *const *known, struct err *err) MUST_CHECK;
bool force_words_have(const char *force, const char *word);
