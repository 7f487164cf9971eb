#include "parked_row.h"

#include "field_json.h"

json_t *parked_row_json(const struct pg_result *rows, int i)
{
	static const struct field_column texts[] = {{"id", PARKED_ID}, {"topic", PARKED_TOPIC},
	    {"state", PARKED_STATE}, {"next_at", PARKED_NEXT_AT}, {"error", PARKED_ERROR},
	    {"parked_at", PARKED_SINCE}, {"request", PARKED_REQUEST},
	    {"request_id", PARKED_REQUEST_ID}};
	json_t *object = FIELD_JSON_TEXTS(rows, i, texts);

	json_object_set_new(object, "key", field_json_bytes(rows, i, PARKED_KEY));
	json_object_set_new(object, "attempts", json_integer(pg_int(rows, i, PARKED_ATTEMPTS)));
	return object;
}
