#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "copy_binary.h"

#define SIGNATURE "PGCOPY\n\377\r\n\0"
#define HEADER SIGNATURE "\0\0\0\0\0\0\0\0"
#define TRAILER "\377\377"

enum { MOST = 4 };

/* On a block of exactly that size, so that a sanitizer sees a step beyond it. */
struct parsed {
	char *block;
	struct copy_field fields[MOST];
	enum copy_kind kind;
	struct err err;
};

static bool parse(struct parsed *parsed, const char *bytes, size_t length, bool first, int count)
{
	free(parsed->block);
	parsed->block = malloc(length ? length : 1);
	assert_non_null(parsed->block);
	memcpy(parsed->block, bytes, length);
	return copy_parse(
	    parsed->block, (int)length, first, parsed->fields, count, &parsed->kind, &parsed->err);
}
#define PARSE(parsed, literal, first, count)                                                       \
	parse(parsed, literal, sizeof(literal) - 1, first, count)

static void assert_refused(const char *bytes, size_t length, bool first, int count, const char *why)
{
	struct parsed parsed = {0};
	assert_false(parse(&parsed, bytes, length, first, count));
	assert_int_equal(parsed.err.kind, ERR_FATAL);
	if (!strstr(parsed.err.message, why))
		fail_msg("\"%s\" does not speak of \"%s\"", parsed.err.message, why);
	free(parsed.block);
}
#define REFUSED(literal, first, count, why)                                                        \
	assert_refused(literal, sizeof(literal) - 1, first, count, why)

static void a_field_points_into_the_row(void **state)
{
	(void)state;
	struct parsed parsed = {0};
	assert_true(PARSE(&parsed,
	    "\0\3"
	    "\0\0\0\2"
	    "ab"
	    "\0\0\0\0"
	    "\0\0\0\1"
	    "c",
	    false, 3));
	assert_int_equal(parsed.kind, COPY_ROW);
	assert_int_equal(parsed.fields[0].length, 2);
	assert_ptr_equal(parsed.fields[0].data, parsed.block + 6);
	assert_int_equal(parsed.fields[1].length, 0);
	assert_non_null(parsed.fields[1].data);
	assert_memory_equal(parsed.fields[2].data, "c", 1);
	free(parsed.block);
}

static void null_is_told_from_an_empty_value(void **state)
{
	(void)state;
	struct parsed parsed = {0};
	assert_true(PARSE(&parsed, "\0\2\377\377\377\377\0\0\0\0", false, 2));
	assert_null(parsed.fields[0].data);
	assert_int_equal(parsed.fields[0].length, 0);
	assert_non_null(parsed.fields[1].data);
	free(parsed.block);
}

static void the_first_message_holds_the_header_and_a_row(void **state)
{
	(void)state;
	struct parsed parsed = {0};
	assert_true(PARSE(&parsed, HEADER "\0\1\0\0\0\1x", true, 1));
	assert_int_equal(parsed.kind, COPY_ROW);
	assert_memory_equal(parsed.fields[0].data, "x", 1);
	assert_true(PARSE(&parsed, HEADER "\0\0", true, 0));
	assert_int_equal(parsed.kind, COPY_ROW);
	free(parsed.block);
}

static void a_header_extension_and_harmless_flags_are_skipped(void **state)
{
	(void)state;
	struct parsed parsed = {0};
	assert_true(PARSE(&parsed,
	    SIGNATURE "\0\0\377\377\0\0\0\3"
		      "ext\0\1\0\0\0\1x",
	    true, 1));
	assert_memory_equal(parsed.fields[0].data, "x", 1);
	free(parsed.block);
}

static void the_trailer_ends_a_stream_with_and_without_rows(void **state)
{
	(void)state;
	struct parsed parsed = {0};
	assert_true(PARSE(&parsed, TRAILER, false, 3));
	assert_int_equal(parsed.kind, COPY_TRAILER);
	assert_true(PARSE(&parsed, HEADER TRAILER, true, 3));
	assert_int_equal(parsed.kind, COPY_TRAILER);
	free(parsed.block);
	REFUSED(TRAILER "x", false, 3, "behind the trailer");
}

static void a_broken_header_is_refused(void **state)
{
	(void)state;
	REFUSED("", true, 1, "short file header");
	REFUSED("PGCOPY\n", true, 1, "short file header");
	REFUSED("PGCOPY\n\377\n\n\0\0\0\0\0\0\0\0\0\377\377", true, 1, "signature");
	REFUSED(SIGNATURE "\0\1\0\0\0\0\0\0" TRAILER, true, 1, "critical flag");
	REFUSED(SIGNATURE "\0\0\0\0\377\377\377\377" TRAILER, true, 1, "header extension");
	REFUSED(SIGNATURE "\0\0\0\0\177\377\377\377" TRAILER, true, 1, "header extension");
	REFUSED(HEADER, true, 1, "no field count");
}

static void a_broken_row_is_refused(void **state)
{
	(void)state;
	REFUSED("", false, 1, "no field count");
	REFUSED("\0", false, 1, "no field count");
	REFUSED("\0\1\0\0\0\1x", false, 2, "a row of 1 fields, expected 2");
	REFUSED("\377\376", false, 1, "a row of -2 fields");
	REFUSED("\0\1", false, 1, "no field length");
	REFUSED("\0\1\0\0\0", false, 1, "no field length");
	REFUSED("\0\1\0\0\0\2x", false, 1, "bad field length");
	REFUSED("\0\1\177\377\377\377x", false, 1, "bad field length");
	REFUSED("\0\1\200\0\0\0x", false, 1, "bad field length");
	REFUSED("\0\1\377\377\377\376x", false, 1, "bad field length");
	REFUSED("\0\1\0\0\0\1xy", false, 1, "behind the last field");
}

static void every_cut_of_a_stream_is_refused(void **state)
{
	(void)state;
	static const char row[] = HEADER "\0\2\0\0\0\3abc\377\377\377\377";
	for (size_t length = 0; length < sizeof row - 1; length++)
		assert_refused(row, length, true, 2, "COPY binary: ");
}

static void integers_are_big_endian_at_any_address(void **state)
{
	(void)state;
	assert_int_equal(copy_int16(&"x\377\376"[1]), -2);
	assert_int_equal(copy_int32(&"x\0\1\2\3"[1]), 0x00010203);
	assert_int_equal(copy_int32("\200\0\0\0"), INT32_MIN);
	assert_true(copy_int64(&"x\0\1\2\3\4\5\6\7"[1]) == 0x0001020304050607);
	assert_true(copy_int64("\377\377\377\377\377\377\377\377") == -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_field_points_into_the_row),
	    cmocka_unit_test(null_is_told_from_an_empty_value),
	    cmocka_unit_test(the_first_message_holds_the_header_and_a_row),
	    cmocka_unit_test(a_header_extension_and_harmless_flags_are_skipped),
	    cmocka_unit_test(the_trailer_ends_a_stream_with_and_without_rows),
	    cmocka_unit_test(a_broken_header_is_refused),
	    cmocka_unit_test(a_broken_row_is_refused),
	    cmocka_unit_test(every_cut_of_a_stream_is_refused),
	    cmocka_unit_test(integers_are_big_endian_at_any_address),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
