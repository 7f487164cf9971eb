#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "commit_text.h"

static struct offsets finished_beyond(int64_t committed, int64_t count)
{
	struct offsets offsets;
	offsets_init(&offsets, committed, "");
	for (int64_t i = 0; i <= count; i++)
		offsets_take(&offsets, committed + i);
	for (int64_t i = 1; i <= count; i++)
		offsets_finished(&offsets, committed + i);
	return offsets;
}

static void what_is_written_is_read(void **state)
{
	struct offsets offsets = finished_beyond(100, 50), again;
	char text[COMMIT_TEXT_SIZE];
	const char *finished, *mark;
	(void)state;
	size_t length = commit_text_write(&offsets, "2:main:1a2b3c4d:0:1:2:3", text);
	assert_int_equal(length, strlen(text));
	assert_string_equal(text, "inbox1:rByB:2:main:1a2b3c4d:0:1:2:3");
	assert_true(commit_text_parse(text, &finished, &mark));
	assert_string_equal(mark, "2:main:1a2b3c4d:0:1:2:3");
	assert_true(offsets_init(&again, 100, finished));
	assert_false(offsets_is_finished(&again, 100));
	assert_true(offsets_is_finished(&again, 101));
	assert_true(offsets_is_finished(&again, 150));
	assert_false(offsets_is_finished(&again, 151));
	offsets_finish(&offsets);
	offsets_finish(&again);
}

static void nothing_to_say_is_no_text(void **state)
{
	struct offsets offsets = finished_beyond(7, 0);
	char text[COMMIT_TEXT_SIZE];
	const char *finished, *mark;
	(void)state;
	commit_text_write(&offsets, "", text);
	assert_string_equal(text, "");
	assert_true(commit_text_parse(text, &finished, &mark));
	assert_string_equal(finished, "");
	assert_string_equal(mark, "");
	offsets_finish(&offsets);
}

static void a_text_of_somebody_else_is_none_of_ours(void **state)
{
	static const char *const texts[] = {
	    "x", "inbox1", "inbox1:", "inbox2:rB::", "leader-epoch=3"};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		char text[40];
		const char *finished = NULL, *mark = NULL;
		snprintf(text, sizeof text, "%s", texts[i]);
		assert_false(commit_text_parse(text, &finished, &mark));
		assert_string_equal(finished, "");
		assert_string_equal(mark, "");
	}
}

static void what_does_not_fit_is_told_and_left_out(void **state)
{
	struct offsets offsets, again;
	char text[COMMIT_TEXT_SIZE];
	const char *finished, *mark;
	(void)state;
	offsets_init(&offsets, 0, "");
	for (int64_t i = 0; i < 60000; i++)
		offsets_take(&offsets, i);
	for (int64_t i = 1; i < 60000; i += 2)
		offsets_finished(&offsets, i);
	assert_true(commit_text_write(&offsets, "2:m:1a2b3c4d:0:1:2:3", text) > sizeof text - 1);
	assert_true(strlen(text) < sizeof text);
	assert_true(commit_text_parse(text, &finished, &mark));
	assert_string_equal(mark, "2:m:1a2b3c4d:0:1:2:3");
	assert_true(offsets_init(&again, 0, finished));
	for (int64_t i = 0; i < 60000; i++)
		assert_true(!offsets_is_finished(&again, i) || i % 2 == 1);
	assert_true(offsets_is_finished(&again, 1));
	offsets_finish(&offsets);
	offsets_finish(&again);
}

static void what_a_mark_leaves_is_the_limit(void **state)
{
	(void)state;
	for (size_t mark = 0; mark <= COMMIT_TEXT_MARK; mark += 8) {
		size_t none = COMMIT_TEXT_FORM + mark, room = COMMIT_TEXT_SIZE - 1 - none;
		assert_false(commit_text_is_full(false, none, mark));
		assert_false(commit_text_is_full(true, none, mark)); /* it goes on in the end */
		assert_false(commit_text_is_full(false, none + room * 3 / 4, mark));
		assert_true(commit_text_is_full(false, none + room * 3 / 4 + 1, mark));
		assert_true(commit_text_is_full(true, none + room * 3 / 8 + 1, mark));
	}
}

static void a_mark_that_fills_all_of_it_is_kept(void **state)
{
	struct offsets offsets = finished_beyond(7, 3);
	char text[COMMIT_TEXT_SIZE], mark[COMMIT_TEXT_MARK + 1];
	const char *finished, *read;
	(void)state;
	memset(mark, 'm', COMMIT_TEXT_MARK);
	mark[COMMIT_TEXT_MARK] = '\0';
	assert_true(commit_text_write(&offsets, mark, text) > COMMIT_TEXT_SIZE - 1);
	assert_int_equal(strlen(text), COMMIT_TEXT_SIZE - 1);
	assert_true(commit_text_parse(text, &finished, &read));
	assert_string_equal(finished, "");
	assert_string_equal(read, mark);
	offsets_finish(&offsets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_is_read),
	    cmocka_unit_test(nothing_to_say_is_no_text),
	    cmocka_unit_test(a_text_of_somebody_else_is_none_of_ours),
	    cmocka_unit_test(what_does_not_fit_is_told_and_left_out),
	    cmocka_unit_test(what_a_mark_leaves_is_the_limit),
	    cmocka_unit_test(a_mark_that_fills_all_of_it_is_kept),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
