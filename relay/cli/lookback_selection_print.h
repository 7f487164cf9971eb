#pragma once
/* Prints ids of the look-back, as text for people and as JSON for programs. */
#include <jansson.h>
#include "pg.h"
#include "text.h"

/* Columns of lookback_list.sql; lookback_find.sql and lookback_show.sql begin with the same. */
enum lookback_selection_column {
	SELECTION_TYPE,
	SELECTION_ID,
	SELECTION_STATE,
	SELECTION_SECTION,
	SELECTION_PREPARED,
	SELECTION_SERVICE,
	SELECTION_URL,
	SELECTION_ATTEMPTS,
	SELECTION_PENDINGS,
	SELECTION_NEXT_AT,
	SELECTION_EXPIRES,
	SELECTION_RESULT,
	SELECTION_ERROR,
	SELECTION_LAST_AT,
	SELECTION_COLUMNS
};

/* One line. */
void lookback_selection_add_row(struct text *out, const struct pg_result *rows, int i);
json_t *lookback_selection_row_json(const struct pg_result *rows, int i);

/* A value under its name in an object. */
struct lookback_selection_field {
	const char *name;
	int column;
};
/* A list of them ends with a row without a name. */
void lookback_selection_add_json(json_t *object, const struct lookback_selection_field *fields,
    const struct pg_result *rows, int i);
