#include "json_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TEXT(literal)                                                                              \
	{                                                                                          \
		literal, sizeof(literal) - 1                                                       \
	}

struct bytes {
	const char *at;
	size_t length;
};

/* In memory of just its length, so that a byte read behind it is seen. */
static bool is_json(struct bytes bytes)
{
	char *copy = malloc(bytes.length ? bytes.length : 1);
	bool answer;

	assert_non_null(copy);
	memcpy(copy, bytes.at, bytes.length);
	answer = json_text_is(copy, bytes.length);
	free(copy);
	return answer;
}

static void what_the_grammar_has_is_json(void **state)
{
	static const struct bytes good[] = {TEXT("{}"), TEXT("[]"), TEXT(" \t\r\n[ ] "), TEXT("0"),
	    TEXT("-0"), TEXT("-0.5e-7"), TEXT("12E+3"), TEXT("1e999"),
	    TEXT("123456789012345678901234567890"), TEXT("true"), TEXT("false"), TEXT("null"),
	    TEXT("\"\""), TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00E4\\uD83D\\uDE00\""),
	    TEXT("\"\x7f\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""),
	    TEXT("{\"a\" : [1, {\"b\":null}] , \"a\":2}")};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		if (!is_json(good[i]))
			fail_msg("not JSON: %s", good[i].at);
}

static void all_else_is_not(void **state)
{
	static const struct bytes bad[] = {TEXT(""), TEXT(" "), TEXT("{"), TEXT("["), TEXT("[1"),
	    TEXT("[1,"), TEXT("[1,]"), TEXT("[,1]"), TEXT("{,}"), TEXT("{\"a\"}"), TEXT("{\"a\":}"),
	    TEXT("{\"a\":1,}"), TEXT("{a:1}"), TEXT("{1:1}"), TEXT("[1 2]"), TEXT("1 2"),
	    TEXT("{}{}"), TEXT("[]]"), TEXT("[}"), TEXT("01"), TEXT("-"), TEXT("+1"), TEXT(".5"),
	    TEXT("1."), TEXT("1.e1"), TEXT("1e"), TEXT("1e+"), TEXT("0x1"), TEXT("NaN"),
	    TEXT("tru"), TEXT("truex"), TEXT("True"), TEXT("\""), TEXT("\"a"), TEXT("'a'"),
	    TEXT("\"\n\""), TEXT("\"\\x\""), TEXT("\"\\"), TEXT("\"\\u12\""), TEXT("\"\\u00g0\""),
	    TEXT("\"\\ud800\""), TEXT("\"\\ud800\\u0041\""), TEXT("\"\\udc00\""), TEXT("\"\xff\""),
	    TEXT("\"\xc3\""), TEXT("\"\xc3"), TEXT("\"\xed\xa0\x80\""), TEXT("\"\xc0\x80\""),
	    TEXT("\xef\xbb\xbf{}"), TEXT("\0"), TEXT("[1]\0"), TEXT("\"\0\""), TEXT("\"\\\0\""),
	    TEXT("\"\\u\0\0\0\0\"")};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (is_json(bad[i]))
			fail_msg("JSON: %s", bad[i].at);
}

static void depth_has_an_end(void **state)
{
	enum { DEEPEST = 2048 };
	char text[2 * (DEEPEST + 1)];

	(void)state;
	for (int depth = DEEPEST; depth <= DEEPEST + 1; depth++) {
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		assert_int_equal(json_text_is(text, 2 * (size_t)depth), depth == DEEPEST);
	}
}

static void limits_are_told_with_the_byte(void **state)
{
	static const struct json_limits limits = {.depth = 3, .values = 6};
	static const struct {
		struct bytes text;
		enum json_verdict verdict;
		size_t at;
	} cases[] = {
	    {TEXT("[[1],{\"a\":2},3]"), JSON_WELL_FORMED, 15},
	    {TEXT("[1,2,3,4,5]"), JSON_WELL_FORMED, 11},
	    {TEXT("[1,2,3,4,5,6]"), JSON_TOO_MANY_VALUES, 11},
	    {TEXT("[{},{},{},{},{},{}]"), JSON_TOO_MANY_VALUES, 16},
	    {TEXT("[[[1]]]"), JSON_TOO_DEEP, 3},
	    {TEXT("{\"a\":[{\"b\":1}]}"), JSON_TOO_DEEP, 11},
	    {TEXT("[[1 2]]"), JSON_MALFORMED, 4},
	    {TEXT(""), JSON_MALFORMED, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t at;

		assert_int_equal(
		    json_text_check(cases[i].text.at, cases[i].text.length, &limits, &at),
		    cases[i].verdict);
		assert_int_equal(at, cases[i].at);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_the_grammar_has_is_json),
	    cmocka_unit_test(all_else_is_not),
	    cmocka_unit_test(depth_has_an_end),
	    cmocka_unit_test(limits_are_told_with_the_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
