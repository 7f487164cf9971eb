#pragma once
/*
 * The text of one member of a JSON object, as it was written. The text is JSON that a parser has
 * taken already; what is behind its object is not looked at.
 */
#include <stddef.h>

/*
 * Points into the text, without the blanks around. NULL: there is no member whose name is written
 * like this (one written with escapes is not found).
 */
const char *json_slice(const char *text, size_t length, const char *name, size_t *ret_length);
