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

void lookback_listed_add(struct lookback_listed *listed, const char *state)
{
	for (int i = 0; i < LOOKBACK_STATES; i++)
		listed->shown[i] += text_equal(state, lookback_states[i]);
}

/* Ids that are not due yet are counted only if the call selected them. */
static int counted_states(const struct lookback_listed *listed)
{
	return listed->undecided ? LOOKBACK_STATES : LOOKBACK_STATES - 1;
}

/* More rows than were counted may have been listed, and the list may have reached its end. */
static struct lookback_totals known_totals(const struct lookback_listed *listed)
{
	struct lookback_totals totals = listed->totals;

	if (totals.exact)
		return totals;
	for (int i = 0; i < LOOKBACK_STATES; i++)
		if (listed->complete || totals.counts[i] < listed->shown[i])
			totals.counts[i] = listed->shown[i];
	totals.exact = listed->complete;
	return totals;
}

static void print_totals_json(const struct lookback_totals *totals, int states)
{
	printf("\n],\"totals\":{");
	for (int i = 0; i < states; i++)
		printf("%s\"%s\":\"%" PRId64 "\"", i ? "," : "", lookback_states[i],
		    totals->counts[i]);
	printf("},\"exact\":%s}\n", totals->exact ? "true" : "false");
}

void lookback_print_totals(const struct lookback_listed *listed, bool json)
{
	const struct lookback_totals totals = known_totals(listed);
	const int states = counted_states(listed);
	int64_t total = 0, shown = 0;

	if (json)
		return print_totals_json(&totals, states);
	for (int i = 0; i < states; i++) {
		total += totals.counts[i];
		shown += listed->shown[i];
	}
	if (total == 0 && totals.exact) {
		printf("nothing%s is %s\n", listed->chosen ? " that matches" : "",
		    listed->undecided ? "undecided" : "overdue or parked");
		return;
	}
	for (int i = 0; i < states; i++)
		printf("%s%" PRId64 " %s",
		    i              ? ", "
		    : totals.exact ? ""
				   : "at least ",
		    totals.counts[i], lookback_states[i]);
	if (listed->undecided)
		printf(" and not due");
	if (shown < total || !totals.exact)
		printf("; %" PRId64 " of them are shown", shown);
	puts("");
}
