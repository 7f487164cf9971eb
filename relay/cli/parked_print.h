#pragma once
/* Parked rows as people read them. */
#include "call.h"
#include "parked.h"
#include "parked_row.h"
#include "text.h"

/* One line. row: as parked_row_json makes it. */
void parked_add_row(struct text *out, const json_t *row);

/* How many rows of each state there are. chosen: terms chose among them. */
void parked_print_totals(
    const char *publisher, bool chosen, int64_t shown, const struct parked_totals *totals);
/* The end of a list and of its object: ],"totals":{…},"exact":true} */
void parked_print_totals_json(const struct parked_totals *totals);

/* Everything about a row, or its JSON with --json. Takes over what parked_show made. */
void parked_print_shown(const struct call *call, json_t *shown);
