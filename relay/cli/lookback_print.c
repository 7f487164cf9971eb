#include "lookback_print.h"

#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "field.h"

/* The service that is called about the id: the named one, or else the message's own URL. */
static int asked_at(const struct pg_result *rows, int i)
{
	return pg_is_null(rows, i, SELECTION_URL) ? SELECTION_SERVICE : SELECTION_URL;
}

void lookback_add_row(struct text *out, const struct pg_result *rows, int i)
{
	text_addf(out, "%s ", pg_value(rows, i, SELECTION_TYPE));
	text_add_line(out, pg_value(rows, i, SELECTION_ID));
	text_addf(out,
	    "  %s  section=%s  prepared=%s  attempts=%s  pending=%s  next=%s  expires=%s  asked=",
	    pg_value(rows, i, SELECTION_STATE), field_or_dash(rows, i, SELECTION_SECTION),
	    field_or_dash(rows, i, SELECTION_PREPARED), pg_value(rows, i, SELECTION_ATTEMPTS),
	    pg_value(rows, i, SELECTION_PENDINGS), field_or_dash(rows, i, SELECTION_NEXT_AT),
	    field_or_dash(rows, i, SELECTION_EXPIRES));

	text_add_line(out, field_or_dash(rows, i, asked_at(rows, i)));
	text_addf(out, "  result=%s  error=", field_or_dash(rows, i, SELECTION_RESULT));
	text_add_line(out, field_or_dash(rows, i, SELECTION_ERROR));
	text_add(out, "\n");
}

void lookback_add_json(
    json_t *object, const struct lookback_field *fields, const struct pg_result *rows, int i)
{
	for (; fields->name; fields++)
		json_object_set_new(object, fields->name, field_json(rows, i, fields->column));
}

json_t *lookback_row_json(const struct pg_result *rows, int i)
{
	static const struct lookback_field fields[] = {{"type", SELECTION_TYPE},
	    {"id", SELECTION_ID}, {"state", SELECTION_STATE}, {"section", SELECTION_SECTION},
	    {"prepared_at", SELECTION_PREPARED}, {"check_service", SELECTION_SERVICE},
	    {"check_url", SELECTION_URL}, {"next_at", SELECTION_NEXT_AT},
	    {"expires_at", SELECTION_EXPIRES}, {"last_result", SELECTION_RESULT},
	    {"last_error", SELECTION_ERROR}, {"last_at", SELECTION_LAST_AT}, {0}};
	json_t *object = json_object();

	lookback_add_json(object, fields, rows, i);
	json_object_set_new(object, "attempts", field_json_number(rows, i, SELECTION_ATTEMPTS));
	json_object_set_new(object, "pendings", field_json_number(rows, i, SELECTION_PENDINGS));
	return object;
}

/* --- totals ---------------------------------------------------------------------------------- */

const char *const lookback_states[LOOKBACK_STATES] = {"overdue", "parked", "undecided"};

/* Ids that are not due yet are counted only if the call selected them. */
static int counted_states(bool undecided)
{
	return undecided ? LOOKBACK_STATES : LOOKBACK_STATES - 1;
}

void lookback_print_totals_json(const int64_t counts[LOOKBACK_STATES], bool undecided)
{
	printf("\n],\"totals\":{");
	for (int i = 0; i < counted_states(undecided); i++)
		printf("%s\"%s\":\"%" PRId64 "\"", i ? "," : "", lookback_states[i], counts[i]);
	puts("}}");
}

void lookback_print_totals(
    const int64_t counts[LOOKBACK_STATES], bool undecided, bool chosen, int64_t shown)
{
	int64_t total = 0;

	for (int i = 0; i < LOOKBACK_STATES; i++)
		total += counts[i];
	if (total == 0) {
		printf("nothing%s is %s\n", chosen ? " that matches" : "",
		    undecided ? "undecided" : "overdue or parked");
		return;
	}
	for (int i = 0; i < counted_states(undecided); i++)
		printf("%s%" PRId64 " %s", i ? ", " : "", counts[i], lookback_states[i]);
	if (undecided)
		printf(" and not due");
	if (shown < total)
		printf("; %" PRId64 " of them are shown", shown);
	puts("");
}
