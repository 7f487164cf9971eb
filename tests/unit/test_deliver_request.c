#include "deliver_request.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct deliver_wire binary = {DELIVER_SINGLE, DELIVER_BINARY, {"", ""}};
static const struct deliver_wire structured = {DELIVER_SINGLE, DELIVER_STRUCTURED, {"", ""}};
static const struct deliver_wire batch = {DELIVER_BATCH, DELIVER_BINARY, {"", ""}};
static const struct deliver_wire named = {
    DELIVER_SINGLE, DELIVER_BINARY, {"https://shop.example", "order.placed"}};

/* --- messages ------------------------------------------------------------------------------- */

static struct outbox_inbox_message message(const char *id, const char *payload)
{
	return (struct outbox_inbox_message){.topic = "shop.orders",
	    .partition = 3,
	    .offset = 42,
	    .time_ms = 1700000000123,
	    .id = id,
	    .id_length = id ? strlen(id) : 0,
	    .payload = payload,
	    .payload_length = payload ? strlen(payload) : 0,
	    .attempt = 2};
}

static struct outbox_rules_header header(const char *name, const char *value)
{
	return (struct outbox_rules_header){name, value, value ? strlen(value) : 0};
}

static struct deliver_request requested(
    const struct deliver_wire *wire, const struct outbox_inbox_message *one)
{
	struct deliver_request request;

	deliver_request_init(&request, wire, &one, 1);
	return request;
}

static const char *find(const struct deliver_request *request, const char *name)
{
	for (size_t i = 0; i < request->header_count; i++)
		if (strcmp(request->headers[i].name, name) == 0)
			return request->headers[i].value;
	return NULL;
}

static json_t *parsed(const struct deliver_request *request)
{
	json_t *body = json_loadb(request->body, request->body_length,
	    JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);

	if (!body)
		fail_msg("%.*s", (int)request->body_length, (const char *)request->body);
	return body;
}

static const char *member(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* --- binary --------------------------------------------------------------------------------- */

static void attributes_of_a_record_that_says_none_follow_from_it(void **state)
{
	struct outbox_inbox_message one = message("7", "{\"a\": 1}");
	struct deliver_request request;

	(void)state;
	one.key = "customer 1";
	one.key_length = 10;
	request = requested(&binary, &one);
	assert_string_equal(find(&request, "ce-specversion"), "1.0");
	assert_string_equal(find(&request, "ce-id"), "7");
	assert_string_equal(find(&request, "ce-source"), "/topics/shop.orders");
	assert_string_equal(find(&request, "ce-type"), "shop.orders");
	assert_string_equal(find(&request, "ce-subject"), "customer%201");
	assert_string_equal(find(&request, "ce-time"), "2023-11-14T22:13:20.123Z");
	assert_string_equal(find(&request, "ce-outboxtopic"), "shop.orders");
	assert_string_equal(find(&request, "ce-outboxpartition"), "3");
	assert_string_equal(find(&request, "ce-outboxoffset"), "42");
	assert_string_equal(find(&request, "ce-outboxattempt"), "2");
	assert_null(find(&request, "ce-outboxtombstone"));
	assert_string_equal(find(&request, "Content-Type"), "application/json");
	assert_string_equal(find(&request, "Accept"), "application/json");
	assert_ptr_equal(request.body, one.payload);
	assert_int_equal(request.body_length, 8);
	assert_string_equal(request.name, "7");
	deliver_request_finish(&request);
}

static void source_and_type_may_be_configured(void **state)
{
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request = requested(&named, &one);

	(void)state;
	assert_string_equal(find(&request, "ce-source"), "https://shop.example");
	assert_string_equal(find(&request, "ce-type"), "order.placed");
	deliver_request_finish(&request);
}

static void what_the_record_says_as_an_event_is_taken_over(void **state)
{
	const struct outbox_rules_header headers[] = {
	    header("ce_specversion", "1.0"),
	    header("ce_id", "old"),
	    header("ce_id", "A-1"),
	    header("ce_source", "/shop"),
	    header("ce_type", "placed"),
	    header("ce_subject", "5 % \"\xe2\x82\xac\""),
	    header("ce_time", "2020-01-01T00:00:00Z"),
	    header("ce_traceparent", "00-1-2-03"),
	    header("content-type", "text/plain; charset=utf-8"),
	};
	struct outbox_inbox_message one = message("7", "{}");
	struct deliver_request request;

	(void)state;
	one.headers = headers;
	one.header_count = sizeof headers / sizeof *headers;
	request = requested(&named, &one);
	assert_string_equal(find(&request, "ce-id"), "A-1");
	assert_string_equal(find(&request, "ce-source"), "/shop");
	assert_string_equal(find(&request, "ce-type"), "placed");
	assert_string_equal(find(&request, "ce-subject"), "5%20%25%20%22%E2%82%AC%22");
	assert_string_equal(find(&request, "ce-time"), "2020-01-01T00:00:00Z");
	assert_string_equal(find(&request, "ce-traceparent"), "00-1-2-03");
	assert_string_equal(find(&request, "Content-Type"), "text/plain; charset=utf-8");
	assert_string_equal(request.ids[0], "A-1");
	deliver_request_finish(&request);
}

static const char *attribute_of(const char *name, const char *value, char made[64])
{
	const struct outbox_rules_header one_header = header(name, value);
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request;
	char wanted[64];

	one.headers = &one_header;
	one.header_count = 1;
	request = requested(&binary, &one);
	snprintf(wanted, sizeof wanted, "ce-%s", name + strlen("ce_"));
	text_copy(made, 64, find(&request, wanted));
	deliver_request_finish(&request);
	return made;
}

static void a_time_that_is_none_is_that_of_the_record(void **state)
{
	static const char *const good[] = {"2020-02-29T23:59:59Z", "0001-01-01T00:00:00.1Z",
	    "9999-12-31T00:00:00.123456789+23:59", "2020-01-01T00:00:00-00:00"};
	static const char *const bad[] = {"yesterday", "2020-01-01", "2020-01-01T00:00:00",
	    "2020-01-01 00:00:00Z", "2020-01-01t00:00:00z", "2021-02-29T00:00:00Z",
	    "2020-13-01T00:00:00Z", "2020-00-01T00:00:00Z", "2020-01-32T00:00:00Z",
	    "2020-01-01T24:00:00Z", "2020-01-01T00:60:00Z", "2016-12-31T23:59:60Z",
	    "2020-01-01T00:00:00.Z", "2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00+24:00",
	    "2020-01-01T00:00:00+0100", "2020-01-01T00:00:00+01:60", "2020-01-01T00:00:00ZZ",
	    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-01:00",
	    "1700000000123", " 2020-01-01T00:00:00Z"};
	char made[64];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_string_equal(attribute_of("ce_time", good[i], made), good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_string_equal(
		    attribute_of("ce_time", bad[i], made), "2023-11-14T22:13:20.123Z");
}

static void a_source_that_is_none_is_the_default(void **state)
{
	static const char *const good[] = {"/shop%20a", "urn:x:1", "https://a.example/?b=%C3%A4#c",
	    "#part", "a/b:c", "./a:b", "//shop.example:80/a", "https://u:p@[2001:db8::1]:443/?q#f",
	    "file:///a", "mailto:a@b.example", "?", "a=1,(b)!*'~", "s3+x.y-z:k"};
	static const char *const bad[] = {"my shop", " /shop", "/shop ", "/100%", "/%zz", "/a%2",
	    "1:foo", "://x", ":", "_a:b", "/b\xc3\xbcro", "<x>", "/a\"b", "/a{b}", "/a|b", "/a\\b",
	    "/a^b", "/a`b", "/a#b#c", "a[b]", "http://[::1", "http://[1]/", "http://[]/",
	    "http://h:port/", "http://h:1:2/", "http://a@b@c/", "http://a%20b/", "http://[::1]x/"};
	char made[64];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_string_not_equal(
		    attribute_of("ce_source", good[i], made), "/topics/shop.orders");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_string_equal(attribute_of("ce_source", bad[i], made), "/topics/shop.orders");
}

static void a_schema_that_is_no_uri_is_left_out(void **state)
{
	static const char *const bad[] = {"a schema", "/schemas/1", "//a/b", "https://a/\xc3\xbc"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const struct outbox_rules_header headers[] = {header("ce_dataschema", bad[i])};
		struct outbox_inbox_message one = message("7", "{}");
		struct deliver_request request;

		one.headers = headers;
		one.header_count = 1;
		request = requested(&binary, &one);
		assert_null(find(&request, "ce-dataschema"));
		deliver_request_finish(&request);
	}
}

static void attributes_of_other_versions_are_left_out(void **state)
{
	const struct outbox_rules_header headers[] = {header("ce_schemaurl", "https://a/b"),
	    header("ce_datacontentencoding", "base64"), header("ce_dataschema", "urn:a:b")};
	struct outbox_inbox_message one = message("7", "{}");
	struct deliver_request request;

	(void)state;
	one.headers = headers;
	one.header_count = 3;
	request = requested(&binary, &one);
	assert_null(find(&request, "ce-schemaurl"));
	assert_null(find(&request, "ce-datacontentencoding"));
	assert_string_equal(find(&request, "ce-dataschema"), "urn:a:b");
	deliver_request_finish(&request);
}

static void a_content_type_that_is_none_is_guessed(void **state)
{
	static const char *const good[] = {"text/plain", "text/plain;charset=utf-8",
	    "application/x.y+z; a=b ; c=\"d; \\\" e\";", "a/b;"};
	static const char *const bad[] = {"json", "a b", "text/", "/plain", "text/plain; charset",
	    "text/plain; charset=", "text/plain, text/html", "text/plain; a=\"b", "text /plain"};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good + sizeof bad / sizeof *bad; i++) {
		bool is_good = i < sizeof good / sizeof *good;
		const char *type = is_good ? good[i] : bad[i - sizeof good / sizeof *good];
		const struct outbox_rules_header headers[] = {header("content-type", type)};
		struct outbox_inbox_message one = message("7", "{}");
		struct deliver_request request;

		one.headers = headers;
		one.header_count = 1;
		request = requested(&binary, &one);
		assert_string_equal(
		    find(&request, "Content-Type"), is_good ? type : "application/json");
		deliver_request_finish(&request);
	}
}

static void headers_that_are_no_attributes_are_left_out(void **state)
{
	const struct outbox_rules_header headers[] = {
	    header("ce_id", ""),
	    header("ce_source", NULL),
	    header("ce_type", "a\nb"),
	    header("ce_subject", "\xff"),
	    header("ce_outboxtopic", "theirs"),
	    header("ce_data", "x"),
	    header("ce_datacontenttype", "x/y"),
	    header("ce_Name", "x"),
	    header("ce_a_b", "x"),
	    header("ce_", "x"),
	    header("authorization", "Bearer x"),
	    header("content-type", "text/plain\r\nX: y"),
	};
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request;

	(void)state;
	one.headers = headers;
	one.header_count = sizeof headers / sizeof *headers;
	request = requested(&binary, &one);
	assert_string_equal(find(&request, "ce-id"), "7");
	assert_string_equal(find(&request, "ce-source"), "/topics/shop.orders");
	assert_string_equal(find(&request, "ce-type"), "shop.orders");
	assert_null(find(&request, "ce-subject"));
	assert_string_equal(find(&request, "ce-outboxtopic"), "shop.orders");
	assert_string_equal(find(&request, "Content-Type"), "application/octet-stream");
	/* specversion, id, source, type, time, four of ours; content type, accept */
	assert_int_equal(request.header_count, 11);
	deliver_request_finish(&request);
}

static void an_event_of_another_version_is_not_taken_for_one(void **state)
{
	const struct outbox_rules_header headers[] = {
	    header("ce_specversion", "0.3"), header("ce_id", "old")};
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request;

	(void)state;
	one.headers = headers;
	one.header_count = 2;
	request = requested(&binary, &one);
	assert_string_equal(find(&request, "ce-specversion"), "1.0");
	assert_string_equal(find(&request, "ce-id"), "7");
	deliver_request_finish(&request);
}

static void no_more_attributes_are_taken_than_a_server_takes_headers(void **state)
{
	struct outbox_rules_header headers[500];
	char names[500][20];
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request;

	(void)state;
	for (int i = 0; i < 500; i++) {
		snprintf(names[i], sizeof names[i], "ce_a%d", i);
		headers[i] = header(names[i], "x");
	}
	one.headers = headers;
	one.header_count = 500;
	request = requested(&binary, &one);
	assert_true(request.header_count < 80);
	assert_string_equal(find(&request, "ce-id"), "7");
	deliver_request_finish(&request);
}

static void a_redelivered_record_says_where_its_message_was_first(void **state)
{
	const struct outbox_rules_header headers[] = {
	    header("outbox-origin-topic", "first"),
	    header("outbox-origin-partition", "9"),
	    header("outbox-origin-offset", "1000"),
	    header("outbox-origin-time", "0"),
	};
	struct outbox_inbox_message one = message(NULL, "x"), first = message(NULL, "x");
	struct deliver_request request, other;

	(void)state;
	one.headers = headers;
	one.header_count = 4;
	request = requested(&binary, &one);
	assert_string_equal(find(&request, "ce-source"), "/topics/first");
	assert_string_equal(find(&request, "ce-outboxtopic"), "first");
	assert_string_equal(find(&request, "ce-outboxpartition"), "9");
	assert_string_equal(find(&request, "ce-outboxoffset"), "1000");
	assert_string_equal(find(&request, "ce-time"), "1970-01-01T00:00:00.000Z");
	/* the same as at the first try */
	first.topic = "first";
	first.partition = 9;
	first.offset = 1000;
	other = requested(&binary, &first);
	assert_string_equal(find(&request, "ce-id"), find(&other, "ce-id"));
	deliver_request_finish(&request);
	deliver_request_finish(&other);
}

static void a_redelivered_record_that_says_nonsense_hurts_nobody(void **state)
{
	const struct outbox_rules_header headers[] = {
	    header("outbox-origin-partition", "x\"y"),
	    header("outbox-origin-time", "-5"),
	};
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request;
	json_t *event;

	(void)state;
	one.headers = headers;
	one.header_count = 2;
	request = requested(&structured, &one);
	event = parsed(&request);
	assert_null(json_object_get(event, "outboxpartition"));
	assert_null(json_object_get(event, "time"));
	json_decref(event);
	deliver_request_finish(&request);
}

static void an_origin_with_leading_zeros_becomes_a_number_of_json(void **state)
{
	const struct outbox_rules_header zeros = header("outbox-origin-partition", "0007");
	struct outbox_inbox_message one = message("7", "x");
	struct deliver_request request;
	json_t *event;

	(void)state;
	one.headers = &zeros;
	one.header_count = 1;
	request = requested(&structured, &one);
	event = parsed(&request);
	assert_int_equal(json_number_value(json_object_get(event, "outboxpartition")), 7);
	json_decref(event);
	deliver_request_finish(&request);
}

static void a_message_without_payload_is_told_from_an_empty_one(void **state)
{
	struct outbox_inbox_message tombstone = message("7", NULL), empty = message("7", "");
	struct deliver_request request = requested(&binary, &tombstone);
	json_t *event;

	(void)state;
	assert_string_equal(find(&request, "ce-outboxtombstone"), "true");
	assert_null(find(&request, "Content-Type"));
	assert_non_null(request.body);
	assert_int_equal(request.body_length, 0);
	deliver_request_finish(&request);
	request = requested(&binary, &empty);
	assert_null(find(&request, "ce-outboxtombstone"));
	assert_string_equal(find(&request, "Content-Type"), "application/octet-stream");
	assert_int_equal(request.body_length, 0);
	deliver_request_finish(&request);

	request = requested(&structured, &tombstone);
	event = parsed(&request);
	assert_true(json_is_true(json_object_get(event, "outboxtombstone")));
	assert_null(json_object_get(event, "data"));
	assert_null(json_object_get(event, "data_base64"));
	json_decref(event);
	deliver_request_finish(&request);
	request = requested(&structured, &empty);
	event = parsed(&request);
	assert_string_equal(member(event, "data_base64"), "");
	json_decref(event);
	deliver_request_finish(&request);
}

/* --- names ---------------------------------------------------------------------------------- */

static void an_id_that_is_no_text_has_a_name_made_of_it(void **state)
{
	struct outbox_inbox_message one = message("\x01\xff", "x"),
				    other = message("\x01\xfe", "x");
	struct deliver_request request = requested(&binary, &one),
			       second = requested(&binary, &other);

	(void)state;
	assert_int_equal(strlen(request.ids[0]), strlen("msg_") + 32);
	assert_memory_equal(request.ids[0], "msg_", 4);
	assert_string_equal(request.name, request.ids[0]);
	assert_string_not_equal(request.name, second.name);
	deliver_request_finish(&request);
	deliver_request_finish(&second);
}

static void an_id_that_cannot_be_signed_stays_that_of_the_event(void **state)
{
	struct outbox_inbox_message one = message("a.b", "x");
	struct deliver_request request = requested(&binary, &one), again = requested(&binary, &one);

	(void)state;
	assert_string_equal(find(&request, "ce-id"), "a.b");
	assert_memory_equal(request.name, "msg_", 4);
	assert_string_equal(request.name, again.name);
	deliver_request_finish(&request);
	deliver_request_finish(&again);
}

/* --- structured ----------------------------------------------------------------------------- */

static void data_that_is_json_is_written_as_it_came(void **state)
{
	static const char payload[] = "{ \"n\": 12345678901234567890.10, \"n\": [1e2] }";
	const struct outbox_rules_header headers[] = {header("Content-Type", "application/x+json")};
	struct outbox_inbox_message one = message("7", payload);
	struct deliver_request request = requested(&structured, &one);
	owned_text char *body =
	    xformat("%.*s", (int)request.body_length, (const char *)request.body);

	(void)state;
	assert_string_equal(
	    find(&request, "Content-Type"), "application/cloudevents+json; charset=utf-8");
	assert_null(find(&request, "ce-id"));
	assert_non_null(strstr(body, payload));
	assert_non_null(strstr(body, "\"datacontenttype\":\"application/json\""));
	assert_non_null(strstr(body, "\"outboxpartition\":3,"));
	assert_non_null(strstr(body, "\"outboxoffset\":\"42\","));
	deliver_request_finish(&request);
	one.headers = headers;
	one.header_count = 1;
	request = requested(&structured, &one);
	free(body);
	body = xformat("%.*s", (int)request.body_length, (const char *)request.body);
	assert_non_null(strstr(body, payload));
	deliver_request_finish(&request);
}

static void data_that_is_no_json_is_written_in_base64(void **state)
{
	static const char *const types[] = {"application/json", "text/plain", "application/jsonx"};

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		const struct outbox_rules_header headers[] = {header("content-type", types[i])};
		struct outbox_inbox_message one = message("7", i ? "{}" : "{");
		struct deliver_request request;
		json_t *event;

		one.headers = headers;
		one.header_count = 1;
		request = requested(&structured, &one);
		event = parsed(&request);
		assert_string_equal(member(event, "data_base64"), i ? "e30=" : "ew==");
		assert_string_equal(member(event, "datacontenttype"), types[i]);
		json_decref(event);
		deliver_request_finish(&request);
	}
}

static void a_structured_event_is_passed_on_as_it_is(void **state)
{
	static const char event[] = " {\"specversion\":\"1.0\",\"id\":\"E-1\",\"source\":\"/s\","
				    "\"type\":\"t\",\"data\":{\"n\":12345678901234567890}}";
	static const char type[] = "Application/CloudEvents+JSON; charset=UTF-8";
	const struct outbox_rules_header headers[] = {
	    header("content-type", type), header("ce_id", "other")};
	const struct deliver_wire *const wires[] = {&binary, &structured};
	struct outbox_inbox_message one = message("7", event), two = message("8", "{}");
	const struct outbox_inbox_message *both[] = {&one, &two};
	struct deliver_request request;
	json_t *events;

	(void)state;
	one.headers = headers;
	one.header_count = 2;
	for (size_t i = 0; i < 2; i++) {
		request = requested(wires[i], &one);
		assert_ptr_equal(request.body, one.payload);
		assert_int_equal(request.body_length, sizeof event - 1);
		assert_string_equal(find(&request, "Content-Type"), type);
		assert_null(find(&request, "ce-id"));
		assert_int_equal(request.header_count, 2);
		assert_string_equal(request.ids[0], "E-1");
		assert_string_equal(request.name, "E-1");
		deliver_request_finish(&request);
	}
	deliver_request_init(&request, &batch, both, 2);
	assert_memory_equal((const char *)request.body + 1, event, sizeof event - 1);
	events = parsed(&request);
	assert_int_equal(json_array_size(events), 2);
	assert_string_equal(request.ids[0], "E-1");
	assert_string_equal(request.ids[1], "8");
	json_decref(events);
	deliver_request_finish(&request);
}

static void a_payload_that_only_says_it_is_an_event_is_wrapped(void **state)
{
	static const char *const payloads[] = {
	    "{\"specversion\":\"1.0\",\"id\":\"\",\"source\":\"s\",\"type\":\"t\"}",
	    "{\"id\":\"1\",\"source\":\"/s\",\"type\":\"t\"}", "[]", "{", ""};
	const struct outbox_rules_header headers[] = {
	    header("content-type", "application/cloudevents+json")};

	(void)state;
	for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
		struct outbox_inbox_message one = message("7", payloads[i]);
		struct deliver_request request;

		one.headers = headers;
		one.header_count = 1;
		request = requested(&binary, &one);
		assert_string_equal(find(&request, "ce-id"), "7");
		assert_string_equal(find(&request, "Content-Type"),
		    i < 3 ? "application/json" : "application/octet-stream");
		deliver_request_finish(&request);
	}
}

static void a_body_that_is_no_utf_8_goes_out_structured(void **state)
{
	static const char *const payloads[] = {"\xff", "abcdefgh\xc3", "abcdefghijklmno\xe2\x82",
	    "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"};
	static const char good[] = "abcdefgh\0\xe2\x82\xac";
	struct outbox_inbox_message text = message("7", good);
	struct deliver_request request;

	(void)state;
	for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
		struct outbox_inbox_message one = message("7", payloads[i]);
		json_t *event;

		request = requested(&binary, &one);
		event = parsed(&request);
		assert_string_equal(
		    find(&request, "Content-Type"), "application/cloudevents+json; charset=utf-8");
		assert_null(find(&request, "ce-id"));
		assert_string_equal(member(event, "id"), "7");
		assert_non_null(member(event, "data_base64"));
		json_decref(event);
		deliver_request_finish(&request);
	}
	text.payload_length = sizeof good - 1;
	request = requested(&binary, &text);
	assert_ptr_equal(request.body, good);
	deliver_request_finish(&request);
}

/* --- batches -------------------------------------------------------------------------------- */

static void a_batch_is_an_array_of_events(void **state)
{
	struct outbox_inbox_message one = message("7", "{}"), two = message("8", NULL);
	const struct outbox_inbox_message *both[] = {&one, &two};
	struct deliver_request request;
	json_t *events;

	(void)state;
	deliver_request_init(&request, &batch, both, 2);
	events = parsed(&request);
	assert_string_equal(find(&request, "Content-Type"), "application/cloudevents-batch+json");
	assert_int_equal(json_array_size(events), 2);
	assert_string_equal(member(json_array_get(events, 0), "id"), "7");
	assert_string_equal(member(json_array_get(events, 1), "id"), "8");
	assert_int_equal(request.count, 2);
	assert_string_equal(request.ids[1], "8");
	assert_memory_equal(request.name, "msg_", 4);
	assert_false(deliver_request_is_ambiguous(&request));
	json_decref(events);
	deliver_request_finish(&request);
}

static void a_batch_of_one_is_an_array_as_well(void **state)
{
	struct outbox_inbox_message one = message("7", "{}");
	struct deliver_request request = requested(&batch, &one);
	json_t *events = parsed(&request);

	(void)state;
	assert_int_equal(json_array_size(events), 1);
	assert_string_equal(request.name, "7");
	json_decref(events);
	deliver_request_finish(&request);
}

static void events_of_a_batch_with_the_same_id_are_seen(void **state)
{
	struct outbox_inbox_message one = message("7", "{}"), two = message("8", "{}");
	const struct outbox_inbox_message *three[] = {&one, &two, &one};
	struct deliver_request request;

	(void)state;
	deliver_request_init(&request, &batch, three, 3);
	assert_true(deliver_request_is_ambiguous(&request));
	deliver_request_finish(&request);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(attributes_of_a_record_that_says_none_follow_from_it),
	    cmocka_unit_test(source_and_type_may_be_configured),
	    cmocka_unit_test(what_the_record_says_as_an_event_is_taken_over),
	    cmocka_unit_test(a_time_that_is_none_is_that_of_the_record),
	    cmocka_unit_test(a_source_that_is_none_is_the_default),
	    cmocka_unit_test(a_schema_that_is_no_uri_is_left_out),
	    cmocka_unit_test(attributes_of_other_versions_are_left_out),
	    cmocka_unit_test(a_content_type_that_is_none_is_guessed),
	    cmocka_unit_test(headers_that_are_no_attributes_are_left_out),
	    cmocka_unit_test(an_event_of_another_version_is_not_taken_for_one),
	    cmocka_unit_test(no_more_attributes_are_taken_than_a_server_takes_headers),
	    cmocka_unit_test(a_redelivered_record_says_where_its_message_was_first),
	    cmocka_unit_test(a_redelivered_record_that_says_nonsense_hurts_nobody),
	    cmocka_unit_test(an_origin_with_leading_zeros_becomes_a_number_of_json),
	    cmocka_unit_test(a_message_without_payload_is_told_from_an_empty_one),
	    cmocka_unit_test(an_id_that_is_no_text_has_a_name_made_of_it),
	    cmocka_unit_test(an_id_that_cannot_be_signed_stays_that_of_the_event),
	    cmocka_unit_test(data_that_is_json_is_written_as_it_came),
	    cmocka_unit_test(data_that_is_no_json_is_written_in_base64),
	    cmocka_unit_test(a_structured_event_is_passed_on_as_it_is),
	    cmocka_unit_test(a_payload_that_only_says_it_is_an_event_is_wrapped),
	    cmocka_unit_test(a_body_that_is_no_utf_8_goes_out_structured),
	    cmocka_unit_test(a_batch_is_an_array_of_events),
	    cmocka_unit_test(a_batch_of_one_is_an_array_as_well),
	    cmocka_unit_test(events_of_a_batch_with_the_same_id_are_seen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
