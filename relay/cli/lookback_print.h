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

/*
 * How many ids of each state there are. undecided: those that are not due yet were counted as well.
 * chosen: options selected among the ids.
 */
enum { LOOKBACK_STATES = 3 };
extern const char *const lookback_states[LOOKBACK_STATES];
void lookback_print_totals(
    const int64_t counts[LOOKBACK_STATES], bool undecided, bool chosen, int64_t shown);
/* The end of a list and of its object: ],"totals":{…}} */
void lookback_print_totals_json(const int64_t counts[LOOKBACK_STATES], bool undecided);
