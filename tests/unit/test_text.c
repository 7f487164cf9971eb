#include "text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void an_empty_text_is_an_empty_string(void **state)
{
	struct text text = {0};

	(void)state;
	assert_string_equal(text_string(&text), "");
	text_append(&text, NULL, 0);
	assert_string_equal(text.data, "");
	text_finish(&text);
}

static void a_text_grows_and_stays_terminated(void **state)
{
	struct text text = {0};

	(void)state;
	for (int i = 0; i < 1000; i++) {
		text_add(&text, "ab");
		text_append(&text, "cdef", 2);
		text_addf(&text, "%03d", i);
		assert_int_equal(text.length, (i + 1) * 7);
		assert_int_equal(strlen(text.data), text.length);
	}
	assert_true(text_starts(text.data + 6993, "abcd999"));
	text_clear(&text);
	assert_string_equal(text_string(&text), "");
	text_finish(&text);
}

static void a_number_is_read_whole_or_not_at_all(void **state)
{
	static const char *const wrong[] = {"", "-", " 1", "1 ", "+1", "1x", "0x1", "1.0", "--1",
	    "9223372036854775808", "-9223372036854775809", "99999999999999999999999"};
	int64_t value = 7;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(text_to_int64(wrong[i], INT64_MIN, INT64_MAX, &value));
	assert_int_equal(value, 7);
	assert_true(text_to_int64("9223372036854775807", 0, INT64_MAX, &value));
	assert_true(value == INT64_MAX);
	assert_true(text_to_int64("-9223372036854775808", INT64_MIN, 0, &value));
	assert_true(value == INT64_MIN);
	assert_true(text_to_int64("007", 0, 7, &value));
	assert_int_equal(value, 7);
	assert_false(text_to_int64("8", 0, 7, &value));
	assert_false(text_to_int64("-1", 0, 7, &value));
}

static void a_number_is_written_as_printf_would(void **state)
{
	static const int64_t numbers[] = {
	    0, 1, -1, 9, 10, -10, 1234567890123, INT64_MAX, INT64_MIN};

	(void)state;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		char digits[21];
		char *expected = xformat("%lld", (long long)numbers[i]);
		*text_write_int64(digits, numbers[i]) = '\0';
		assert_string_equal(digits, expected);
		free(expected);
	}
}

static void well_formed_utf8_has_a_code_point(void **state)
{
	uint32_t code;

	(void)state;
	assert_int_equal(text_utf8("", &code), 1);
	assert_int_equal(code, 0);
	assert_int_equal(text_utf8("a", &code), 1);
	assert_int_equal(code, 'a');
	assert_int_equal(text_utf8("\xc3\xa4", &code), 2);
	assert_int_equal(code, 0xe4);
	assert_int_equal(text_utf8("\xe2\x82\xac", &code), 3);
	assert_int_equal(code, 0x20ac);
	assert_int_equal(text_utf8("\xf0\x9f\x98\x80", &code), 4);
	assert_int_equal(code, 0x1f600);
}

static void ill_formed_utf8_has_none(void **state)
{
	static const char *const wrong[] = {"\x80", "\xbf", "\xff", "\xc3", "\xc3x", "\xc0\x80",
	    "\xc1\xbf", "\xe0\x80\x80", "\xe2\x82", "\xed\xa0\x80", "\xf0\x80\x80\x80",
	    "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xf0\x9f\x98"};
	uint32_t code;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(text_utf8(wrong[i], &code), 0);
}

static void base64_of_the_rfc_is_decoded(void **state)
{
	static const char *const pairs[][2] = {{"", ""}, {"Zg==", "f"}, {"Zm8=", "fo"},
	    {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}, {"Zm9vYmE=", "fooba"}, {"Zm9vYmFy", "foobar"},
	    {"+/+/", "\xfb\xff\xbf"}};

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		void *bytes;
		size_t length;
		assert_true(text_base64_decode(pairs[i][0], strlen(pairs[i][0]), &bytes, &length));
		assert_int_equal(length, strlen(pairs[i][1]));
		assert_memory_equal(bytes, pairs[i][1], length);
		free(bytes);
	}
}

static void what_is_not_base64_is_refused(void **state)
{
	static const char *const wrong[] = {"Z", "Zg",
	    "Zg=", "Zh==", "Zm9=", "====", "Z===", "Zg==Zg==", "Zm 9", "Zm9v\n", "Zm9-", "=m9v",
	    "Zm=v"};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		void *bytes;
		size_t length;
		assert_false(text_base64_decode(wrong[i], strlen(wrong[i]), &bytes, &length));
	}
}

static void equal_knows_null(void **state)
{
	(void)state;
	assert_true(text_equal(NULL, NULL));
	assert_false(text_equal(NULL, ""));
	assert_false(text_equal("", NULL));
	assert_true(text_equal("a", "a"));
	assert_false(text_equal("a", "b"));
	assert_null(xstrdup(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_empty_text_is_an_empty_string),
	    cmocka_unit_test(a_text_grows_and_stays_terminated),
	    cmocka_unit_test(a_number_is_read_whole_or_not_at_all),
	    cmocka_unit_test(a_number_is_written_as_printf_would),
	    cmocka_unit_test(well_formed_utf8_has_a_code_point),
	    cmocka_unit_test(ill_formed_utf8_has_none),
	    cmocka_unit_test(base64_of_the_rfc_is_decoded),
	    cmocka_unit_test(what_is_not_base64_is_refused),
	    cmocka_unit_test(equal_knows_null),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
