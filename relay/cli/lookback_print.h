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
 * The end of a list: how many ids of each state there are, as text or as the end of the object,
 * ],"totals":{…},"exact":true}
 */
struct lookback_listed {
	struct lookback_totals totals;
	int64_t shown[LOOKBACK_STATES]; /* rows that were listed, by state */
	bool complete;                  /* the list was not cut: these are all rows */
	bool undecided;                 /* it has those that are not due yet */
	bool chosen;                    /* options selected among the ids */
};
void lookback_listed_add(struct lookback_listed *listed, const char *state);
void lookback_print_totals(const struct lookback_listed *listed, bool json);
