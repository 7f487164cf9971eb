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
