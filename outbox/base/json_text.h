#pragma once
/* Checks of JSON for which a parser that builds values is too slow. */
#include <stdbool.h>
#include <stddef.h>

/*
 * True: the bytes are one JSON text: RFC 8259, in UTF-8, without lone surrogates, at most 2048
 * values deep. jansson agrees, with three exceptions: it refuses a number beyond a double and a
 * \u0000 in a name, and takes a NUL for the end.
 */
bool json_text_is(const void *bytes, size_t length);

/* Limits of a text; each object, array, string, number, boolean and null is one value. */
struct json_limits {
	int depth;
	size_t values;
};

enum json_verdict { JSON_WELL_FORMED, JSON_MALFORMED, JSON_TOO_DEEP, JSON_TOO_MANY_VALUES };

/*
 * The same check with limits of the caller. It builds nothing, so that a hostile text costs no
 * memory and no more time than its length. *ret_at: the byte at which the check ended.
 */
enum json_verdict json_text_check(
    const void *bytes, size_t length, const struct json_limits *limits, size_t *ret_at);
