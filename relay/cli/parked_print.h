#pragma once
/* Parked rows as people and programs read them. */
#include <jansson.h>
#include "pg.h"
#include "text.h"

/* Columns of parked_list.sql, with which those of parked_show.sql begin. */
enum parked_column {
	PARKED_ID,
	PARKED_TOPIC,
	PARKED_KEY, /* hexadecimal */
	PARKED_STATE,
	PARKED_ATTEMPTS,
	PARKED_NEXT_AT,
	PARKED_ERROR,
	PARKED_SINCE,
	PARKED_REQUEST,
	PARKED_REQUEST_ID,
	PARKED_COLUMNS
};

/*
 * Bytes given in hexadecimal, as text when they are UTF-8 that a terminal shows as it is (`lines`:
 * line ends and tabs count as such), else as \x00ff; text that begins with \x is shown so as well.
 * So a key is what key= takes. The caller frees.
 */
char *parked_bytes(const char *hex, bool lines, bool *ret_is_text);

/* Text of others on one line, without what would steer a terminal. */
void parked_add_line(struct text *out, const char *line);

/* One line. */
void parked_add_row(struct text *out, const struct pg_result *rows, int i);
json_t *parked_row_json(const struct pg_result *rows, int i);
/* The value of a column, null when it is. */
json_t *parked_json_text(const struct pg_result *rows, int i, int column);
