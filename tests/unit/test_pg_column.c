#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pg_column.h"

#define EXPECT(column, literal) expect(column, literal, sizeof(literal) - 1)

static void expect(struct pg_column *column, const char *bytes, size_t length)
{
	struct pg_param param = pg_column_param(column);

	assert_int_equal(param.length, length);
	assert_memory_equal(param.text, bytes, length);
}

static void a_column_of_nothing_has_no_dimension_but_a_type(void **state)
{
	struct pg_column column = {.type = PG_COLUMN_TEXT};

	(void)state;
	EXPECT(&column, "\0\0\0\0\0\0\0\0\0\0\0\x19");
	pg_column_finish(&column);
}

static void texts_are_as_they_are_and_null_is_none(void **state)
{
	struct pg_column column = {.type = PG_COLUMN_TEXT};

	(void)state;
	(void)pg_column_param(&column); /* does not matter */
	pg_column_add_text(&column, "{\"\\");
	pg_column_add_text(&column, NULL);
	pg_column_add_text(&column, "");
	EXPECT(&column, "\0\0\0\1\0\0\0\1\0\0\0\x19\0\0\0\3\0\0\0\1"
			"\0\0\0\3{\"\\\xff\xff\xff\xff\0\0\0\0");
	pg_column_clear(&column);
	pg_column_add_text(&column, "a");
	EXPECT(&column, "\0\0\0\1\0\0\0\0\0\0\0\x19\0\0\0\1\0\0\0\1\0\0\0\1"
			"a");
	pg_column_finish(&column);
}

static void numbers_are_as_wide_as_their_type(void **state)
{
	struct pg_column small = {.type = PG_COLUMN_INT}, large = {.type = PG_COLUMN_BIGINT};

	(void)state;
	pg_column_add_int(&small, -2);
	pg_column_add_int(&large, 258);
	EXPECT(&small, "\0\0\0\1\0\0\0\0\0\0\0\x17\0\0\0\1\0\0\0\1"
		       "\0\0\0\4\xff\xff\xff\xfe");
	EXPECT(&large, "\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0\1\0\0\0\1"
		       "\0\0\0\x8\0\0\0\0\0\0\1\2");
	pg_column_finish(&small);
	pg_column_finish(&large);
}

static void bytes_may_be_none_or_any(void **state)
{
	struct pg_column column = {.type = PG_COLUMN_BYTEA};

	(void)state;
	pg_column_add_bytes(&column, "\0\xff", 2);
	pg_column_add_bytes(&column, "", 0);
	pg_column_add_bytes(&column, NULL, 0);
	EXPECT(&column, "\0\0\0\1\0\0\0\1\0\0\0\x11\0\0\0\3\0\0\0\1"
			"\0\0\0\2\0\xff\0\0\0\0\xff\xff\xff\xff");
	pg_column_finish(&column);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_column_of_nothing_has_no_dimension_but_a_type),
	    cmocka_unit_test(texts_are_as_they_are_and_null_is_none),
	    cmocka_unit_test(numbers_are_as_wide_as_their_type),
	    cmocka_unit_test(bytes_may_be_none_or_any),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
