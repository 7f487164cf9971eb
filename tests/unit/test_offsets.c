#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "offsets.h"

enum { ROOM = 4097 };
static char text[ROOM];

static const char *text_of(const struct offsets *offsets)
{
	size_t needed;
	size_t length = offsets_text(offsets, text, sizeof text, &needed);
	assert_int_equal(length, strlen(text));
	assert_int_equal(length, needed);
	return text;
}

static void take_all(struct offsets *offsets, int64_t from, int64_t to)
{
	for (int64_t i = from; i < to; i++)
		assert_true(offsets_take(offsets, i));
}

static void the_first_that_is_not_finished_is_committed(void **state)
{
	(void)state;
	OWNED(offsets_finish) struct offsets offsets;
	assert_true(offsets_init(&offsets, 100, ""));
	take_all(&offsets, 100, 110);
	assert_int_equal(offsets.done, 100);
	offsets_finished(&offsets, 101);
	offsets_finished(&offsets, 103);
	assert_int_equal(offsets.done, 100);
	assert_string_equal(text_of(&offsets), "bK"); /* bits 1 and 3 */
	offsets_finished(&offsets, 100);
	assert_int_equal(offsets.done, 102);
	assert_string_equal(text_of(&offsets), "bC");
	offsets_finished(&offsets, 102);
	assert_int_equal(offsets.done, 104);
	assert_string_equal(text_of(&offsets), "");
	assert_int_equal(offsets.unfinished, 6);
}

static void offsets_that_are_no_records_are_finished(void **state)
{
	(void)state;
	OWNED(offsets_finish) struct offsets offsets;
	assert_true(offsets_init(&offsets, 7, ""));
	assert_true(offsets_take(&offsets, 1000));
	assert_int_equal(offsets.done, 1000);
	assert_true(offsets_take(&offsets, 5000));
	assert_string_equal(text_of(&offsets), "rB_8D"); /* 1 is open, 3999 are finished */
	offsets_finished(&offsets, 1000);
	assert_int_equal(offsets.done, 5000);
}

static void a_gap_takes_no_memory_and_the_reach_bounds_it_behind_an_unfinished_one(void **state)
{
	(void)state;
	const int64_t far = INT64_C(4000000000);
	const size_t most = 100;
	OWNED(offsets_finish) struct offsets offsets, next;
	assert_true(offsets_init(&offsets, 0, ""));
	assert_true(offsets_reaches(&offsets, far) && offsets_take(&offsets, far));
	assert_true(offsets.done == far && offsets.capacity < most);
	assert_true(offsets_reaches(&offsets, far + OFFSETS_REACH - 1));
	assert_false(offsets_reaches(&offsets, far + OFFSETS_REACH));
	offsets_finished(&offsets, far);
	assert_true(offsets_reaches(&offsets, 2 * far) && offsets_take(&offsets, 2 * far));
	assert_true(offsets.done == 2 * far && offsets.capacity < most);
	/* what is as far as can be is written, and read */
	int64_t last = 2 * far + OFFSETS_REACH - 1;
	assert_true(offsets_reaches(&offsets, last) && offsets_take(&offsets, last));
	offsets_finished(&offsets, last);
	assert_true(offsets_init(&next, offsets.done, text_of(&offsets)));
	assert_true(offsets_is_finished(&next, last));
}

static void what_is_finished_beyond_a_gap_is_kept(void **state)
{
	(void)state;
	OWNED(offsets_finish) struct offsets offsets;
	assert_true(offsets_init(&offsets, 7, "rgggDB")); /* one, 98304 beyond */
	int64_t finished = 7 + 3 * 32768;
	assert_true(offsets_is_finished(&offsets, finished));
	offsets_skip(&offsets, finished - 5);
	assert_int_equal(offsets.done, finished - 5);
	assert_true(offsets_take(&offsets, finished - 5));
	assert_false(offsets_take(&offsets, finished));
	offsets_finished(&offsets, finished - 5);
	offsets_skip(&offsets, INT64_C(1) << 40);
	assert_true(offsets.done == INT64_C(1) << 40);
}

static void what_was_finished_is_not_taken_again(void **state)
{
	(void)state;
	OWNED(offsets_finish) struct offsets offsets, next;
	assert_true(offsets_init(&offsets, 0, ""));
	take_all(&offsets, 0, 1000);
	for (int i = 10; i < 1000; i++)
		offsets_finished(&offsets, i);
	assert_true(offsets_init(&next, offsets.done, text_of(&offsets)));
	take_all(&next, 0, 5);
	assert_string_equal(
	    text_of(&next), text_of(&offsets)); /* though it was not read again yet */
	take_all(&next, 5, 10);
	for (int i = 10; i < 1000; i++)
		assert_false(offsets_take(&next, i));
	assert_int_equal(next.unfinished, 10);
	for (int i = 0; i < 10; i++)
		offsets_finished(&next, i);
	assert_int_equal(next.done, 1000);
}

static void fifty_thousand_behind_a_stuck_one_fit(void **state)
{
	(void)state;
	OWNED(offsets_finish) struct offsets offsets, next;
	assert_true(offsets_init(&offsets, 123456789012, ""));
	take_all(&offsets, 123456789012, 123456789012 + 50001);
	srand(1);
	for (int64_t i = 1; i <= 50000; i++)
		if (rand() % 100)
			offsets_finished(&offsets, 123456789012 + i);
	assert_in_range(strlen(text_of(&offsets)), 1000, 4096 * 3 / 4);
	assert_true(offsets_init(&next, offsets.done, text));
	for (int64_t i = 0; i <= 50000; i++)
		assert_int_equal(offsets_is_finished(&next, 123456789012 + i),
		    offsets_is_finished(&offsets, 123456789012 + i));
}

static void what_does_not_fit_is_left_out_from_the_end(void **state)
{
	(void)state;
	OWNED(offsets_finish) struct offsets offsets, next;
	size_t needed;
	assert_true(offsets_init(&offsets, 0, ""));
	take_all(&offsets, 0, 30000);
	for (int i = 1; i < 30000; i += 3)
		offsets_finished(&offsets, i);
	for (size_t size = 1; size < 100; size++) {
		size_t length = offsets_text(&offsets, text, size, &needed);
		assert_true(length < size && needed == 5001);
		assert_true(offsets_init(&next, 0, text));
		for (int i = 0; i < 30000; i++)
			assert_true(
			    !offsets_is_finished(&next, i) || offsets_is_finished(&offsets, i));
		offsets_finish(&next);
	}
	assert_true(offsets_init(&next, 0, ""));
}

static void texts_of_others_are_told(void **state)
{
	(void)state;
	static const char *const bad[] = {
	    "x", "leader-epoch=5", "r!", "rg", "rggggggggggB", "b=", "b\x80", "r______-A", " r"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		OWNED(offsets_finish) struct offsets offsets;
		assert_false(offsets_init(&offsets, 5, bad[i]));
		assert_true(offsets_take(&offsets, 5) && offsets_take(&offsets, 70));
	}
}

/* A partition whose owners die, against a row of flags. */
static void walk(unsigned seed)
{
	enum { RECORDS = 3000, MOST = 100 };
	static bool finished[RECORDS], exists[RECORDS];
	int64_t committed = 0;
	srand(seed);
	memset(finished, 0, sizeof finished);
	for (int i = 0; i < RECORDS; i++)
		exists[i] = rand() % 10;
	text[0] = '\0';
	while (committed < RECORDS - 1) {
		OWNED(offsets_finish) struct offsets offsets;
		int64_t open[MOST], next = committed;
		int count = 0;
		assert_true(offsets_init(&offsets, committed, text));
		for (int steps = rand() % 2000; steps > 0; steps--) {
			while (next < RECORDS && !exists[next])
				next++;
			if (next < RECORDS && count < MOST && rand() % 2) {
				bool fresh = offsets_take(&offsets, next);
				assert_int_equal(fresh, !finished[next]);
				if (fresh)
					open[count++] = next;
				next++;
			} else if (count) {
				int chosen = rand() % count;
				offsets_finished(&offsets, open[chosen]);
				finished[open[chosen]] = true;
				open[chosen] = open[--count];
			}
		}
		for (int64_t i = committed; i < offsets.done; i++)
			assert_true(finished[i] || !exists[i]);
		assert_int_equal(offsets.unfinished, count);
		committed = offsets.done;
		text_of(&offsets);
		if (next == RECORDS && count == 0)
			break;
	}
}

static void no_owner_does_again_what_another_has_finished(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 300; seed++)
		walk(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_first_that_is_not_finished_is_committed),
	    cmocka_unit_test(offsets_that_are_no_records_are_finished),
	    cmocka_unit_test(
		a_gap_takes_no_memory_and_the_reach_bounds_it_behind_an_unfinished_one),
	    cmocka_unit_test(what_is_finished_beyond_a_gap_is_kept),
	    cmocka_unit_test(what_was_finished_is_not_taken_again),
	    cmocka_unit_test(fifty_thousand_behind_a_stuck_one_fit),
	    cmocka_unit_test(what_does_not_fit_is_left_out_from_the_end),
	    cmocka_unit_test(texts_of_others_are_told),
	    cmocka_unit_test(no_owner_does_again_what_another_has_finished),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
