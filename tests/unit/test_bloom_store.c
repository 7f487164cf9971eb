#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "dedup_walk.h"
#include "temporary.h"
#include "text.h"

static char folder[TEMPORARY];

static int begin(void **state)
{
	(void)state;
	return temporary_make(folder) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	temporary_remove(folder);
	return 0;
}

/* --- what is its own ------------------------------------------------------------------------- */

static struct outbox_dedup *open_with(const char *settings)
{
	owned_text char *line = xformat("bloom %s path=%s", settings, folder);
	return dedup_walk_open(line);
}

static void the_observed_rate_is_that_of_the_load(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=20k rate=5% slices=1");
	dedup_walk(dedup, 0, 20000, -1, true);
	dedup_walk_checkpoint(dedup, -1); /* its filter has what is written */
	/* two stretches, the second all behind the filling */
	dedup_walk(dedup, 1000000, 132000, -1, false);
	struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
	print_message("planned %g, observed %g\n", stats.planned_rate, stats.observed_rate);
	assert_true(fabs(stats.observed_rate / stats.planned_rate - 1) < 0.15);
	assert_false(stats.alarm);
	assert_int_equal(stats.slices, 1);
	outbox_dedup_close(dedup);
}

static void a_rate_beyond_the_threshold_is_told_and_splits_no_slice(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=20k rate=5% slices=1 alarm=0.01%");
	dedup_walk(dedup, 0, 10000, -1, true);
	dedup_walk_checkpoint(dedup, -1);
	dedup_walk(dedup, 1000000, 66000, -1, false);
	assert_true(dedup_walk_stats(dedup).alarm);
	assert_int_equal(dedup_walk_stats(dedup).slices, 1);
	dedup_walk(dedup, 20000, 1000, -1, true);
	assert_int_equal(dedup_walk_stats(dedup).slices, 1);
	assert_int_equal(dedup_walk(dedup, 0, 10000, -1, false), 0);
	outbox_dedup_close(dedup);
}

static void more_than_planned_grow_by_sub_slices(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=1k rate=1% slices=1");
	dedup_walk(dedup, 0, 10000, -1, true);
	assert_in_range(dedup_walk_stats(dedup).slices, 3, 6);
	assert_int_equal(dedup_walk_stats(dedup).sub_slices, dedup_walk_stats(dedup).slices - 1);
	assert_int_equal(dedup_walk_stats(dedup).ids, 10000);
	assert_true(dedup_walk_stats(dedup).planned_rate <= 0.01);
	assert_int_equal(dedup_walk(dedup, 0, 10000, -1, false), 0);
	outbox_dedup_close(dedup);
}

/* 31 slices are asked, each of which has its share: at 1 % each they would have 27 % together. */
static void thirty_daily_slices_meet_the_rate_of_all_of_them(void **state)
{
	(void)state;
	enum { A_DAY = 2000, DAYS = 31, LOOKS = 200000 };
	const int64_t day_ms = 86400000;
	int64_t now_ms = clock_wall_us() / 1000;
	struct outbox_dedup *dedup = open_with("ids=60k rate=1% window=30d slices=30");
	for (int day = DAYS; day >= 0; day--)
		dedup_walk(
		    dedup, (uint64_t)(DAYS - day) * A_DAY, A_DAY, now_ms - day * day_ms, true);
	assert_int_equal(dedup_walk_stats(dedup).slices, 31);
	dedup_walk_checkpoint(dedup, -1);
	/* of all of the last 30 days, at both ends; what is older has been dropped */
	assert_int_equal(dedup_walk(dedup, A_DAY, 30 * A_DAY, -1, false), 0);
	assert_int_equal(dedup_walk(dedup, 0, A_DAY, -1, false), A_DAY);
	uint64_t before = dedup_walk_stats(dedup).false_hits;
	dedup_walk(dedup, 1000000, LOOKS, -1, false);
	double rate = (double)(dedup_walk_stats(dedup).false_hits - before) / LOOKS;
	print_message("%g of the whole window\n", rate);
	assert_true(rate > 0.005 && rate < 0.01);
	outbox_dedup_close(dedup);
}

/* By a user who is not root, if the test is. */
static void a_folder_that_may_not_be_written_is_told(void **state)
{
	(void)state;
	struct outbox_error error;
	uid_t user = geteuid();
	owned_text char *line = xformat("bloom ids=1k path=%s", folder);
	outbox_dedup_close(dedup_walk_open(line));
	assert_int_equal(chmod(folder, 0555), 0);
	assert_true(user != 0 || seteuid(65534) == 0);
	assert_null(outbox_dedup_open(line, &error));
	assert_true(user != 0 || seteuid(user) == 0);
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(error.kind, OUTBOX_DENIED);
	assert_non_null(strstr(error.message, folder));
	assert_non_null(strstr(error.message, "give this user the folder of path"));
}

static void a_hot_id_asks_no_filter(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10k hot=1024");
	dedup_walk(dedup, 7, 1, -1, true);
	for (int i = 0; i < 100; i++)
		assert_int_equal(dedup_walk(dedup, 7, 1, -1, true), 0);
	assert_int_equal(dedup_walk_stats(dedup).filter_hits, 0);
	dedup_walk(dedup, 1000, 9000, -1, true); /* others take its place */
	dedup_walk_checkpoint(dedup, -1);
	assert_int_equal(dedup_walk(dedup, 7, 1, -1, true), 0);
	assert_in_range(dedup_walk_stats(dedup).filter_hits, 1, 100);
	outbox_dedup_close(dedup);
}

static void the_offset_of_the_last_checkpoint_comes_back(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10k");
	assert_int_equal(dedup_walk_stats(dedup).offset, -1);
	dedup_walk(dedup, 7, 1, -1, true);
	dedup_walk_checkpoint(dedup, 42);
	outbox_dedup_close(dedup);
	dedup = open_with("ids=10k");
	assert_int_equal(dedup_walk_stats(dedup).offset, 42);
	outbox_dedup_close(dedup);
}

static void what_is_pending_is_bounded(void **state)
{
	(void)state;
	struct outbox_error error;
	uint64_t numbers[3] = {1, 2, 3};
	struct outbox_dedup_id ids[3];
	enum outbox_dedup_state states[3];
	struct outbox_dedup *dedup = open_with("ids=10k pending=2");
	for (int i = 0; i < 3; i++)
		ids[i] = (struct outbox_dedup_id){&numbers[i], sizeof *numbers, -1, -1};
	assert_false(outbox_dedup_check(dedup, ids, 3, states, &error));
	assert_int_equal(error.kind, OUTBOX_RETRY);
	assert_non_null(strstr(error.message, "pending="));
	assert_true(outbox_dedup_check(dedup, ids, 2, states, &error));
	assert_true(outbox_dedup_done(dedup, ids, 1, &error));
	assert_true(outbox_dedup_check(dedup, ids + 2, 1, states, &error));
	outbox_dedup_close(dedup);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(the_observed_rate_is_that_of_the_load, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_rate_beyond_the_threshold_is_told_and_splits_no_slice, begin, end),
	    cmocka_unit_test_setup_teardown(more_than_planned_grow_by_sub_slices, begin, end),
	    cmocka_unit_test_setup_teardown(
		thirty_daily_slices_meet_the_rate_of_all_of_them, begin, end),
	    cmocka_unit_test_setup_teardown(a_folder_that_may_not_be_written_is_told, begin, end),
	    cmocka_unit_test_setup_teardown(a_hot_id_asks_no_filter, begin, end),
	    cmocka_unit_test_setup_teardown(
		the_offset_of_the_last_checkpoint_comes_back, begin, end),
	    cmocka_unit_test_setup_teardown(what_is_pending_is_bounded, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
