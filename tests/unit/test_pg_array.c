#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pg_array.h"

static void an_array_of_nothing_is_empty(void **state)
{
	struct pg_array array = {0};

	(void)state;
	assert_string_equal(pg_array_end(&array), "{}");
	pg_array_finish(&array);
}

static void texts_are_quoted_and_null_is_not(void **state)
{
	struct pg_array array = {0};

	(void)state;
	pg_array_add_text(&array, "NULL");
	pg_array_add_text(&array, NULL);
	pg_array_add_text(&array, "a\"b\\c,{d}");
	pg_array_add_text(&array, "");
	assert_string_equal(pg_array_end(&array), "{\"NULL\",NULL,\"a\\\"b\\\\c,{d}\",\"\"}");
	pg_array_clear(&array);
	pg_array_add_int(&array, -7);
	pg_array_add_int(&array, INT64_MAX);
	assert_string_equal(pg_array_end(&array), "{-7,9223372036854775807}");
	pg_array_finish(&array);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_array_of_nothing_is_empty),
	    cmocka_unit_test(texts_are_quoted_and_null_is_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
