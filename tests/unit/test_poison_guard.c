#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "poison_guard.h"

enum { ROWS = 3 };

static struct poison_guard taken(int64_t owners, int64_t alone, poison_guard_turn *turn)
{
	struct poison_guard guard = {.turn = turn};
	poison_guard_begin(&guard, &(struct deaths){owners, alone, false}, 10, ROWS);
	return guard;
}

static struct poison_guard_row write_row(struct poison_guard *guard, struct poison_guard_step step)
{
	struct poison_guard_row row = poison_guard_next(guard, &step);
	poison_guard_written(guard, &row);
	return row;
}

static const struct poison_guard_step mark = {.marks = true, .published = true};
static const struct poison_guard_step mark_next = {
    .marks = true, .published = true, .progress = true};

static void progress_begins_the_count_anew(void **state)
{
	(void)state;
	struct poison_guard guard = taken(2, 0, NULL);
	assert_false(guard.active);
	write_row(&guard, (struct poison_guard_step){.renews = true});
	assert_int_equal(guard.deaths.owners, 2);
	write_row(&guard, (struct poison_guard_step){.progress = true});
	assert_int_equal(guard.deaths.owners, 0);
}

static void a_row_is_read_once_it_is_marked_and_then_none(void **state)
{
	(void)state;
	struct poison_guard guard = taken(DEATHS_ACTIVATE, 2, NULL);
	assert_true(guard.active);
	assert_false(poison_guard_reads(&guard));
	write_row(&guard, mark);
	assert_true(poison_guard_reads(&guard));
	guard.read = true;
	assert_false(poison_guard_reads(&guard));
	/* rows for other reasons leave the mark where it is */
	write_row(&guard, (struct poison_guard_step){0});
	assert_true(guard.deaths.marked);
	assert_int_equal(guard.deaths.alone, 2);
	write_row(&guard, mark_next);
	assert_true(poison_guard_reads(&guard));
	assert_int_equal(guard.deaths.alone, 0);
	assert_int_equal(guard.deaths.owners, DEATHS_ACTIVATE);
}

static void a_renewal_alone_acquits_no_convicted_row(void **state)
{
	(void)state;
	struct poison_guard guard = taken(DEATHS_ACTIVATE, DEATHS_CONVICT, NULL);
	write_row(&guard, mark);
	guard.read = true;
	assert_true(poison_guard_convicts(&guard));
	write_row(&guard, (struct poison_guard_step){.renews = true, .renews_alone = true});
	assert_true(poison_guard_convicts(&guard));
	assert_true(guard.deaths.marked);
	assert_true(guard.out);
	write_row(&guard, (struct poison_guard_step){.published = true, .progress = true});
	assert_int_equal(guard.deaths.alone, 0);
}

static void it_ends_after_so_many_rows_or_behind_the_windows_of_the_dead(void **state)
{
	(void)state;
	struct poison_guard guard = taken(DEATHS_ACTIVATE, 0, NULL);
	for (int i = 0; i < ROWS; i++) {
		write_row(&guard, mark_next);
		guard.read = true;
		assert_true(guard.active);
	}
	write_row(&guard, mark_next);
	assert_false(guard.active || guard.deaths.marked || guard.deaths.owners);

	guard = taken(DEATHS_ACTIVATE, 0, NULL);
	write_row(&guard, (struct poison_guard_step){.progress = true, .first_tick = 10});
	assert_true(guard.active);
	write_row(&guard, (struct poison_guard_step){.progress = true, .first_tick = 11});
	assert_false(guard.active);
}

static void after_many_rows_groups_go_and_a_death_in_one_names_nobody(void **state)
{
	(void)state;
	struct poison_guard guard = {0};
	poison_guard_begin(
	    &guard, &(struct deaths){DEATHS_ACTIVATE, 0, false}, 10, 16 * ROWS_ALONE);
	for (int i = 0; i < ROWS_ALONE; i++) {
		assert_true(write_row(&guard, mark_next).deaths.marked);
		assert_int_equal(guard.batch, 1);
		guard.read = true;
	}
	for (int64_t batch = 2; batch <= 64; batch *= 2) {
		assert_false(write_row(&guard, mark_next).deaths.marked);
		assert_true(poison_guard_reads(&guard));
		assert_int_equal(guard.batch, batch);
		guard.read = true;
	}
	assert_true(guard.active);
}

static void a_row_that_outlives_a_renewal_does_not_kill(void **state)
{
	(void)state;
	struct poison_guard guard = taken(DEATHS_ACTIVATE, 2, NULL);
	write_row(&guard, mark);
	guard.read = true;
	write_row(&guard, (struct poison_guard_step){.renews = true});
	assert_true(guard.active);
	assert_false(guard.deaths.marked || guard.deaths.alone);
	/* and does not keep the others back for ever */
	write_row(&guard, (struct poison_guard_step){.stuck = true});
	assert_false(guard.active);
	assert_int_equal(guard.deaths.owners, DEATHS_ACTIVATE);
}

static void three_deaths_alone_convict_once(void **state)
{
	(void)state;
	struct poison_guard guard = taken(DEATHS_ACTIVATE, DEATHS_CONVICT, NULL);
	assert_true(poison_guard_convicts(&guard));
	write_row(&guard, mark);
	assert_true(poison_guard_convicts(&guard));
	guard.read = true;
	write_row(&guard, (struct poison_guard_step){0}); /* nothing is in flight */
	assert_false(poison_guard_convicts(&guard) || guard.deaths.marked);
}

static void one_shard_of_a_process_has_the_turn(void **state)
{
	(void)state;
	poison_guard_turn turn = NULL;
	struct poison_guard a = {.turn = &turn}, b = {.turn = &turn};
	poison_guard_begin(&a, &(struct deaths){DEATHS_ACTIVATE, 0, false}, 10, ROWS);
	poison_guard_begin(&b, &(struct deaths){DEATHS_ACTIVATE, 0, false}, 10, ROWS);
	assert_true(poison_guard_has_turn(&a));
	assert_true(poison_guard_has_turn(&a));
	assert_false(poison_guard_has_turn(&b));
	poison_guard_end(&b); /* gives back nothing */
	assert_false(poison_guard_has_turn(&b));
	poison_guard_end(&a);
	assert_true(poison_guard_has_turn(&b));
	/* a guard whose rows are all published gives the turn back, and stays active */
	poison_guard_begin(&b, &(struct deaths){DEATHS_ACTIVATE, 0, false}, 10, ROWS);
	write_row(&b, mark);
	b.read = true;
	assert_false(poison_guard_has_turn(&a));
	write_row(&b, (struct poison_guard_step){.published = true, .progress = true});
	assert_true(b.active && poison_guard_has_turn(&a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(progress_begins_the_count_anew),
	    cmocka_unit_test(a_row_is_read_once_it_is_marked_and_then_none),
	    cmocka_unit_test(a_renewal_alone_acquits_no_convicted_row),
	    cmocka_unit_test(it_ends_after_so_many_rows_or_behind_the_windows_of_the_dead),
	    cmocka_unit_test(after_many_rows_groups_go_and_a_death_in_one_names_nobody),
	    cmocka_unit_test(a_row_that_outlives_a_renewal_does_not_kill),
	    cmocka_unit_test(three_deaths_alone_convict_once),
	    cmocka_unit_test(one_shard_of_a_process_has_the_turn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
