#include "status_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

json_t *status_int64_json(int64_t number)
{
	char text[24];

	/* as text: many JSON readers lose digits of a number beyond 2^53 */
	snprintf(text, sizeof text, "%" PRId64, number);
	return json_string(text);
}

json_t *status_known_json(int64_t number)
{
	return number < 0 ? json_null() : status_int64_json(number);
}

json_t *status_lines_json(const char *lines)
{
	json_t *list = json_array();

	for (const char *at = lines; *at;) {
		size_t length = strcspn(at, "\n");

		json_array_append_new(list, json_stringn(at, length));
		at += length + (at[length] == '\n');
	}
	return list;
}

json_t *status_shard_json(const struct status_shard *shard)
{
	json_t *object = json_object();

	json_object_set_new(object, "publisher", json_string(shard->publisher));
	json_object_set_new(object, "shard", json_integer(shard->shard));
	json_object_set_new(object, "shards", json_integer(shard->shards));
	json_object_set_new(
	    object, "split_to", shard->split_to ? json_integer(shard->split_to) : json_null());
	json_object_set_new(
	    object, "paused_at", shard->paused_at[0] ? json_string(shard->paused_at) : json_null());
	json_object_set_new(object, "paused_topics", json_loads(shard->paused_topics, 0, NULL));
	json_object_set_new(
	    object, "owner", shard->owner[0] ? json_string(shard->owner) : json_null());
	json_object_set_new(object, "url", shard->url[0] ? json_string(shard->url) : json_null());
	json_object_set_new(object, "identity", json_string(shard->identity));
	json_object_set_new(object, "elsewhere", json_boolean(shard->elsewhere));
	json_object_set_new(
	    object, "unknown", shard->unknown[0] ? json_string(shard->unknown) : json_null());
	json_object_set_new(object, "lease_left_ms", status_int64_json(shard->lease_left_ms));
	json_object_set_new(object, "n", status_int64_json(shard->n));
	json_object_set_new(object, "epoch", status_int64_json(shard->epoch));
	json_object_set_new(object, "open_windows", json_integer(shard->windows));
	json_object_set_new(object, "unpublished", status_known_json(shard->unpublished));
	json_object_set_new(
	    object, "unpublished_exact", json_boolean(shard->unpublished >= 0 && !shard->more));
	json_object_set_new(object, "unpublished_estimated", status_known_json(shard->estimated));
	json_object_set_new(object, "oldest_age_ms", status_known_json(shard->oldest_age_ms));
	return object;
}

json_t *status_parked_json(const struct status_parked *parked)
{
	json_t *object = json_object();

	json_object_set_new(object, "publisher", json_string(parked->publisher));
	json_object_set_new(object, "waiting", status_int64_json(parked->waiting));
	json_object_set_new(object, "dead", status_int64_json(parked->dead));
	json_object_set_new(object, "stalled", status_int64_json(parked->stalled));
	json_object_set_new(object, "paused", status_int64_json(parked->paused));
	json_object_set_new(object, "free", status_int64_json(parked->free));
	json_object_set_new(object, "behind", status_int64_json(parked->behind));
	json_object_set_new(object, "exact", json_boolean(!parked->more));
	json_object_set_new(object, "oldest_age_ms", status_int64_json(parked->oldest_age_ms));
	return object;
}

json_t *status_scheduled_json(const struct status_scheduled *scheduled)
{
	json_t *object = json_object();

	json_object_set_new(object, "publisher", json_string(scheduled->publisher));
	json_object_set_new(object, "rows", status_int64_json(scheduled->rows));
	json_object_set_new(object, "exact", json_boolean(!scheduled->more));
	json_object_set_new(object, "late_ms", status_int64_json(scheduled->late_ms));
	json_object_set_new(object, "next_ms", status_int64_json(scheduled->next_ms));
	return object;
}

json_t *status_lookback_json(const struct status_lookback *lookback)
{
	json_t *object = json_object();

	json_object_set_new(object, "section", json_string(lookback->section));
	json_object_set_new(object, "type", json_string(lookback->type));
	json_object_set_new(object, "overdue", status_int64_json(lookback->overdue));
	json_object_set_new(object, "parked", status_int64_json(lookback->parked));
	json_object_set_new(object, "oldest_age_ms", status_int64_json(lookback->oldest_age_ms));
	json_object_set_new(object, "conflicts", status_int64_json(lookback->conflicts));
	json_object_set_new(object, "unprepared", status_int64_json(lookback->unprepared));
	json_object_set_new(object, "exact", json_boolean(!lookback->more));
	return object;
}
