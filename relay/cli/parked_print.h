#pragma once
/* Parked rows as people read them. */
#include "call.h"
#include "parked.h"
#include "parked_row.h"
#include "text.h"

/* One line. row: as parked_row_json makes it. */
void parked_add_row(struct text *out, const json_t *row);

/*
 * The end of a list: how many rows of each state there are, and the requests in progress, as
 * parked_open_requests makes them. chosen: terms chose among the rows.
 */
void parked_print_end(const char *publisher, bool chosen, int64_t shown, const json_t *requests,
    const struct parked_totals *totals);
/* The end of a list and of its object: ],"requests":[…],"totals":{…},"exact":true} */
void parked_print_end_json(const json_t *requests, const struct parked_totals *totals);

/* Everything about a row, or its JSON with --json. Takes over what parked_show made. */
void parked_print_shown(const struct call *call, json_t *shown);
