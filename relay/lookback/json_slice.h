#pragma once
/* Functions on JSON text that jansson lacks. */
#include <jansson.h>
#include <stddef.h>
#include "errors.h"
#include "json_text.h"

/*
 * The text of one member of a JSON object, as it was written. A parser must have accepted the text
 * as JSON already; text behind its object is ignored. The result points into the text, without the
 * blanks around the member. NULL: there is no member of this name. A name has only letters, digits,
 * _ and -.
 */
const char *json_slice(const char *text, size_t length, const char *name, size_t *ret_length);

/* The text of one member: its name with quotes and escapes, and its value without blanks around. */
struct json_member {
	const char *name, *value;
	size_t name_length, value_length;
};

/*
 * The next member of an object; *offset is 0 at first, and moved on. False: there is none. The text
 * was checked, as for json_slice.
 */
bool json_member_next(
    const char *object, size_t length, size_t *offset, struct json_member *ret_member);
bool json_member_is(const struct json_member *member, const char *name);

/*
 * Is this one JSON text within the limits? Refuses with bad_json or too_complex, the line, the
 * column and the limit. Nothing is built of the text, however large it is.
 */
bool json_check(
    const char *text, size_t length, const struct json_limits *limits, struct refusal *ret_refusal);

/* A string that holds \u0000, which JSON allows and PostgreSQL does not take. */
bool json_has_nul(const json_t *value);

/*
 * The first number that jsonb does not take, whose numeric has at most 131,072 digits before the
 * point and 16,383 behind it. NULL: there is none. The text was checked.
 */
const char *json_unstorable_number(const char *text, size_t length, size_t *ret_length);

/*
 * A header's value as outbox.message takes it: text as it is, when it is text for jsonb as well,
 * else {"base64": …}; NULL is null. The caller has the reference.
 */
json_t *json_bytes(const void *bytes, size_t length);

/*
 * The same JSON text with each character beyond ASCII as itself and not as an escape, which
 * PostgreSQL reads in some encodings only. The text was checked, and has no lone surrogates. The
 * caller frees it; it ends with a NUL.
 */
char *json_without_escapes(const char *text, size_t length);

/*
 * The next element of an array; *offset is 0 at first, and moved on. NULL: there is none.
 */
const char *json_slice_next(const char *array, size_t length, size_t *offset, size_t *ret_length);

/*
 * Reads the text with json_loadb. The caller has bounded its size and depth with json_check. An
 * object must not have two members of one name; strings may hold \u0000. Numbers become doubles. A
 * number that no double can hold becomes another large one; numbers that are passed on are
 * therefore taken from the text. NULL: the text is no JSON, or an object has a name twice.
 */
json_t *json_read(const char *text, size_t length, json_error_t *ret_why);
