#include "parked_print.h"

#include <inttypes.h>
#include <stdio.h>
#include "field.h"

void parked_add_row(struct text *out, const json_t *row)
{
	text_addf(out,
	    "id %s  %s  key=%s  %s  attempts=%" JSON_INTEGER_FORMAT
	    "  next=%s  parked=%s  request=%s  error=",
	    field_member(row, "id"), field_member(row, "topic"), field_member(row, "key"),
	    field_member(row, "state"), json_integer_value(json_object_get(row, "attempts")),
	    field_member(row, "next_at"), field_member(row, "parked_at"),
	    field_member(row, "request"));
	text_add_line(out, field_member(row, "error"));
	text_add(out, "\n");
}

void parked_print_totals_json(const int64_t counts[PARKED_STATES])
{
	printf("\n],\"totals\":{");
	for (int i = 0; i < PARKED_STATES; i++)
		printf("%s\"%s\":\"%" PRId64 "\"", i ? "," : "", parked_states[i], counts[i]);
	puts("}}");
}

void parked_print_totals(
    const char *publisher, bool chosen, int64_t shown, const int64_t counts[PARKED_STATES])
{
	int64_t total = 0;

	for (int i = 0; i < PARKED_STATES; i++)
		total += counts[i];
	if (total == 0) {
		printf("nothing%s is parked in publisher %s\n", chosen ? " that matches" : "",
		    publisher);
		return;
	}
	printf("%" PRId64 " parked in publisher %s:", total, publisher);
	for (int i = 0; i < PARKED_STATES; i++)
		printf(" %" PRId64 " %s%s", counts[i], parked_states[i],
		    i < PARKED_STATES - 1 ? "," : "");
	if (shown < total)
		printf("; %" PRId64 " of them are shown", shown);
	puts("");
}
