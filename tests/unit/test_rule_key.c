#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "rule_key.h"

static const struct outbox_rules_header headers[] = {
    {"user", "first", 5}, {"a,b", "c", 1}, {"none", NULL, 0}, {"user", "last", 4}};

static struct outbox_rules_message message_of(const char *payload)
{
	return (struct outbox_rules_message){.topic = "orders",
	    .key = "k",
	    .key_length = 1,
	    .payload = payload,
	    .payload_length = payload ? strlen(payload) : 0,
	    .headers = headers,
	    .header_count = sizeof headers / sizeof *headers};
}

static bool add(
    const char *expression, const struct outbox_rules_message *message, struct text *text)
{
	struct err err;
	struct rule_message once = {message};
	struct rule_key *key = rule_key_parse(expression, &err);
	if (!key)
		fail_msg("%s", err.message);
	bool has = rule_key_add(key, &once, text);
	rule_message_finish(&once);
	rule_key_destroy(key);
	return has;
}

/* Do the two messages count together? */
static bool are_one(const char *expression, const struct outbox_rules_message *a,
    const struct outbox_rules_message *b)
{
	OWNED(text_finish) struct text one = {0}, other = {0};
	assert_true(add(expression, a, &one));
	assert_true(add(expression, b, &other));
	return one.length == other.length && memcmp(one.data, other.data, one.length) == 0;
}

static bool payloads_are_one(const char *expression, const char *a, const char *b)
{
	const struct outbox_rules_message one = message_of(a), other = message_of(b);
	return are_one(expression, &one, &other);
}

static bool has_key(const char *expression, const char *payload)
{
	OWNED(text_finish) struct text text = {0};
	const struct outbox_rules_message message = message_of(payload);
	return add(expression, &message, &text);
}

static void a_key_is_what_its_parts_say(void **state)
{
	(void)state;
	const struct outbox_rules_message a = message_of("x");
	struct outbox_rules_message b = a;
	b.topic = "bills";
	assert_false(are_one("topic", &a, &b));
	assert_true(are_one("key,payload,header:user", &a, &b));
	b.key = "l";
	assert_false(are_one("key", &a, &b));
	b.payload = "y";
	assert_false(are_one("payload", &a, &b));
	b.header_count = 3;
	assert_false(are_one("header:user", &a, &b));
	assert_true(are_one("header:\"a,b\"", &a, &b));
}

static void parts_are_joined_without_mixing_them_up(void **state)
{
	(void)state;
	struct outbox_rules_message a = message_of(NULL), b = a;
	a.topic = "ab", a.key = "c", a.key_length = 1;
	b.topic = "a", b.key = "bc", b.key_length = 2;
	assert_false(are_one("topic,key", &a, &b));
	b.topic = "ab", b.key = "c", b.key_length = 1;
	assert_true(are_one("topic,key", &a, &b));
}

static void the_last_header_of_a_name_counts(void **state)
{
	(void)state;
	const struct outbox_rules_header other = {"user", "last", 4};
	const struct outbox_rules_message a = message_of("x");
	struct outbox_rules_message b = a;
	b.headers = &other;
	b.header_count = 1;
	assert_true(are_one("header:user", &a, &b));
}

static void a_path_leads_through_members_and_indexes(void **state)
{
	(void)state;
	const char *one = "{\"a\": {\"b\": [7, {\"c d\": \"x\", \"q\\\"\": 1}]}}";
	assert_true(
	    payloads_are_one("json:$.a.b[1].\"c d\"", one, "{\"a\":{\"b\":[1,{\"c d\":\"x\"}]}}"));
	assert_true(payloads_are_one("json:$.a.b[1].\"q\"\"\"", one, one));
	assert_false(payloads_are_one("json:$.a.b[0],topic", one, "{\"a\": {\"b\": [8]}}"));
	assert_true(payloads_are_one("json:$", "5", " 5 "));
	assert_true(payloads_are_one("json:$[0][1]", "[[1,2]]", "[[3,2]]"));
}

static void values_of_json_are_compared_as_they_are_meant(void **state)
{
	(void)state;
	assert_true(payloads_are_one("json:$.a", "{\"a\": \"\\u00e9\"}", "{\"a\":\"\u00e9\"}"));
	assert_true(payloads_are_one(
	    "json:$", "{\"b\": 1, \"a\": [null, true]}", "{\"a\":[null,true],\"b\":1}"));
	assert_false(payloads_are_one("json:$", "1", "\"1\""));
	assert_false(payloads_are_one("json:$", "null", "\"null\""));
	assert_false(payloads_are_one("json:$", "1", "1.0"));
	assert_true(payloads_are_one("json:$", "1.50", "15e-1"));
	assert_false(payloads_are_one("json:$", "9007199254740993", "9007199254740992"));
	assert_false(payloads_are_one("json:$", "\"a\\u0000b\"", "\"a\\u0000c\""));
}

static void what_a_message_lacks_gives_no_key(void **state)
{
	(void)state;
	struct outbox_rules_message bare = {0};
	OWNED(text_finish) struct text text = {0};
	assert_false(add("topic", &bare, &text));
	assert_false(add("key", &bare, &text));
	assert_false(add("payload", &bare, &text));
	assert_false(add("json:$", &bare, &text));
	bare.key = "";
	assert_true(add("key", &bare, &text)); /* empty, and there */
	assert_false(has_key("header:other", "x"));
	assert_false(has_key("header:none", "x"));
	assert_false(has_key("header:User", "x"));
	assert_false(has_key("json:$.a", "{\"a\""));
	assert_false(has_key("json:$.a", "{\"b\": 1}"));
	assert_false(has_key("json:$.a", "[1]"));
	assert_false(has_key("json:$[1]", "[1]"));
	assert_false(has_key("json:$[0]", "{\"0\": 1}"));
	assert_false(has_key("topic,json:$.a", "{\"b\": 1}"));
	assert_true(has_key("json:$.a", "{\"a\": null}"));
}

static void a_bad_expression_is_told_where_and_what_to_write(void **state)
{
	(void)state;
	static const struct {
		const char *expression, *place;
	} wrong[] = {
	    {"", "''"},
	    {"topic,", "''"},
	    {"topics", "'s'"},
	    {"topic key", "' key'"},
	    {"user", "'user'"},
	    {"header:", "name is missing"},
	    {"header:\"\"", "name is missing"},
	    {"header:\"a", "no end"},
	    {"header:a\"b", "comma"},
	    {"json:", "begins with $"},
	    {"json:a", "begins with $"},
	    {"json:$a", "comma"},
	    {"json:$.", "name is missing"},
	    {"json:$..a", "name is missing"},
	    {"json:$.a[", "number in brackets"},
	    {"json:$.a[x]", "number in brackets"},
	    {"json:$.a[-1]", "number in brackets"},
	    {"json:$.a[1", "number in brackets"},
	    {"json:$[99999999999]", "number in brackets"},
	    {"json:$.a b", "comma"},
	    {"json:$.a]", "comma"},
	    {"json:$.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a",
		"32 steps"},
	    {"key,key,key,key,key,key,key,key,key,key,key,key,key,key,key,key,key", "16 parts"},
	};
	struct err err;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_null(rule_key_parse(wrong[i].expression, &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		if (!strstr(err.message, wrong[i].place) || !strstr(err.message, "json:$.user.id"))
			fail_msg("%s: %s", wrong[i].expression, err.message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_key_is_what_its_parts_say),
	    cmocka_unit_test(parts_are_joined_without_mixing_them_up),
	    cmocka_unit_test(the_last_header_of_a_name_counts),
	    cmocka_unit_test(a_path_leads_through_members_and_indexes),
	    cmocka_unit_test(values_of_json_are_compared_as_they_are_meant),
	    cmocka_unit_test(what_a_message_lacks_gives_no_key),
	    cmocka_unit_test(a_bad_expression_is_told_where_and_what_to_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
