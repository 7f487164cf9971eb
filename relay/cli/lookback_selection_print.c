#include "lookback_selection_print.h"

#include "cleanup.h"
#include "field.h"

/* Where it is asked: the service that has a name, or else the message's own URL. */
static int asked_at(const struct pg_result *rows, int i)
{
	return pg_is_null(rows, i, UNDECIDED_URL) ? UNDECIDED_SERVICE : UNDECIDED_URL;
}

void undecided_add_row(struct text *out, const struct pg_result *rows, int i)
{
	text_addf(out, "%s ", pg_value(rows, i, UNDECIDED_TYPE));
	field_add_line(out, pg_value(rows, i, UNDECIDED_ID));
	text_addf(out,
	    "  %s  section=%s  prepared=%s  attempts=%s  pending=%s  next=%s  expires=%s  asked=",
	    pg_value(rows, i, UNDECIDED_STATE), field_or_dash(rows, i, UNDECIDED_SECTION),
	    field_or_dash(rows, i, UNDECIDED_PREPARED), pg_value(rows, i, UNDECIDED_ATTEMPTS),
	    pg_value(rows, i, UNDECIDED_PENDINGS), field_or_dash(rows, i, UNDECIDED_NEXT_AT),
	    field_or_dash(rows, i, UNDECIDED_EXPIRES));
	field_add_line(out, field_or_dash(rows, i, asked_at(rows, i)));
	text_addf(out, "  result=%s  error=", field_or_dash(rows, i, UNDECIDED_RESULT));
	field_add_line(out, field_or_dash(rows, i, UNDECIDED_ERROR));
	text_add(out, "\n");
}

void undecided_add_json(
    json_t *object, const struct undecided_field *fields, const struct pg_result *rows, int i)
{
	for (; fields->name; fields++)
		json_object_set_new(object, fields->name, field_json(rows, i, fields->column));
}

json_t *undecided_row_json(const struct pg_result *rows, int i)
{
	static const struct undecided_field fields[] = {{"type", UNDECIDED_TYPE},
	    {"id", UNDECIDED_ID}, {"state", UNDECIDED_STATE}, {"section", UNDECIDED_SECTION},
	    {"prepared_at", UNDECIDED_PREPARED}, {"check_service", UNDECIDED_SERVICE},
	    {"check_url", UNDECIDED_URL}, {"next_at", UNDECIDED_NEXT_AT},
	    {"expires_at", UNDECIDED_EXPIRES}, {"last_result", UNDECIDED_RESULT},
	    {"last_error", UNDECIDED_ERROR}, {"last_at", UNDECIDED_LAST_AT}, {0}};
	json_t *object = json_object();

	undecided_add_json(object, fields, rows, i);
	json_object_set_new(object, "attempts", field_json_number(rows, i, UNDECIDED_ATTEMPTS));
	json_object_set_new(object, "pendings", field_json_number(rows, i, UNDECIDED_PENDINGS));
	return object;
}
