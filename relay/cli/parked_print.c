#include "parked_print.h"

#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
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

void parked_print_end_json(const json_t *requests, const struct parked_totals *totals)
{
	field_print_json("\n],\"requests\":", json_incref((json_t *)requests), JSON_COMPACT, "");
	printf(",\"totals\":{");
	for (int i = 0; i < PARKED_STATES; i++)
		printf(
		    "%s\"%s\":\"%" PRId64 "\"", i ? "," : "", parked_states[i], totals->counts[i]);
	printf("},\"exact\":%s}\n", totals->exact ? "true" : "false");
}

/* As parked_open_requests makes it. */
static void print_open_request(const json_t *request)
{
	const json_t *filter = json_object_get(request, "filter");
	owned_text char *chosen =
	    json_object_size(filter) > 0 ? json_dumps(filter, 0) : xstrdup("--all");
	bool retry = text_equal(field_member(request, "verb"), "retry");
	OWNED(text_finish) struct text line = {0};

	text_addf(&line, "request %s, %s %s: %s of about %s rows looked at, %s %s",
	    field_member(request, "id"), field_member(request, "verb"), chosen,
	    field_member(request, "looked_at"), field_member(request, "about"),
	    field_member(request, "done"), retry ? "retried" : "skipped");
	if (retry)
		text_addf(&line, ", of which %s were published and %s refused again",
		    field_member(request, "published"), field_member(request, "refused"));
	text_addf(
	    &line, "; by %s at %s: ", field_member(request, "who"), field_member(request, "at"));
	text_add_line(&line, field_member(request, "reason"));
	puts(text_string(&line));
}

static void print_parked_totals(
    const char *publisher, bool chosen, int64_t shown, const struct parked_totals *totals)
{
	int64_t total = 0;

	for (int i = 0; i < PARKED_STATES; i++)
		total += totals->counts[i];
	if (total == 0 && totals->exact) {
		printf("nothing%s is parked in publisher %s\n", chosen ? " that matches" : "",
		    publisher);
		return;
	}
	printf("%s%" PRId64 " parked in publisher %s:", totals->exact ? "" : "at least ", total,
	    publisher);
	for (int i = 0; i < PARKED_STATES; i++)
		printf(" %" PRId64 " %s%s", totals->counts[i], parked_states[i],
		    i < PARKED_STATES - 1 ? "," : "");
	if (shown < total || !totals->exact)
		printf("; %" PRId64 " of them are shown", shown);
	puts("");
}

void parked_print_end(const char *publisher, bool chosen, int64_t shown, const json_t *requests,
    const struct parked_totals *totals)
{
	const json_t *request;
	size_t i;

	print_parked_totals(publisher, chosen, shown, totals);
	json_array_foreach(requests, i, request)
	{
		print_open_request(request);
	}
}

/* --- one row --------------------------------------------------------------------------------- */

/* A member as text: numbers and objects as JSON. NULL: it is null. The caller frees. */
static char *parked_member_text(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (json_is_string(value))
		return xstrdup(json_string_value(value));
	return json_is_null(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
}

static void print_queue(const json_t *shown)
{
	const json_t *head = json_object_get(shown, "waits_behind");
	const char *error = json_string_value(json_object_get(head, "error"));
	owned_text char *behind = xformat("id %s (%s), with %s between them; error: %s",
	    field_member(head, "id"), field_member(head, "state"),
	    field_member(head, "rows_between"), error ? error : "none");

	if (json_is_object(head))
		field_print("waits behind", behind);
	field_print("behind it", field_member(shown, "rows_behind"));
}

static void print_parked_fields(const json_t *shown)
{
	static const char *const fields[][2] = {{"topic", "topic"}, {"shard", "shard"},
	    {"partition", "partition"}, {"state", "state"}, {"attempts", "attempts"},
	    {"next attempt", "next_at"}, {"error", "error"}, {"parked", "parked_at"},
	    {"created", "created_at"}, {"event id", "event_id"}, {"requested", "request"},
	    {"headers", "headers"}};
	const char *key = json_string_value(json_object_get(shown, "key"));
	const char *payload = json_string_value(json_object_get(shown, "payload"));

	printf("id %s, parked in publisher %s\n", field_member(shown, "id"),
	    field_member(shown, "publisher"));
	field_print("key", key ? key : "none");
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		owned_text char *value = parked_member_text(shown, fields[i][1]);

		if (value)
			field_print(fields[i][0], value);
	}

	print_queue(shown);
	field_print_audit(json_object_get(shown, "requests"));
	field_payload_print(&(struct field_payload){.form = field_member(shown, "payload_form"),
	    .shown = (char *)payload,
	    .bytes = (size_t)field_number(shown, "payload_bytes")});
}

void parked_print_shown(const struct call *call, json_t *shown)
{
	if (call_flag(call, "json")) {
		field_print_json("", shown, JSON_COMPACT, "\n");
		return;
	}
	print_parked_fields(shown);
	json_decref(shown);
}
