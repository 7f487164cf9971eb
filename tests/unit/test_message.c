#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "hex.h"
#include "message.h"
#include "text.h"

struct row {
	char bytes[1024];
	int length;
};

static void add_bytes(struct row *row, const void *bytes, int length)
{
	memcpy(row->bytes + row->length, bytes, (size_t)length);
	row->length += length;
}

static void add_field(struct row *row, const void *bytes, int32_t length)
{
	uint32_t size = htobe32((uint32_t)length);
	add_bytes(row, &size, 4);
	if (length > 0)
		add_bytes(row, bytes, length);
}

/* One row as COPY sends it; NULL headers, key or payload are SQL NULL. */
static struct row make_row(const char *key, const char *payload, const char *headers)
{
	struct row row = {.length = 0};
	uint16_t count = htobe16(MESSAGE_FIELDS);
	uint64_t id = htobe64(77), created = htobe64(1000000);
	add_bytes(&row, &count, 2);
	add_field(&row, &id, 8);
	add_field(&row, &created, 8);
	add_field(&row, "0123456789abcdef", 16);
	add_field(&row, "orders", 6);
	add_field(&row, key, key ? (int32_t)strlen(key) : -1);
	add_field(&row, payload, payload ? (int32_t)strlen(payload) : -1);
	add_field(&row, headers, headers ? (int32_t)strlen(headers) : -1);
	add_field(&row, NULL, -1); /* partition */
	add_field(&row, NULL, -1); /* deliver_at */
	add_field(&row, NULL, -1); /* key_bytes */
	add_field(&row, NULL, -1); /* payload_bytes */
	return row;
}

static struct row make_scheduled(uint64_t deliver_at)
{
	struct row row = make_row("k", "p", NULL);
	row.length -= 3 * 4;
	deliver_at = htobe64(deliver_at);
	add_field(&row, &deliver_at, 8);
	add_field(&row, NULL, -1);
	add_field(&row, NULL, -1);
	return row;
}

static bool parse(const struct row *row, struct message *message, struct err *err)
{
	enum copy_kind kind;
	char *block = xmalloc((size_t)row->length);
	memcpy(block, row->bytes, (size_t)row->length);
	return message_from_copy(block, row->length, false, NULL, message, &kind, err);
}

static void bytes_stand_for_key_and_payload(void **state)
{
	(void)state;
	struct row row = make_row(NULL, NULL, NULL);
	row.length -= 2 * 4;
	add_field(&row, "\0k", 2);
	add_field(&row, "", 0);
	struct message message;
	struct err err;
	assert_true(parse(&row, &message, &err));
	assert_int_equal(message.key_length, 2);
	assert_memory_equal(message.key, "\0k", 2);
	assert_non_null(message.payload);
	assert_int_equal(message.payload_length, 0);
	message_release(&message);
}

static void a_row_becomes_a_message_in_place(void **state)
{
	(void)state;
	struct message message;
	struct err err;
	const struct row row = make_row("", NULL, NULL);
	assert_true(parse(&row, &message, &err));
	assert_int_equal(message.id, 77);
	assert_int_equal(message.created_us, 946684801000000);
	assert_memory_equal(message.topic, "orders", 6);
	assert_non_null(message.key); /* an empty key is a key */
	assert_int_equal(message.key_length, 0);
	assert_null(message.payload);
	assert_int_equal(message.partition, -1);
	char text[UUID_TEXT];
	uuid_write(message.event_id, text);
	assert_memory_equal(text, "30313233-3435-3637-3839-616263646566", sizeof text);
	message_release(&message);
}

static void a_row_is_due_at_its_time_and_never_before_it_was_written(void **state)
{
	(void)state;
	struct message message;
	struct err err;
	struct row row = make_row("k", "p", NULL);
	assert_true(parse(&row, &message, &err));
	assert_false(message.scheduled);
	assert_int_equal(message.due_us, message.created_us);
	message_release(&message);
	row = make_scheduled(3000000);
	assert_true(parse(&row, &message, &err));
	assert_true(message.scheduled);
	assert_int_equal(message.due_us, 946684803000000);
	message_release(&message);
	row = make_scheduled(500000);
	assert_true(parse(&row, &message, &err));
	assert_true(message.scheduled);
	assert_int_equal(message.due_us, message.created_us);
	message_release(&message);
}

static void a_null_topic_is_the_usual_topic(void **state)
{
	(void)state;
	struct row row = make_row("k", "p", NULL);
	char *topic = memmem(row.bytes, (size_t)row.length, "orders", 6);
	struct message message;
	enum copy_kind kind;
	struct err err = {0};
	const char usual[] = "payments";
	memmove(topic, topic + 6, (size_t)(row.bytes + row.length - (topic + 6)));
	row.length -= 6;
	memset(topic - 4, 0xff, 4); /* the length of a null */

	char *copy = malloc((size_t)row.length);
	memcpy(copy, row.bytes, (size_t)row.length);
	assert_true(message_from_copy(copy, row.length, false, usual, &message, &kind, &err));
	assert_ptr_equal(message.topic, usual);
	assert_int_equal(message.topic_length, 8);
	assert_memory_equal(message.key, "k", 1);
	message_release(&message);

	/* a row of a page that has no usual topic is wrong */
	assert_false(parse(&row, &message, &err));
	assert_int_equal(err.kind, ERR_FATAL);
}

static void a_column_of_another_width_is_an_error(void **state)
{
	(void)state;
	struct message message;
	struct err err;
	struct row row = make_row("k", "p", NULL);
	row.bytes[5] = 4; /* the id's length */
	assert_false(parse(&row, &message, &err));
}

static void write_down(
    void *context, const char *name, size_t name_length, const void *value, size_t length)
{
	struct text *text = context;
	text_addf(text, "%.*s=%.*s%s;", (int)name_length, name, (int)length,
	    value ? (const char *)value : "", value ? "" : "(null)");
}

static void expect_headers(const char *json, const char *expected)
{
	struct message message;
	struct err err;
	struct text seen = {0}, scratch = {0};
	const struct row row = make_row("k", "p", json);
	assert_true(parse(&row, &message, &err));
	bool good = message_headers(&message, &scratch, write_down, &seen, &err);
	assert_int_equal(good, expected != NULL);
	if (expected)
		assert_string_equal(text_string(&seen), expected);
	else
		assert_int_equal(err.kind, ERR_REJECT);
	text_finish(&seen);
	text_finish(&scratch);
	message_release(&message);
}

static void headers_come_from_objects_and_from_arrays(void **state)
{
	(void)state;
	expect_headers(NULL, "");
	expect_headers(
	    "{\"a\": \"1\", \"n\": null, \"v\": 2, \"t\": true}", "a=1;n=(null);v=2;t=true;");
	expect_headers(
	    "[[\"a\", \"1\"], [\"a\", {\"base64\": \"Yg==\"}], [\"e\", \"\"]]", "a=1;a=b;e=;");
}

static void a_number_keeps_its_text(void **state)
{
	(void)state;
	expect_headers(
	    "{\"a\": 12345678901234567890, \"b\": -1.10}", "a=12345678901234567890;b=-1.10;");
	expect_headers("[[\"a\", 0], [\"a\", 1e+400]]", "a=0;a=1e+400;");
	expect_headers("{\"-1\": \"\\\\\", \"b\": \"\\\"2\", \"c\": 3}", "-1=\\;b=\"2;c=3;");
	expect_headers("{\"a\": 1", NULL);
	expect_headers("{\"a", NULL);
	expect_headers("{\"a\\", NULL);
}

/* The second text begins with a header beyond ASCII: so none of it is plain. */
static void expect_either_way(const char *json, const char *expected)
{
	const char *other = *json == '{' ? "\"\u00e4\": 0" : "[\"\u00e4\", 0]";
	char *longer = xformat("%c%s, %s", *json, other, json + 1);
	char *more = expected ? xformat("\u00e4=0;%s", expected) : NULL;

	expect_headers(json, expected);
	expect_headers(longer, more);
	free(more);
	free(longer);
}

static void plain_headers_are_read_like_any_others(void **state)
{
	(void)state;
	static const char *const wrong[] = {"{\"a\": \"1\"", "{\"a\": \"1\"}}", "{\"a\": \"1\"]",
	    "[[\"a\", \"1\"]", "[[\"a\", \"1\"}]", "[[\"a\", \"1\"]]]", "{\"a\": \"1\", }",
	    "{\"a\": tru}", "{\"a\", 1}", "[[\"a\": 1]]", "{\"a\": \"1\n\"}", "[\"a\", 1]", "{",
	    "[", "{\"a\": ", "{\"a\": nul", "{\"a\": \"\xff\"}", "{\"a\": 1x}"};
	expect_headers("{}", "");
	expect_headers("[]", "");
	expect_headers(" [ ]\n", "");
	expect_either_way("{\"\": \"\"}", "=;");
	expect_either_way("{\"a\": null, \"b\": true, \"c\": false, \"d\": -1.5e+7}",
	    "a=(null);b=true;c=false;d=-1.5e+7;");
	expect_either_way("[[\"a\", \"x, y: {z}\"], [\"a\", null]]", "a=x, y: {z};a=(null);");
	expect_either_way("{\"name\": \"Gr\u00fc\u00dfe\"}", "name=Gr\u00fc\u00dfe;");
	expect_either_way("{\"name\": \"\\u00e4\\n\"}", "name=\u00e4\n;");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		expect_either_way(wrong[i], NULL);
}

static void headers_may_have_any_blanks(void **state)
{
	(void)state;
	static const char *const wrong[] = {
	    "{\"a\"\v:1}", "{\"a\":1}\f", "{\"a\":1,,\"b\":1}", "{\"a\":1 2}", "[[\"a\" 1]]"};
	expect_either_way("{\"a\":\"1\",\"b\":2}", "a=1;b=2;");
	expect_either_way("{\n\t\"a\" : \"1\" ,\r\n\t\"b\"  :2\n}\n", "a=1;b=2;");
	expect_either_way("[[\"a\",1],[\"a\",null]]", "a=1;a=(null);");
	expect_either_way("[\n[ \"a\" , 1 ] , [\"a\",\" x\"]\t]", "a=1;a= x;");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		expect_either_way(wrong[i], NULL);
}

/* As in jsonb; only an array of pairs has two headers of one name. */
static void the_last_value_of_a_repeated_name_counts(void **state)
{
	(void)state;
	expect_either_way("{\"a\": 1, \"b\": 2, \"a\": \"3\"}", "a=3;b=2;");
	expect_either_way("{\"\": 1, \"\": null}", "=(null);");
	expect_either_way("{\"a\": {\"base64\": \"?\"}, \"a\": 1}", "a=1;");
	expect_either_way("{\"a\": 1, \"\\u0061\": 2}", "a=2;");
	expect_either_way("{\"a\": 1, \"ab\": 2, \"b\": 2}", "a=1;ab=2;b=2;");
	expect_either_way("[[\"a\", 1], [\"a\", 2]]", "a=1;a=2;");
}

static void many_headers_are_read_like_few(void **state)
{
	(void)state;
	struct text json = {0}, expected = {0};
	for (int i = 0; i < 20; i++) {
		text_addf(&json, "%s\"h%d\": %d", i ? ", " : "{", i, i);
		text_addf(&expected, "h%d=%d;", i, i);
		char *object = xformat("%s}", text_string(&json));
		expect_either_way(object, text_string(&expected));
		free(object);
	}
	text_finish(&json);
	text_finish(&expected);
}

static void point_into_the_row(
    void *context, const char *name, size_t name_length, const void *value, size_t length)
{
	const struct message *message = context;
	const char *end = message->headers + message->headers_length;
	assert_true(name > message->headers && name + name_length < end);
	assert_true((const char *)value > name && (const char *)value + length < end);
}

static void plain_headers_are_not_copied(void **state)
{
	(void)state;
	struct message message;
	struct err err;
	struct text scratch = {0};
	const struct row row = make_row("k", "p", "{\"a\":\"1\", \"trace-id\": \"0f\",\"n\": 7}");
	assert_true(parse(&row, &message, &err));
	assert_true(message_headers(&message, &scratch, point_into_the_row, &message, &err));
	assert_null(scratch.data);
	message_release(&message);
}

static void headers_of_another_form_are_refused(void **state)
{
	(void)state;
	static const char *const wrong[] = {"7", "[1]", "[[\"a\"]]", "[[{}, \"a\"]]", "{\"a\": {}}",
	    "{\"a\": [1]}", "{\"a\": {\"base64\": \"?\"}}", "not json"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		expect_headers(wrong[i], NULL);
}

static void a_topic_with_a_nul_is_refused(void **state)
{
	(void)state;
	struct row row = make_row("k", "p", NULL);
	char *topic = memmem(row.bytes, (size_t)row.length, "orders", 6);
	struct message message;
	enum copy_kind kind;
	struct err err = {0};
	topic[3] = '\0';
	char *copy = malloc((size_t)row.length);
	memcpy(copy, row.bytes, (size_t)row.length);
	assert_false(message_from_copy(copy, row.length, false, NULL, &message, &kind, &err));
	assert_int_equal(err.kind, ERR_FATAL);
	assert_non_null(strstr(err.message, "row 77"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_row_becomes_a_message_in_place),
	    cmocka_unit_test(bytes_stand_for_key_and_payload),
	    cmocka_unit_test(a_row_is_due_at_its_time_and_never_before_it_was_written),
	    cmocka_unit_test(a_topic_with_a_nul_is_refused),
	    cmocka_unit_test(a_null_topic_is_the_usual_topic),
	    cmocka_unit_test(a_column_of_another_width_is_an_error),
	    cmocka_unit_test(headers_come_from_objects_and_from_arrays),
	    cmocka_unit_test(a_number_keeps_its_text),
	    cmocka_unit_test(plain_headers_are_read_like_any_others),
	    cmocka_unit_test(headers_may_have_any_blanks),
	    cmocka_unit_test(the_last_value_of_a_repeated_name_counts),
	    cmocka_unit_test(many_headers_are_read_like_few),
	    cmocka_unit_test(plain_headers_are_not_copied),
	    cmocka_unit_test(headers_of_another_form_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
