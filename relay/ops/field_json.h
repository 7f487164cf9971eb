#pragma once
/* Values of a result as JSON, for commands and the API. */
#include <jansson.h>
#include "pg.h"

/*
 * Bytes given in hexadecimal, as text when they are UTF-8 that a terminal shows as it is (`lines`:
 * line ends and tabs count as such), else as \x00ff; text that begins with \x is shown so as well.
 * So a key is what key= takes. The caller frees.
 */
char *field_bytes(const char *hex, bool lines, bool *ret_is_text);

/* Null when the column is: text, a number, JSON, and bytes in hexadecimal as field_bytes shows
 * them. */
json_t *field_json(const struct pg_result *rows, int i, int column);
json_t *field_json_number(const struct pg_result *rows, int i, int column);
json_t *field_json_parsed(const struct pg_result *rows, int i, int column);
/* The same JSON, in which integers became texts: many readers lose digits of a number beyond 2^53.
 */
json_t *field_json_numbers_as_text(json_t *value);
json_t *field_json_bytes(const struct pg_result *rows, int i, int column);

/* A member of an object, and the column of its value. */
struct field_column {
	const char *name;
	int column;
};
/* A new object with each of these columns as text, or null. */
json_t *field_json_texts(
    const struct pg_result *rows, int i, const struct field_column *columns, size_t count);
#define FIELD_JSON_TEXTS(rows, i, columns)                                                         \
	field_json_texts(rows, i, columns, sizeof(columns) / sizeof *(columns))

struct field_payload {
	const char *form; /* "text", "hex", "null", or "hidden" from this login */
	char *shown;      /* NULL for the last two */
	size_t bytes;
};
/* Reads a payload that is neither null nor hidden. */
void field_payload_read(struct field_payload *payload, const char *hex);
void field_payload_finish(struct field_payload *payload);
void field_payload_add_json(json_t *object, const struct field_payload *payload);

/* Rows of outbox.audit: id, at, who, verb, reason. */
json_t *field_json_audit(const struct pg_result *audit);
