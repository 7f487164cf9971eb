#pragma once
/* What a parser that builds values is too slow for. */
#include <stdbool.h>
#include <stddef.h>

/*
 * The bytes are one JSON text: RFC 8259, in UTF-8, without lone surrogates, at most 2048 values
 * deep. So jansson says too, except that it takes no number beyond
 * a double and no \u0000 in a name, and a NUL for the end.
 */
bool json_text_is(const void *bytes, size_t length);
