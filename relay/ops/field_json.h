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
