#pragma once
/* Prints ids of the look-back, as text for people and as JSON for programs. */
#include "lookback_selection.h"
#include "text.h"

/* One line. */
void lookback_add_row(struct text *out, const struct pg_result *rows, int i);
json_t *lookback_row_json(const struct pg_result *rows, int i);

/* A value under its name in an object. */
struct lookback_field {
	const char *name;
	int column;
};
/* A list of them ends with a row without a name. */
void lookback_add_json(
    json_t *object, const struct lookback_field *fields, const struct pg_result *rows, int i);
