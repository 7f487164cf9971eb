#pragma once
/* What jansson does not do. */
#include <jansson.h>
#include <stddef.h>

/*
 * The text of one member of a JSON object, as it was written. The text is JSON that a parser has
 * taken already; what is behind its object is not looked at. Points into the text, without the
 * blanks around. NULL: there is no member of this name.
 */
const char *json_slice(const char *text, size_t length, const char *name, size_t *ret_length);

/*
 * A header's value as outbox.message takes it: text as it is, when it is text for jsonb as well,
 * else {"base64": …}; NULL is null. The caller has the reference.
 */
json_t *json_bytes(const void *bytes, size_t length);

/*
 * The next element of an array; *offset is 0 at first, and moved on. NULL: there is none.
 */
const char *json_slice_next(const char *array, size_t length, size_t *offset, size_t *ret_length);

/*
 * What the text says, as json_loadb reads it: without two members of a name in an object, with
 * \u0000 in strings. Numbers are doubles; one that is too large for that is some other large one,
 * as numbers that are passed on are taken from the text. NULL: it is no JSON, or none of all this.
 */
json_t *json_read(const char *text, size_t length, json_error_t *ret_why);

/*
 * How long the text of a jsonb may be that is made of this one at most: with a blank behind each
 * comma and colon, and numbers without exponents. The text is JSON, of an object or array.
 */
size_t json_longest(const char *text, size_t length);
