#pragma once
/* Undecided ids as people and programs read them. */
#include <jansson.h>
#include "pg.h"
#include "text.h"

/* Columns of lookback_list.sql, with which those of lookback_find.sql and lookback_show.sql begin.
 */
enum undecided_column {
	UNDECIDED_TYPE,
	UNDECIDED_ID,
	UNDECIDED_STATE,
	UNDECIDED_SECTION,
	UNDECIDED_PREPARED,
	UNDECIDED_SERVICE,
	UNDECIDED_URL,
	UNDECIDED_ATTEMPTS,
	UNDECIDED_PENDINGS,
	UNDECIDED_NEXT_AT,
	UNDECIDED_EXPIRES,
	UNDECIDED_RESULT,
	UNDECIDED_ERROR,
	UNDECIDED_LAST_AT,
	UNDECIDED_COLUMNS
};

/* One line. */
void undecided_add_row(struct text *out, const struct pg_result *rows, int i);
json_t *undecided_row_json(const struct pg_result *rows, int i);

/* A value under its name in an object. */
struct undecided_field {
	const char *name;
	int column;
};
/* A list of them ends with a row without a name. */
void undecided_add_json(
    json_t *object, const struct undecided_field *fields, const struct pg_result *rows, int i);
