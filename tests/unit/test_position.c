#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "position.h"

static void a_position_survives_its_text(void **state)
{
	(void)state;
	const struct outbox_position position = {"orders_2-eu", 63, INT64_MAX, 1, 9007199254740993};
	char text[OUTBOX_POSITION_SIZE];
	struct outbox_position read;
	size_t length = outbox_position_format(&position, text);
	assert_string_equal(text, "1:orders_2-eu:63:9223372036854775807:1:9007199254740993");
	assert_int_equal(length, strlen(text));
	assert_true(outbox_position_parse(text, length, &read));
	assert_string_equal(read.slot, position.slot);
	assert_int_equal(read.shard, position.shard);
	assert_int_equal(read.epoch, position.epoch);
	assert_int_equal(outbox_position_compare(&read, &position), 0);
}

static void what_is_no_position_of_version_1_is_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"", "1", "2:main:0:1:1:1", "1:main:0:1:1",
	    "1:main:0:1:1:1:", "1::0:1:1:1", "1:main:-1:1:1:1", "1:main:0:x:1:1",
	    "1:main:0:1:1:9223372036854775808", "1:main:0:1:1: 1", "1:main:0:1:1:1:1",
	    "1:main:0:1::1", "1:main:2147483648:1:1:1", "1:main:0:1:1:1 ", "1:", ":main:0:1:1:1",
	    "1:main:0:1:+1:1", "1:a-name-that-is-longer-than-forty-characters:0:1:1:1"};
	struct outbox_position position;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_false(outbox_position_parse(texts[i], strlen(texts[i]), &position));
	char longest[4096];
	memset(longest, '1', sizeof longest);
	assert_false(outbox_position_parse(longest, sizeof longest, &position));
}

static void positions_grow_by_tick_and_then_by_id(void **state)
{
	(void)state;
	const struct outbox_position early = {"main", 0, 5, 2, 90}, late = {"main", 0, 5, 3, 10},
				     later = {"main", 0, 5, 3, 11};
	assert_int_equal(outbox_position_compare(&early, &late), -1);
	assert_int_equal(outbox_position_compare(&later, &late), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_position_survives_its_text),
	    cmocka_unit_test(what_is_no_position_of_version_1_is_refused),
	    cmocka_unit_test(positions_grow_by_tick_and_then_by_id),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
