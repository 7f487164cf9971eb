#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "position_prefix.h"

static void a_position_survives_its_text(void **state)
{
	(void)state;
	const struct outbox_position position = {
	    "orders_2-eu", "00c0ffee", 63, INT64_MAX, 1, 9007199254740993};
	char text[OUTBOX_POSITION_SIZE];
	struct outbox_position read;
	size_t length = outbox_position_format(&position, text);
	assert_string_equal(
	    text, "2:orders_2-eu:00c0ffee:63:9223372036854775807:1:9007199254740993");
	assert_int_equal(length, strlen(text));
	assert_true(outbox_position_parse(text, length, &read));
	assert_string_equal(read.publisher, position.publisher);
	assert_string_equal(read.identity, position.identity);
	assert_int_equal(read.shard, position.shard);
	assert_int_equal(read.epoch, position.epoch);
	assert_int_equal(outbox_position_compare(&read, &position), 0);
	assert_true(outbox_position_comparable(&read, &position));
}

static void the_longest_one_has_room(void **state)
{
	(void)state;
	struct outbox_position position = {
	    "", "ffffffff", INT32_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
	char text[OUTBOX_POSITION_SIZE];
	memset(position.publisher, 'x', sizeof position.publisher - 1);
	size_t length = outbox_position_format(&position, text);
	assert_in_range(length, 100, sizeof text - 1);
	assert_true(outbox_position_parse(text, length, &position));
	assert_int_equal(strlen(position.publisher), 40);
}

static void one_prefix_does_for_many(void **state)
{
	(void)state;
	const struct outbox_position position = {"main", "1a2b3c4d", 1, 7, 0, 0};
	char text[OUTBOX_POSITION_SIZE];
	size_t prefix = position_prefix_write(&position, text);
	assert_int_equal(position_prefix_complete(text, prefix, 1000, 123456), 31);
	assert_string_equal(text, "2:main:1a2b3c4d:1:7:1000:123456");
	assert_int_equal(position_prefix_complete(text, prefix, 2, 3), 23);
	assert_string_equal(text, "2:main:1a2b3c4d:1:7:2:3");
}

/* Whatever text was read before, a text is read as without a memo. */
static void a_memo_changes_no_answer(void **state)
{
	static const char *const texts[] = {"2:main:1a2b3c4d:1:7:1000:123456",
	    "2:main:1a2b3c4d:1:7:1001:123457", "2:main:1a2b3c4d:1:77:1001:5",
	    "2:main:1a2b3c4d:1:7:1002:", "2:main:1a2b3c4d:1:7:1002",
	    "2:main:1a2b3c4d:1:7:", "2:main:1a2b3c4d:1:7:1:2:3", "2:main:1a2b3c4d:1:7:x:2",
	    "2:main:1a2b3c4d:1:7::2", "2:main:1a2b3c4e:1:7:3:4", "2:mainly:1a2b3c4d:1:7:3:4",
	    "2:main:1a2b3c4d:2:7:3:4", "2:main:1a2b3c4d:1:7:9223372036854775808:1",
	    "3:main:1a2b3c4d:1:7:3:4", "",
	    ("2:main:1a2b3c4d:00000000000000000000000000000000000000000000000000000000000000000"
	     "0000000000000000000000000000000000000000000000000000000000000000000000000001:7:3:4")};
	enum { TEXTS = sizeof texts / sizeof *texts };

	(void)state;
	for (int first = 0; first < TEXTS; first++)
		for (int second = 0; second < TEXTS; second++) {
			struct position_memo memo = {0};
			struct outbox_position plain = {0}, read = {0};
			const char *text = texts[second];
			bool valid;

			(void)position_prefix_parse(&memo, texts[0], strlen(texts[0]), &read);
			(void)position_prefix_parse(
			    &memo, texts[first], strlen(texts[first]), &read);
			valid = outbox_position_parse(text, strlen(text), &plain);
			assert_int_equal(
			    position_prefix_parse(&memo, text, strlen(text), &read), valid);
			if (!valid)
				continue;
			assert_true(outbox_position_comparable(&read, &plain));
			assert_int_equal(read.tick, plain.tick);
			assert_int_equal(read.id, plain.id);
		}
}

static void assert_refused(const char *text, size_t length)
{
	struct outbox_position position;
	if (outbox_position_parse(text, length, &position))
		fail_msg("'%s' was taken", text);
}

static void what_is_no_position_of_version_2_is_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"", "2", "2:", "1:main:0:1:1:1",
	    "1:main:1a2b3c4d:0:1:1:1", "3:main:1a2b3c4d:0:1:1:1", "2:main:0:1:1:1",
	    "2:main:1a2b3c4d:0:1:1", "2:main:1a2b3c4d:0:1:1:1:", "2:main:1a2b3c4d:-1:1:1:1",
	    "2:main:1a2b3c4d:0:x:1:1", "2:main:1a2b3c4d:0:1:1:9223372036854775808",
	    "2:main:1a2b3c4d:0:1:1: 1", "2:main:1a2b3c4d:0:1:1:1:1", "2:main:1a2b3c4d:0:1::1",
	    "2:main:1a2b3c4d:0:1:1:1 ", "2:main:1a2b3c4d:2147483648:1:1:1",
	    ":main:1a2b3c4d:0:1:1:1", "2:main:1a2b3c4d:0:1:+1:1", "2:main:1a2b3c4d",
	    "2:main:1a2b3c4d:", "2:main"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_refused(texts[i], strlen(texts[i]));
}

static void an_identity_is_eight_digits_in_lower_case(void **state)
{
	(void)state;
	static const char *const texts[] = {"2:main::0:1:1:1", "2:main:1a2b3c4:0:1:1:1",
	    "2:main:1a2b3c4d5:0:1:1:1", "2:main:1A2B3C4D:0:1:1:1", "2:main:1a2b3c4g:0:1:1:1",
	    "2:main:1a2b 3c4:0:1:1:1", "2:main:-1a2b3c4:0:1:1:1",
	    "2:main:1a2b3c4d-0000-4000-8000-000000000000:0:1:1:1"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_refused(texts[i], strlen(texts[i]));
}

static void a_name_is_one_that_a_publisher_can_have(void **state)
{
	(void)state;
	static const char *const texts[] = {"2::1a2b3c4d:0:1:1:1", "2:Main:1a2b3c4d:0:1:1:1",
	    "2:ma in:1a2b3c4d:0:1:1:1", "2:m\xc3\xa4in:1a2b3c4d:0:1:1:1",
	    "2:a-name-that-is-longer-than-forty-characters:1a2b3c4d:0:1:1:1",
	    "2:a-name-of-forty-one-characters-is-too-lon:1a2b3c4d:0:1:1:1"};
	static const char longest[] = "2:a-name-of-forty-characters-may-still-do-:1a2b3c4d:0:1:1:1";
	struct outbox_position position;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_refused(texts[i], strlen(texts[i]));
	assert_true(outbox_position_parse(longest, sizeof longest - 1, &position));
	assert_int_equal(strlen(position.publisher), 40);
}

static void nul_is_no_part_of_one(void **state)
{
	(void)state;
	static const char good[] = "2:main:1a2b3c4d:0:1:1:1";
	for (size_t i = 0; i < sizeof good; i++) {
		char text[sizeof good];
		memcpy(text, good, sizeof good);
		text[i] = '\0';
		assert_refused(text, sizeof text);
		if (i < sizeof good - 1)
			assert_refused(text, sizeof text - 1);
	}
}

static void no_byte_behind_the_length_is_read(void **state)
{
	(void)state;
	static const char good[] = "2:main:1a2b3c4d:0:1:1:1";
	for (size_t length = 0; length < sizeof good - 1; length++) {
		char *cut = test_malloc(length + 1);
		memcpy(cut, good, length);
		assert_refused(cut, length);
		test_free(cut);
	}
	char endless[4096];
	memset(endless, '2', sizeof endless);
	assert_refused(endless, sizeof endless);
	endless[1] = ':';
	assert_refused(endless, sizeof endless);
}

static void positions_grow_by_tick_and_then_by_id(void **state)
{
	(void)state;
	const struct outbox_position early = {"main", "1a2b3c4d", 0, 5, 2, 90},
				     late = {"main", "1a2b3c4d", 0, 5, 3, 10},
				     later = {"main", "1a2b3c4d", 0, 5, 3, 11};
	assert_int_equal(outbox_position_compare(&early, &late), -1);
	assert_int_equal(outbox_position_compare(&later, &late), 1);
}

static void only_those_of_one_line_are_comparable(void **state)
{
	(void)state;
	const struct outbox_position one = {"main", "1a2b3c4d", 0, 5, 2, 90},
				     others[] = {{"man", "1a2b3c4d", 0, 5, 2, 90},
					 {"main", "1a2b3c4e", 0, 5, 2, 90},
					 {"main", "1a2b3c4d", 1, 5, 2, 90},
					 {"main", "1a2b3c4d", 0, 6, 2, 90}};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_false(outbox_position_comparable(&one, &others[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_position_survives_its_text),
	    cmocka_unit_test(the_longest_one_has_room),
	    cmocka_unit_test(a_memo_changes_no_answer),
	    cmocka_unit_test(one_prefix_does_for_many),
	    cmocka_unit_test(what_is_no_position_of_version_2_is_refused),
	    cmocka_unit_test(an_identity_is_eight_digits_in_lower_case),
	    cmocka_unit_test(a_name_is_one_that_a_publisher_can_have),
	    cmocka_unit_test(nul_is_no_part_of_one),
	    cmocka_unit_test(no_byte_behind_the_length_is_read),
	    cmocka_unit_test(positions_grow_by_tick_and_then_by_id),
	    cmocka_unit_test(only_those_of_one_line_are_comparable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
