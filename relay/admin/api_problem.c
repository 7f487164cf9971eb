#include "api_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "text.h"

struct row {
	const char *code; /* the last part of the type */
	unsigned status;
	const char *title;
};

/* As in docs/reference/api.md. Programs rely on the codes, so a code never changes its meaning. */
static const struct row rows[] = {
    {"bad_json", 400, "The request or message is not a valid JSON object"},
    {"too_complex", 400, "The JSON has too many levels or values"},
    {"missing_field", 400, "A required field is missing"},
    {"wrong_type", 400, "A field has the wrong JSON type"},
    {"bad_value", 400, "A field or argument has a value that is not allowed"},
    {"unknown_field", 400, "The request or message has an unknown field"},
    {"bad_version", 400, "The version of the message is not supported"},
    {"op_mismatch", 400, "The op of the message does not agree with the path"},
    {"bad_batch", 400, "The batch has the wrong form or size"},
    {"unknown_type", 404, "No [lookback] section has the business type"},
    {"topic_not_allowed", 403, "The topic is not allowed for the business type"},
    {"no_route", 404, "The message names no service that the relay could call"},
    {"unknown_service", 404, "The [check] section does not exist"},
    {"service_not_allowed", 403, "The [check] section is not for the business type"},
    {"url_not_allowed", 403, "No [check] section allows the URL"},
    {"expired", 409, "The message would expire before the first call"},
    {"refused_by_broker", 400, "Kafka refused the record"},
    {"several_databases", 400, "The request reaches several databases"},
    {"too_many_keys", 400, "The chosen ids have too many unique keys"},
    {"bad_rules", 400, "The new rules cannot be used"},
    {"bad_request", 400, "The request violates HTTP or a rule of the listener"},
    {"unauthorized", 401, "The request has no valid token"},
    {"session_ended", 401, "The session of this browser has ended"},
    {"forbidden", 403, "The token has no role that allows the request"},
    {"out_of_scope", 403, "The token is not for the section, business type or publisher"},
    {"wrong_origin", 403, "The request comes from a page of another origin"},
    {"wrong_csrf_token", 403, "The request lacks the CSRF token of its session"},
    {"not_found", 404, "The path or the resource does not exist"},
    {"unknown_section", 404, "The section of the configuration does not exist"},
    {"unknown_publisher", 404, "The publisher does not exist"},
    {"method_not_allowed", 405, "The path does not take this method"},
    {"id_taken", 409, "Another message has the id"},
    {"decided_meanwhile", 409, "Another decision came first"},
    {"conflicting_arguments", 409, "The arguments do not go together"},
    {"too_many_bytes", 409, "A text has more bytes than the tables take"},
    {"ambiguous", 409, "The configuration has several, and the request names none"},
    {"changed", 409, "More matches now than the preview showed"},
    {"bad_token", 409, "The token of the preview does not fit the request"},
    {"token_expired", 409, "The token of the preview has expired"},
    {"not_applicable", 409, "The request does not fit the present state"},
    {"owned", 409, "A process owns a shard of the publisher"},
    {"locked", 409, "A lock of the database was not free in time"},
    {"key_held", 409, "An open transaction holds a unique key"},
    {"too_many_streams", 429, "The token has too many streams of events"},
    {"too_large", 413, "The body or record is too large"},
    {"payload_too_large", 413, "The payload is too large for the tables"},
    {"unsupported_media_type", 415, "The body is not plain application/json"},
    {"database_error", 500, "The database refused a query"},
    {"no_acknowledgement", 503, "Kafka did not acknowledge the record in time"},
    {"no_kafka", 503, "Kafka does not answer"},
    {"no_topic", 503, "The look-back topic does not exist"},
    {"no_database", 503, "The database does not answer"},
    {"busy", 503, "The relay is busy"},
    {"ending", 503, "The relay is stopping"},
    {"batch_refused", 400, "All messages of the batch were refused"},
};

static const struct row *find_row(const char *code)
{
	static const struct row unlisted = {"", 400, "The request or message was refused"};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (text_equal(rows[i].code, code))
			return &rows[i];
	return &unlisted;
}

unsigned api_problem_status(const char *code)
{
	return find_row(code)->status;
}

void api_request_id(char id[API_REQUEST_ID])
{
	snprintf(id, API_REQUEST_ID, "%016" PRIx64, (uint64_t)clock_random());
}

json_t *api_text(const char *text)
{
	OWNED(text_finish) struct text whole = {0};
	uint32_t code;
	int step;

	for (; *text; text += step ? step : 1) {
		step = text_utf8(text, &code);
		if (step)
			text_append(&whole, text, (size_t)step);
		else
			text_add(&whole, "\xef\xbf\xbd"); /* U+FFFD */
	}
	return json_string(text_string(&whole));
}

json_t *api_problem(const char *code, unsigned status, const char *detail, const char *request_id)
{
	owned_text char *type = xformat("urn:outbox-relay:problem:%s", code);
	json_t *problem = json_pack("{s:s, s:s, s:i, s:o}", "type", type, "title",
	    find_row(code)->title, "status", (int)status, "detail", api_text(detail));

	if (request_id) {
		owned_text char *instance = xformat("urn:outbox-relay:request:%s", request_id);

		json_object_set_new(problem, "instance", json_string(instance));
	}
	return problem;
}
