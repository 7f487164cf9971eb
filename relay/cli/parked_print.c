#include "parked_print.h"

#include "cleanup.h"
#include "field.h"

void parked_add_row(struct text *out, const struct pg_result *rows, int i)
{
	bool is_text;
	owned_text char *key = pg_is_null(rows, i, PARKED_KEY)
				   ? xstrdup("-")
				   : field_bytes(pg_value(rows, i, PARKED_KEY), false, &is_text);

	text_addf(out, "id %s  %s  key=%s  %s  attempts=%s  next=%s  parked=%s  request=%s  error=",
	    pg_value(rows, i, PARKED_ID), pg_value(rows, i, PARKED_TOPIC), key,
	    pg_value(rows, i, PARKED_STATE), pg_value(rows, i, PARKED_ATTEMPTS),
	    field_or_dash(rows, i, PARKED_NEXT_AT), pg_value(rows, i, PARKED_SINCE),
	    field_or_dash(rows, i, PARKED_REQUEST));
	text_add_line(out, field_or_dash(rows, i, PARKED_ERROR));
	text_add(out, "\n");
}

json_t *parked_row_json(const struct pg_result *rows, int i)
{
	static const struct {
		const char *name;
		enum parked_column column;
	} texts[] = {{"id", PARKED_ID}, {"topic", PARKED_TOPIC}, {"state", PARKED_STATE},
	    {"next_at", PARKED_NEXT_AT}, {"error", PARKED_ERROR}, {"parked_at", PARKED_SINCE},
	    {"request", PARKED_REQUEST}, {"request_id", PARKED_REQUEST_ID}};
	json_t *object = json_object();

	for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
		json_object_set_new(
		    object, texts[k].name, field_json(rows, i, (int)texts[k].column));
	json_object_set_new(object, "key", field_json_bytes(rows, i, PARKED_KEY));
	json_object_set_new(object, "attempts", json_integer(pg_int(rows, i, PARKED_ATTEMPTS)));
	return object;
}
