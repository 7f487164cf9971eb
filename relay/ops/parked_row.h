#pragma once
/* Parked rows as JSON, for commands and the API. */
#include <jansson.h>
#include "pg.h"

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

json_t *parked_row_json(const struct pg_result *rows, int i);
