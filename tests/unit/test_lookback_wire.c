#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "json_slice.h"
#include "wire.h"

#define PREPARE                                                                                    \
	"{\"version\": 1, \"op\": \"prepare\", \"biz_type\": \"order\", \"biz_id\": \"42\","       \
	" \"topic\": \"orders\", \"key\": \"k\", \"payload\": {\"n\": 1.10}"

static struct lookback_request request;
static struct refusal refusal;

static bool read_value(const char *key, const char *value)
{
	struct lookback_input input = {.key = key,
	    .key_length = key ? strlen(key) : 0,
	    .value = value,
	    .value_length = value ? strlen(value) : 0};

	lookback_request_finish(&request);
	return lookback_wire_read(&input, &request, &refusal);
}

static void refused(const char *value, const char *code)
{
	assert_false(read_value("order:42", value));
	if (strcmp(refusal.code, code) != 0)
		fail_msg("%s: %s (%s), not %s", value, refusal.code, refusal.text, code);
	lookback_request_finish(&request);
}

static void a_prepare_says_what_is_to_be_sent(void **state)
{
	(void)state;
	assert_true(
	    read_value("order:42", PREPARE ", \"headers\": {\"trace\": \"x\"}, \"check_service\": "
					   "\"shop\", \"check_after\": \"90s\","
					   " \"expires_after\": 3600}"));
	assert_int_equal(request.op, LOOKBACK_PREPARE);
	assert_string_equal(request.biz_type, "order");
	assert_string_equal(request.biz_id, "42");
	assert_string_equal(request.topic, "orders");
	assert_int_equal(request.key.length, 1);
	assert_string_equal(request.payload.bytes, "{\"n\": 1.10}"); /* as it was written */
	assert_string_equal(request.headers, "{\"trace\": \"x\"}");
	assert_string_equal(request.check_service, "shop");
	assert_null(request.check_url);
	assert_int_equal(request.check_after_ms, 90000);
	assert_int_equal(request.expires_after_ms, 3600000);
	lookback_request_finish(&request);
}

static void a_unique_key_has_a_window_and_perhaps_a_word(void **state)
{
	unsigned char digest[LOOKBACK_DIGEST];
	owned_text char *longest = NULL, *longer = NULL;

	(void)state;
	assert_true(read_value("order:42", PREPARE "}"));
	assert_null(request.unique_key);
	assert_int_equal(request.within_ms, -1);
	memcpy(digest, request.digest, sizeof digest);

	/* The default is the same as the word for it, and no key is another prepare. */
	assert_true(read_value("order:42", PREPARE ", \"unique_key\": \"a \\n\"}"));
	assert_string_equal(request.unique_key, "a \n");
	assert_int_equal(request.within_ms, 86400000);
	assert_null(request.while_pending);
	assert_memory_not_equal(request.digest, digest, sizeof digest);
	memcpy(digest, request.digest, sizeof digest);
	assert_true(read_value("order:42",
	    PREPARE ", \"unique_key\": \"a \\n\", \"within\": \"24h\", \"while_pending\": null}"));
	assert_memory_equal(request.digest, digest, sizeof digest);

	static const char *const others[] = {"\"unique_key\": \"b\"",
	    "\"unique_key\": \"a \\n\", \"within\": 0.001",
	    "\"unique_key\": \"a \\n\", \"while_pending\": \"done\""};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		owned_text char *value = xformat("%s, %s}", PREPARE, others[i]);

		assert_true(read_value("order:42", value));
		assert_memory_not_equal(request.digest, digest, sizeof digest);
		assert_int_equal(request.within_ms, i == 1 ? 1 : 86400000);
	}
	assert_string_equal(request.while_pending, "done");

	longest = xformat("%s, \"unique_key\": \"%0512d\"}", PREPARE, 0);
	assert_true(read_value("order:42", longest));
	longer = xformat("%s, \"unique_key\": \"%0513d\"}", PREPARE, 0);
	refused(longer, "bad_value");
	assert_string_equal(refusal.text, "unique_key has 513 bytes; it takes 1 to 512: send the "
					  "SHA-256 of a longer one");
	/* Of a decision nobody looks at them. */
	assert_true(read_value("order:42", "{\"version\": 1, \"op\": \"commit\", \"biz_type\": "
					   "\"order\", \"biz_id\": \"42\", \"within\": 0}"));
	lookback_request_finish(&request);
}

static void a_payload_is_json_or_base64_or_a_tombstone(void **state)
{
	(void)state;
#define WITHOUT                                                                                    \
	"{\"version\": 1, \"op\": \"prepare\", \"biz_type\": \"order\", \"biz_id\": \"42\","       \
	" \"topic\": \"orders\""
	assert_true(read_value("order:42", WITHOUT ", \"payload\": null}"));
	assert_null(request.payload.bytes);
	assert_true(read_value("order:42", WITHOUT ", \"payload_base64\": \"AAE=\"}"));
	assert_int_equal(request.payload.length, 2);
	assert_memory_equal(request.payload.bytes, "\0\1", 2);
	assert_true(
	    read_value("order:42", WITHOUT ", \"payload\": 123456789012345678901234567890}"));
	assert_string_equal(request.payload.bytes, "123456789012345678901234567890");
	assert_true(read_value("order:42", WITHOUT ", \"pay\\u006coad\": [ 1]}"));
	assert_string_equal(request.payload.bytes, "[ 1]");
	refused(WITHOUT "}", "missing_field");
	refused(WITHOUT ", \"payload\": 1, \"payload_base64\": \"AAE=\"}", "bad_value");
	refused(WITHOUT ", \"payload_base64\": \"AAE\"}", "bad_value");
	refused(WITHOUT ", \"payload_base64\": 7}", "wrong_type");
	lookback_request_finish(&request);
}

static void numbers_that_are_passed_on_keep_their_digits(void **state)
{
	(void)state;
	assert_true(read_value("order:42", WITHOUT ", \"payload\": {\"a\": [1e400, -0.10E+999]},"
						   " \"h\\u0065aders\": {\"n\": 1, \"m\": 1.10,"
						   " \"large\": 9007199254740993, \"e\": 1e400}}"));
	assert_string_equal(request.payload.bytes, "{\"a\": [1e400, -0.10E+999]}");
	assert_string_equal(request.headers, "{\"n\": 1, \"m\": 1.10,"
					     " \"large\": 9007199254740993, \"e\": 1e400}");
	assert_true(read_value("order:42", WITHOUT ", \"payload\": -1e400}"));
	assert_string_equal(request.payload.bytes, "-1e400");
	/* those that are ours have to make sense, and all of them are to be numbers */
	refused(PREPARE ", \"check_after\": 1e400}", "bad_value");
	refused(PREPARE ", \"check_after\": -1e400}", "bad_value");
	refused("{\"biz_type\": \"order\", \"version\": 1e400}", "bad_version");
	static const char *const none[] = {"01e400", "1e400x", "1-1e400", "1e400.5", "1e400 1",
	    "-e400", "1.e400", "1e400e1", "+1e400", "[1e400", "1e400\"", "true1e400"};
	for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
		owned_text char *value = xformat("%s, \"payload\": %s}", WITHOUT, none[i]);

		refused(value, "bad_json");
	}
	lookback_request_finish(&request);
}

static void numbers_of_headers_are_those_of_the_database(void **state)
{
	(void)state;
	refused(PREPARE ", \"headers\": {\"n\": 1e200000}}", "bad_value");
	refused(PREPARE ", \"headers\": {\"n\": 1e-99999999999999999999}}", "bad_value");
}

static const char *unstorable(const char *text)
{
	static char found[64];
	size_t length;
	const char *number = json_unstorable_number(text, strlen(text), &length);

	if (!number)
		return "";
	snprintf(found, sizeof found, "%.*s", (int)length, number);
	return found;
}

static void headers_have_characters_beyond_ascii_without_escapes(void **state)
{
	(void)state;
	assert_true(read_value("order:42",
	    WITHOUT ", \"payload\": null, \"headers\": {\"\\u00e9\": \"\\u20AC\\ud83d\\ude00\","
		    " \"b\": \"\\\\u00e9\\u0041\\n\"}}"));
	assert_string_equal(request.headers, "{\"\xc3\xa9\": \"\xe2\x82\xac\xf0\x9f\x98\x80\","
					     " \"b\": \"\\\\u00e9\\u0041\\n\"}");
}

/* tests/integration/test_lookback_storable.py asks Postgres about the same. */
static void numbers_are_those_that_postgres_takes(void **state)
{
	(void)state;
	assert_string_equal(unstorable("[1e-16383, 0.5e-16382, 0e30000, 0e-16383, 1e131071]"), "");
	assert_string_equal(
	    unstorable("{\"1e-20000\": \"1e-20000 \\\"1e-20000\", \"b\": -1.5E+3}"), "");
	assert_string_equal(unstorable("{\"a\":1e-16384}"), "1e-16384");
	assert_string_equal(unstorable("{\"a\":0.5e-16383}"), "0.5e-16383");
	assert_string_equal(unstorable("{\"a\":0e-16384}"), "0e-16384");
	assert_string_equal(unstorable("{\"a\":-1.25E-20000}"), "-1.25E-20000");
	assert_string_equal(unstorable("[1e131072]"), "1e131072");
	assert_string_equal(unstorable("[1e200000]"), "1e200000");
	assert_string_equal(unstorable("[1e-99999999999999999999]"), "1e-99999999999999999999");
	assert_string_equal(unstorable("[0e99999999999999999999]"), "0e99999999999999999999");
	refused(PREPARE ", \"headers\": {\"a\": 1e-20000}}", "bad_value");
	assert_non_null(strstr(refusal.text, "headers have at byte 7 the number 1e-20000"));
	assert_true(read_value("order:42", PREPARE ", \"headers\": {\"a\": 1e-16383}}"));
	/* a payload is bytes for the database */
	assert_true(read_value("order:42", WITHOUT ", \"payload\": [1e-20000, 1e200000]}"));
	lookback_request_finish(&request);
}

static void a_text_of_many_values_is_refused_with_the_limit(void **state)
{
	enum { MOST = 1000000 };
	(void)state;
	for (int count = MOST - 8; count <= MOST - 6; count += 2) {
		/* the payload is one value more, the message and its other fields are seven */
		struct text value = {0};

		text_add(&value, WITHOUT ", \"payload\": [1");
		for (int i = 1; i < count; i++)
			text_add(&value, ",1");
		text_add(&value, "]}");
		if (count < MOST - 7) {
			assert_true(read_value("order:42", text_string(&value)));
		} else {
			refused(text_string(&value), "too_complex");
			assert_non_null(strstr(refusal.text, "JSON may have 1000000 values"));
		}
		text_finish(&value);
	}
	lookback_request_finish(&request);
}

static void a_name_is_found_with_escapes_and_nothing_else_is(void **state)
{
	(void)state;
	assert_true(read_value("order:42", WITHOUT ", \"\\u0070ayload\\u005fbase64\": \"\"}"));
	refused(WITHOUT ", \"payload\\u005f\": 1}", "unknown_field");
	refused(WITHOUT ", \"p\\nayload\": 1}", "unknown_field");
	refused(WITHOUT ", \"payload\\\\\": 1}", "unknown_field");
	refused(WITHOUT ", \"payloa\": 1}", "unknown_field");
	refused(WITHOUT ", \"\\u0070ayload\": 1, \"payload\": 1}", "bad_json");
	lookback_request_finish(&request);
}

static void a_decision_needs_no_more_than_the_id(void **state)
{
	(void)state;
	for (int i = LOOKBACK_COMMIT; i <= LOOKBACK_ROLLBACK; i++) {
		owned_text char *value =
		    xformat("{\"version\":1,\"op\":\"%s\",\"biz_type\":\"order\","
			    "\"biz_id\":\"42\"}",
			lookback_op_names[i]);

		assert_true(read_value("order:42", value));
		assert_int_equal(request.op, i);
		assert_null(request.topic);
	}
	/* what the prepare said may stand there again */
	assert_true(read_value("order:42", "{\"version\":1,\"op\":\"commit\",\"biz_type\":"
					   "\"order\",\"biz_id\":\"42\",\"topic\":7}"));
	lookback_request_finish(&request);
}

static void the_key_is_type_and_id(void **state)
{
	(void)state;
	assert_false(read_value("order:43", PREPARE "}"));
	assert_string_equal(refusal.code, "key_mismatch");
	assert_string_equal(request.biz_type, "order"); /* whose it is is known all the same */
	assert_false(read_value(NULL, PREPARE "}"));
	assert_string_equal(refusal.code, "key_mismatch");
	assert_false(read_value("order:4", PREPARE "}"));
	lookback_request_finish(&request);
}

static void what_is_wrong_is_refused_with_a_code(void **state)
{
	static const struct {
		const char *value, *code;
	} wrong[] = {
	    {"", "bad_json"},
	    {"{", "bad_json"},
	    {"[]", "bad_json"},
	    {"\"x\"", "bad_json"},
	    {PREPARE ", \"key\": \"again\"}", "bad_json"},
	    {PREPARE ", \"extra\": 1}", "unknown_field"},
	    {"{\"biz_type\": \"order\"}", "missing_field"},
	    {"{\"biz_type\": \"order\", \"version\": 2}", "bad_version"},
	    {"{\"biz_type\": \"order\", \"version\": \"1\"}", "bad_version"},
	    {"{\"version\": 1}", "missing_field"},
	    {"{\"version\": 1, \"biz_type\": 7}", "wrong_type"},
	    {"{\"version\": 1, \"biz_type\": \"a:b\"}", "bad_value"},
	    {"{\"version\": 1, \"biz_type\": \"\"}", "bad_value"},
	    {"{\"version\": 1, \"biz_type\": \"order\", \"op\": \"commit\"}", "missing_field"},
	    {"{\"version\": 1, \"biz_type\": \"order\", \"biz_id\": \"a\\u0000b\", \"op\": "
	     "\"commit\"}",
		"bad_value"},
	    {"{\"version\": 1, \"biz_type\": \"order\", \"biz_id\": \"42\", \"op\": \"Commit\"}",
		"bad_value"},
	    {"{\"version\": 1, \"biz_type\": \"order\", \"biz_id\": \"\xff\", \"op\": \"commit\"}",
		"bad_json"},
	    {PREPARE ", \"check_after\": \"soon\"}", "bad_value"},
	    {PREPARE ", \"check_after\": -1}", "bad_value"},
	    {PREPARE ", \"check_after\": 1e300}", "bad_value"},
	    {PREPARE ", \"check_after\": true}", "wrong_type"},
	    {PREPARE ", \"check_url\": [\"x\"]}", "wrong_type"},
	    {PREPARE ", \"headers\": 7}", "bad_value"},
	    {PREPARE ", \"headers\": {\"outbox-id\": \"x\"}}", "bad_value"},
	    {PREPARE ", \"headers\": {\"a\": {\"base64\": \"?\"}}}", "bad_value"},
	    {PREPARE ", \"headers\": [[\"a\"]]}", "bad_value"},
	    {PREPARE ", \"headers\": {\"a\": \"\\u0000\"}}", "bad_value"},
	    {PREPARE ", \"headers\": [[\"a\\u0000\", 1]]}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"\"}", "bad_value"},
	    {PREPARE ", \"unique_key\": 7}", "wrong_type"},
	    {PREPARE ", \"unique_key\": \"a\\u0000\"}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"k\", \"within\": 0}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"k\", \"within\": 0.0001}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"k\", \"within\": \"0ms\"}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"k\", \"within\": \"3651d\"}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"k\", \"within\": \"1 day\"}", "bad_value"},
	    {PREPARE ", \"unique_key\": \"k\", \"within\": true}", "wrong_type"},
	    {PREPARE ", \"unique_key\": \"k\", \"while_pending\": \"Done\"}", "bad_value"},
	    {PREPARE ", \"within\": \"1h\"}", "missing_field"},
	    {PREPARE ", \"while_pending\": \"done\"}", "missing_field"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refused(wrong[i].value, wrong[i].code);
	assert_false(read_value("order:42", NULL));
	assert_string_equal(refusal.code, "bad_json");
}

static void deep_nesting_and_long_texts_are_refused(void **state)
{
	enum { DEEP = 100000 };
	owned_text char *value = xmalloc(DEEP * 2 + 200), *longest = NULL;
	size_t length = (size_t)snprintf(value, DEEP * 2 + 200, "%s, \"headers\": ", PREPARE);

	(void)state;
	memset(value + length, '[', DEEP);
	memset(value + length + DEEP, ']', DEEP);
	memcpy(value + length + DEEP + DEEP, "}", 2);
	refused(value, "too_complex");
	longest = xformat("{\"version\": 1, \"biz_type\": \"%0101d\"}", 0);
	refused(longest, "bad_value");
}

static bool read_header_form(
    const struct lookback_header *headers, size_t count, const char *value, size_t length)
{
	struct lookback_input input = {.key = "order:42",
	    .key_length = 8,
	    .value = value,
	    .value_length = length,
	    .headers = headers,
	    .header_count = count};

	lookback_request_finish(&request);
	return lookback_wire_read(&input, &request, &refusal);
}

#define HEADER(name, value)                                                                        \
	{                                                                                          \
		name, value, sizeof value - 1                                                      \
	}
#define USUAL                                                                                      \
	HEADER("lookback-version", "1"), HEADER("lookback-op", "prepare"),                         \
	    HEADER("lookback-biz-type", "order"), HEADER("lookback-biz-id", "42"),                 \
	    HEADER("lookback-topic", "orders")

static void headers_say_the_same_and_the_value_is_the_payload(void **state)
{
	static const struct lookback_header headers[] = {USUAL, HEADER("lookback-key", "\0k"),
	    HEADER("lookback-check-after", "5m"), HEADER("lookback-unique-key", "u"),
	    HEADER("lookback-within", "90"), HEADER("lookback-while-pending", "published"),
	    HEADER("traceparent", "00-1"), HEADER("binary", "\0\xff"), {"null", NULL, 0},
	    HEADER("outbox-id", "theirs")};

	(void)state;
	assert_true(read_header_form(headers, sizeof headers / sizeof *headers, "\0raw", 4));
	assert_int_equal(request.key.length, 2);
	assert_int_equal(request.payload.length, 4);
	assert_memory_equal(request.payload.bytes, "\0raw", 4);
	assert_int_equal(request.check_after_ms, 300000);
	assert_string_equal(request.unique_key, "u");
	assert_int_equal(request.within_ms, 90000);
	assert_string_equal(request.while_pending, "published");
	assert_string_equal(request.headers, "[[\"traceparent\", \"00-1\"], [\"binary\", "
					     "{\"base64\": \"AP8=\"}], [\"null\", null]]");
	assert_true(read_header_form(headers, 5, NULL, 0));
	assert_null(request.payload.bytes);
	lookback_request_finish(&request);
}

static void wrong_headers_are_refused(void **state)
{
	static const struct lookback_header twice[] = {USUAL, HEADER("lookback-op", "commit")};
	static const struct lookback_header no_text[] = {USUAL, HEADER("\xff", "x")};
	static const struct lookback_header strange[] = {USUAL, HEADER("lookback-biz_id", "42")};
	static const struct lookback_header short_of_one[] = {
	    HEADER("lookback-version", "1"), HEADER("lookback-biz-type", "order")};
	static const struct lookback_header other_version[] = {
	    HEADER("lookback-version", "2"), HEADER("lookback-biz-type", "order")};

	(void)state;
	assert_false(read_header_form(no_text, 6, "x", 1));
	assert_string_equal(refusal.code, "bad_value");
	assert_false(read_header_form(twice, 6, "x", 1));
	assert_string_equal(refusal.code, "bad_value");
	assert_false(read_header_form(strange, 6, "x", 1));
	assert_string_equal(refusal.code, "unknown_field");
	assert_false(read_header_form(short_of_one, 2, "x", 1));
	assert_string_equal(refusal.code, "missing_field");
	assert_string_equal(request.biz_type, "order");
	assert_false(read_header_form(other_version, 2, "x", 1));
	assert_string_equal(refusal.code, "bad_version");
	lookback_request_finish(&request);
}

static void equal_prepares_have_equal_digests_in_both_forms(void **state)
{
	static const struct lookback_header headers[] = {USUAL, HEADER("lookback-key", "k")};
	struct lookback_request first = {0};

	(void)state;
	assert_true(read_value("order:42", PREPARE "}"));
	first = request;
	request = (struct lookback_request){0};
	assert_true(read_header_form(headers, 6, "{\"n\": 1.10}", 11));
	assert_memory_equal(first.digest, request.digest, LOOKBACK_DIGEST);
	assert_true(read_header_form(headers, 6, "{\"n\": 1.11}", 11));
	assert_memory_not_equal(first.digest, request.digest, LOOKBACK_DIGEST);
	lookback_request_finish(&first);
	lookback_request_finish(&request);
}

static void the_event_id_is_a_uuid_of_version_5(void **state)
{
	/* python3: uuid.uuid5(uuid.UUID("4f9d35b8-3a1c-5e0e-9d55-2f6a7f3e0c11"), "order:42") */
	static const unsigned char expected[UUID_BYTES] = {0xc5, 0x6c, 0x8b, 0x93, 0x37, 0x84, 0x5f,
	    0xd7, 0x8a, 0xa3, 0x4c, 0xe1, 0xc7, 0x70, 0x31, 0x19};
	unsigned char uuid[UUID_BYTES];

	(void)state;
	lookback_event_id("order", "42", uuid);
	assert_memory_equal(uuid, expected, sizeof uuid);
}

static void a_slice_is_the_text_between_name_and_comma(void **state)
{
	static const char text[] =
	    " { \"a\\\"\" : \"}\\\\\" , \"b\":{\"c\":[1,\"]\"]} , \"c\" : 7 }";
	size_t length = 0;

	(void)state;
	const char *slice = json_slice(text, sizeof text - 1, "b", &length);
	assert_int_equal(length, strlen("{\"c\":[1,\"]\"]}"));
	assert_memory_equal(slice, "{\"c\":[1,\"]\"]}", length);
	slice = json_slice(text, sizeof text - 1, "c", &length);
	assert_int_equal(length, 1);
	assert_memory_equal(slice, "7", 1);
	assert_null(json_slice(text, sizeof text - 1, "d", &length));
	static const char escaped[] = "{\"\\u0062\":1,\"b\\u0000\":2,\"\\u0063\\u0000\":3,\"d\":4}";
	slice = json_slice(escaped, sizeof escaped - 1, "b", &length);
	assert_int_equal(length, 1);
	assert_memory_equal(slice, "1", 1);
	assert_null(json_slice(escaped, sizeof escaped - 1, "c", &length));
	assert_non_null(json_slice(escaped, sizeof escaped - 1, "d", &length));
}

static void the_elements_of_an_array_are_told_one_by_one(void **state)
{
	static const char text[] = " [ {\"a\":[1,2]} ,\"]\",[] , 7\n] ";
	static const char *const elements[] = {"{\"a\":[1,2]}", "\"]\"", "[]", "7"};
	size_t offset = 0, length;

	(void)state;
	for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
		const char *slice = json_slice_next(text, sizeof text - 1, &offset, &length);

		assert_non_null(slice);
		assert_int_equal(length, strlen(elements[i]));
		assert_memory_equal(slice, elements[i], length);
	}
	assert_null(json_slice_next(text, sizeof text - 1, &offset, &length));
	offset = 0;
	assert_null(json_slice_next("[ ]", 3, &offset, &length));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_prepare_says_what_is_to_be_sent),
	    cmocka_unit_test(a_unique_key_has_a_window_and_perhaps_a_word),
	    cmocka_unit_test(a_payload_is_json_or_base64_or_a_tombstone),
	    cmocka_unit_test(numbers_that_are_passed_on_keep_their_digits),
	    cmocka_unit_test(numbers_of_headers_are_those_of_the_database),
	    cmocka_unit_test(headers_have_characters_beyond_ascii_without_escapes),
	    cmocka_unit_test(numbers_are_those_that_postgres_takes),
	    cmocka_unit_test(a_text_of_many_values_is_refused_with_the_limit),
	    cmocka_unit_test(a_name_is_found_with_escapes_and_nothing_else_is),
	    cmocka_unit_test(a_decision_needs_no_more_than_the_id),
	    cmocka_unit_test(the_key_is_type_and_id),
	    cmocka_unit_test(what_is_wrong_is_refused_with_a_code),
	    cmocka_unit_test(deep_nesting_and_long_texts_are_refused),
	    cmocka_unit_test(headers_say_the_same_and_the_value_is_the_payload),
	    cmocka_unit_test(wrong_headers_are_refused),
	    cmocka_unit_test(equal_prepares_have_equal_digests_in_both_forms),
	    cmocka_unit_test(the_event_id_is_a_uuid_of_version_5),
	    cmocka_unit_test(a_slice_is_the_text_between_name_and_comma),
	    cmocka_unit_test(the_elements_of_an_array_are_told_one_by_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
