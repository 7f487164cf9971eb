#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "careful.h"

enum { ROWS = 3 };

static struct careful taken(int64_t owners, int64_t alone, careful_turn *turn)
{
	struct careful careful = {.turn = turn};
	careful_begin(&careful, &(struct deaths){owners, alone, false}, 10, ROWS);
	return careful;
}

static struct careful_row write_row(struct careful *careful, struct careful_step step)
{
	struct careful_row row = careful_next(careful, &step);
	careful_written(careful, &row);
	return row;
}

static const struct careful_step mark = {.marks = true, .published = true};
static const struct careful_step mark_next = {.marks = true, .published = true, .progress = true};

static void progress_begins_the_count_anew(void **state)
{
	(void)state;
	struct careful careful = taken(2, 0, NULL);
	assert_false(careful.active);
	write_row(&careful, (struct careful_step){.renews = true});
	assert_int_equal(careful.deaths.owners, 2);
	write_row(&careful, (struct careful_step){.progress = true});
	assert_int_equal(careful.deaths.owners, 0);
}

static void a_row_is_read_once_it_is_marked_and_then_none(void **state)
{
	(void)state;
	struct careful careful = taken(DEATHS_CAREFUL, 2, NULL);
	assert_true(careful.active);
	assert_false(careful_reads(&careful));
	write_row(&careful, mark);
	assert_true(careful_reads(&careful));
	careful.read = true;
	assert_false(careful_reads(&careful));
	/* rows for other reasons leave the mark where it is */
	write_row(&careful, (struct careful_step){0});
	assert_true(careful.deaths.marked);
	assert_int_equal(careful.deaths.alone, 2);
	write_row(&careful, mark_next);
	assert_true(careful_reads(&careful));
	assert_int_equal(careful.deaths.alone, 0);
	assert_int_equal(careful.deaths.owners, DEATHS_CAREFUL);
}

static void a_renewal_alone_acquits_no_convicted_row(void **state)
{
	(void)state;
	struct careful careful = taken(DEATHS_CAREFUL, DEATHS_CONVICT, NULL);
	write_row(&careful, mark);
	careful.read = true;
	assert_true(careful_convicts(&careful));
	write_row(&careful, (struct careful_step){.renews = true, .renews_alone = true});
	assert_true(careful_convicts(&careful));
	assert_true(careful.deaths.marked);
	assert_true(careful.out);
	write_row(&careful, (struct careful_step){.published = true, .progress = true});
	assert_int_equal(careful.deaths.alone, 0);
}

static void it_ends_after_so_many_rows_or_behind_the_windows_of_the_dead(void **state)
{
	(void)state;
	struct careful careful = taken(DEATHS_CAREFUL, 0, NULL);
	for (int i = 0; i < ROWS; i++) {
		write_row(&careful, mark_next);
		careful.read = true;
		assert_true(careful.active);
	}
	write_row(&careful, mark_next);
	assert_false(careful.active || careful.deaths.marked || careful.deaths.owners);

	careful = taken(DEATHS_CAREFUL, 0, NULL);
	write_row(&careful, (struct careful_step){.progress = true, .first_tick = 10});
	assert_true(careful.active);
	write_row(&careful, (struct careful_step){.progress = true, .first_tick = 11});
	assert_false(careful.active);
}

static void after_many_rows_groups_go_and_a_death_in_one_names_nobody(void **state)
{
	(void)state;
	struct careful careful = {0};
	careful_begin(&careful, &(struct deaths){DEATHS_CAREFUL, 0, false}, 10, 16 * ROWS_ALONE);
	for (int i = 0; i < ROWS_ALONE; i++) {
		assert_true(write_row(&careful, mark_next).deaths.marked);
		assert_int_equal(careful.batch, 1);
		careful.read = true;
	}
	for (int64_t batch = 2; batch <= 64; batch *= 2) {
		assert_false(write_row(&careful, mark_next).deaths.marked);
		assert_true(careful_reads(&careful));
		assert_int_equal(careful.batch, batch);
		careful.read = true;
	}
	assert_true(careful.active);
}

static void a_row_that_outlives_a_renewal_does_not_kill(void **state)
{
	(void)state;
	struct careful careful = taken(DEATHS_CAREFUL, 2, NULL);
	write_row(&careful, mark);
	careful.read = true;
	write_row(&careful, (struct careful_step){.renews = true});
	assert_true(careful.active);
	assert_false(careful.deaths.marked || careful.deaths.alone);
	/* and does not keep the others back for ever */
	write_row(&careful, (struct careful_step){.stuck = true});
	assert_false(careful.active);
	assert_int_equal(careful.deaths.owners, DEATHS_CAREFUL);
}

static void three_deaths_alone_convict_once(void **state)
{
	(void)state;
	struct careful careful = taken(DEATHS_CAREFUL, DEATHS_CONVICT, NULL);
	assert_true(careful_convicts(&careful));
	write_row(&careful, mark);
	assert_true(careful_convicts(&careful));
	careful.read = true;
	write_row(&careful, (struct careful_step){0}); /* nothing is in flight */
	assert_false(careful_convicts(&careful) || careful.deaths.marked);
}

static void one_shard_of_a_process_has_the_turn(void **state)
{
	(void)state;
	careful_turn turn = NULL;
	struct careful a = {.turn = &turn}, b = {.turn = &turn};
	careful_begin(&a, &(struct deaths){DEATHS_CAREFUL, 0, false}, 10, ROWS);
	careful_begin(&b, &(struct deaths){DEATHS_CAREFUL, 0, false}, 10, ROWS);
	assert_true(careful_has_turn(&a));
	assert_true(careful_has_turn(&a));
	assert_false(careful_has_turn(&b));
	careful_end(&b); /* gives back nothing */
	assert_false(careful_has_turn(&b));
	careful_end(&a);
	assert_true(careful_has_turn(&b));
	/* who has published all that it has gives it back, and stays careful */
	careful_begin(&b, &(struct deaths){DEATHS_CAREFUL, 0, false}, 10, ROWS);
	write_row(&b, mark);
	b.read = true;
	assert_false(careful_has_turn(&a));
	write_row(&b, (struct careful_step){.published = true, .progress = true});
	assert_true(b.active && careful_has_turn(&a));
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
