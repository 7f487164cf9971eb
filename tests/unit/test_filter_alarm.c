/* The alarm of a filter with too many false positives, and its repair at a checkpoint. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "dedup_stores.h"
#include "dedup_window.h"
#include "filter_repair.h"
#include "temporary.h"
#include "text.h"

/* A window of 5000 ms in slices of 1000. */
enum { SLICE_MS = 1000, NOW = 100 * SLICE_MS, STRETCH = 1 << 16, MAP_HEAD = 4096 };

static char folder[TEMPORARY];
static uint64_t next_new = 1000000; /* an id that no test adds */

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

static struct dedup_window *open_with(const char *settings)
{
	struct err err;
	struct dedup_spec spec;
	owned_text char *line = xformat("bloom window=5s slices=5 %s path=%s", settings, folder);
	assert_true(dedup_spec_parse(line, &spec, &err));
	const struct dedup_window_settings wanted = dedup_spec_window(&spec);
	struct dedup_window *window = dedup_window_open(&wanted, &err);
	if (!window)
		fail_msg("%s", err.message);
	dedup_spec_finish(&spec);
	return window;
}

static struct fingerprint hash_of(const struct dedup_window *window, uint64_t id)
{
	return dedup_window_hash(window, &id, sizeof id);
}

static bool has(struct dedup_window *window, uint64_t id)
{
	struct err err;
	bool there = false;
	if (!dedup_window_has(window, hash_of(window, id), &there, &err))
		fail_msg("%s", err.message);
	return there;
}

static void expect_all(struct dedup_window *window, uint64_t first, uint64_t last)
{
	for (uint64_t id = first; id <= last; id++)
		assert_true(has(window, id));
}

static void look_at_new_ids(struct dedup_window *window, int stretches)
{
	for (int i = 0; i < stretches * STRETCH; i++)
		assert_false(has(window, next_new++));
}

static void add_at(struct dedup_window *window, uint64_t first, uint64_t last, int64_t time_ms)
{
	struct err err;
	for (uint64_t id = first; id <= last; id++)
		if (!dedup_window_add(window, hash_of(window, id), (int64_t)id, time_ms,
			NOW + 100 * SLICE_MS, &err))
			fail_msg("%s", err.message);
}

static void checkpoint(struct dedup_window *window)
{
	struct err err;
	if (!dedup_window_checkpoint(window, 1, &err))
		fail_msg("%s", err.message);
}

static struct dedup_window_figures figures_of(const struct dedup_window *window)
{
	struct dedup_window_figures figures;
	dedup_window_figures(window, &figures);
	return figures;
}

static void expect_alarm(struct dedup_window *window)
{
	look_at_new_ids(window, 1);
	assert_true(figures_of(window).alarm);
}

static off_t size_of(const char *name)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	struct stat state;
	assert_int_equal(stat(path, &state), 0);
	return state.st_size;
}

/* --- a killed process ------------------------------------------------------------------------- */

enum how { AFTER_CHECKPOINT, IN_REPAIR };
/* Of this thread: others make the next slice and sub-slice ready at the same time. 0: none. */
static _Thread_local int fallocates_to_death;

int posix_fallocate(int fd, off_t offset, off_t length)
{
	int error = syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0;
	if (fallocates_to_death && --fallocates_to_death == 0)
		kill(getpid(), SIGKILL);
	return error;
}

/* With ids 1 to 10000, in one slice. */
static void fill_and_die(const char *settings, enum how how)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct dedup_window *window = open_with(settings);
		add_at(window, 1, 10000, NOW);
		checkpoint(window);
		if (how == IN_REPAIR) {
			expect_alarm(window);
			fallocates_to_death = 1;
			checkpoint(window);
			_exit(1);
		}
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Sets the bits of this part of the filter. */
static void damage_filter(const char *name, double part)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	uint64_t lines;
	char line[64];
	owned_fd int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &lines, sizeof lines, 32), sizeof lines);
	memset(line, 0xff, sizeof line);
	for (uint64_t i = 0; i < (uint64_t)((double)lines * part); i++)
		assert_int_equal(pwrite(fd, line, 64, (off_t)(MAP_HEAD + i * 64)), 64);
}

/* --- the repair ------------------------------------------------------------------------------- */

/* The setting `alarm` is far below the rate of the plan: the filter needs more lines. */
static void an_overfilled_filter_is_back_under_its_target_after_a_checkpoint(void **state)
{
	(void)state;
	static const char settings[] = "ids=50k rate=20% alarm=0.1%";
	struct dedup_window *window = open_with(settings);
	add_at(window, 1, 9000, NOW);
	checkpoint(window);
	expect_alarm(window);
	assert_int_equal(figures_of(window).alarms, 1);
	assert_int_equal(figures_of(window).repairs, 0);
	/* during the alarm and after it the slice goes on, and is not split */
	add_at(window, 9001, 9500, NOW);
	assert_int_equal(figures_of(window).slices, 1);

	checkpoint(window);
	assert_false(figures_of(window).alarm);
	assert_int_equal(figures_of(window).repairs, 1);
	expect_all(window, 1, 9500);
	add_at(window, 9501, 10000, NOW);
	checkpoint(window);
	assert_int_equal(figures_of(window).slices, 1);

	look_at_new_ids(window, 2);
	print_message("observed %g\n", figures_of(window).observed_rate);
	assert_true(figures_of(window).observed_rate <= 0.001);
	assert_int_equal(figures_of(window).alarms, 1);
	dedup_window_close(window);

	/* the larger filter is kept */
	window = open_with(settings);
	assert_int_equal(figures_of(window).rebuilt, 0);
	expect_all(window, 1, 10000);
	look_at_new_ids(window, 2);
	assert_int_equal(figures_of(window).alarms, 0);
	dedup_window_close(window);
}

/* The bits that were set by nobody cost a look at the disk each, and drop no message. */
static void a_damaged_filter_is_made_anew(void **state)
{
	(void)state;
	for (int tenths = 1; tenths <= 10; tenths += 3) {
		fill_and_die("ids=50k", AFTER_CHECKPOINT);
		damage_filter("100.0.map", tenths / 10.);
		struct dedup_window *window = open_with("ids=50k");
		assert_int_equal(figures_of(window).rebuilt, 0);
		off_t size = size_of("100.0.map");
		expect_alarm(window);
		assert_true(figures_of(window).observed_rate > tenths / 11.);

		checkpoint(window);
		assert_int_equal(figures_of(window).repairs, 1);
		assert_int_equal(size_of("100.0.map"), size);
		look_at_new_ids(window, 1);
		assert_false(figures_of(window).alarm);
		assert_true(figures_of(window).observed_rate <= 0.001);
		expect_all(window, 1, 10000);
		dedup_window_close(window);
		temporary_empty(folder);
	}
}

static void a_checkpoint_repairs_all_slices_in_doubt(void **state)
{
	(void)state;
	struct dedup_window *window = open_with("ids=50k rate=20% alarm=0.1%");
	for (int i = 0; i < 3; i++)
		add_at(
		    window, 1 + (uint64_t)i * 9000, (uint64_t)(i + 1) * 9000, NOW + i * SLICE_MS);
	checkpoint(window);
	expect_alarm(window);
	assert_true(figures_of(window).repairing);
	/* one at least each time, also where the machine is slow */
	for (int i = 0; i < 3 && figures_of(window).repairing; i++)
		checkpoint(window);
	assert_false(figures_of(window).repairing);
	assert_int_equal(figures_of(window).repairs, 3);
	assert_false(figures_of(window).alarm);
	expect_all(window, 1, 27000);
	dedup_window_close(window);
}

/* A seal would make the next start of the machine believe the bits. */
static void a_window_that_closes_with_an_alarm_seals_no_damage(void **state)
{
	(void)state;
	fill_and_die("ids=50k", AFTER_CHECKPOINT);
	damage_filter("100.0.map", 0.5);
	struct dedup_window *window = open_with("ids=50k");
	expect_alarm(window);
	dedup_window_close(window);
	window = open_with("ids=50k");
	assert_int_equal(figures_of(window).rebuilt, 1);
	look_at_new_ids(window, 1);
	assert_false(figures_of(window).alarm);
	expect_all(window, 1, 10000);
	dedup_window_close(window);
}

/* --- what goes wrong meanwhile ---------------------------------------------------------------- */

static void a_process_that_is_killed_in_a_repair_forgets_nothing(void **state)
{
	(void)state;
	fill_and_die("ids=50k rate=20% alarm=0.1%", IN_REPAIR);
	struct dedup_window *window = open_with("ids=50k rate=20% alarm=0.1%");
	assert_int_equal(figures_of(window).rebuilt, 1);
	expect_all(window, 1, 10000);
	expect_alarm(window);
	checkpoint(window);
	assert_false(figures_of(window).alarm);
	expect_all(window, 1, 10000);
	dedup_window_close(window);
}

static void without_room_for_a_repair_the_old_filter_stays(void **state)
{
	(void)state;
	struct rlimit kept, tight;
	struct dedup_window *window = open_with("ids=50k rate=20% alarm=0.1%");
	add_at(window, 1, 10000, NOW);
	checkpoint(window);
	off_t size = size_of("100.0.map");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &kept);
	tight = kept;
	tight.rlim_cur = (rlim_t)size + 4096;
	setrlimit(RLIMIT_FSIZE, &tight);
	for (int i = 0; i < 3; i++) {
		expect_alarm(window);
		checkpoint(window);
		assert_true(figures_of(window).alarm);
		assert_int_equal(figures_of(window).repairs, 0);
		assert_int_equal(size_of("100.0.map"), size);
		expect_all(window, 1, 10000);
	}
	assert_int_equal(figures_of(window).alarms, 1); /* it is one alarm that lasts */

	setrlimit(RLIMIT_FSIZE, &kept);
	expect_alarm(window);
	checkpoint(window);
	assert_false(figures_of(window).alarm);
	expect_all(window, 1, 10000);
	dedup_window_close(window);
}

/* A filter grows to 8 times its plan at most: the alarm says that the settings do not fit. */
static void an_alarm_below_what_a_filter_reaches_makes_it_anew_once(void **state)
{
	(void)state;
	struct dedup_window *window = open_with("ids=500k rate=99.99999% alarm=0.01%");
	add_at(window, 1, 100000, NOW);
	checkpoint(window);
	off_t size = size_of("100.0.map");
	for (int i = 0; i < 4; i++) {
		look_at_new_ids(window, 1);
		checkpoint(window);
	}
	print_message("observed %g\n", figures_of(window).observed_rate);
	assert_true(figures_of(window).alarm);
	assert_int_equal(figures_of(window).repairs, 1);
	assert_in_range(size_of("100.0.map"), size, 8 * size);
	dedup_window_close(window);
}

/* --- how damage is recognised ----------------------------------------------------------------- */

/* Filters of a few lines differ from theory by chance. */
static void no_whole_filter_is_taken_for_damaged(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1, 2, 5, 10, 20, 100, 1000};
	static const uint64_t rounds[] = {100, 2000, 2000, 2000, 1000, 100, 100};
	uint64_t number = 1, tried = 0;
	for (size_t i = 0; i < 7; i++)
		for (uint64_t ids = 1; ids < sizes[i] * 100; ids = ids * 2 + 1)
			for (uint64_t round = 0; round < rounds[i]; round++) {
				struct bloom_filter filter = {
				    aligned_alloc(64, sizes[i] * BLOOM_LINE), sizes[i]};
				memset(filter.words, 0, sizes[i] * BLOOM_LINE);
				for (uint64_t id = 0; id < ids; id++, number++)
					(*bloom_codes())
					    ->add(
						&filter, fingerprint_of(&number, sizeof number, 7));
				if (filter_measure(&filter, ids).damaged)
					fail_msg("%llu lines, %llu ids",
					    (unsigned long long)sizes[i], (unsigned long long)ids);
				free(filter.words);
				tried++;
			}
	print_message("%llu filters\n", (unsigned long long)tried);
}

static void one_line_of_ones_is_damage(void **state)
{
	(void)state;
	struct bloom_filter filter = {aligned_alloc(64, 1000 * BLOOM_LINE), 1000};
	memset(filter.words, 0, 1000 * BLOOM_LINE);
	for (uint64_t id = 0; id < 10000; id++)
		(*bloom_codes())->add(&filter, fingerprint_of(&id, sizeof id, 7));
	assert_false(filter_measure(&filter, 10000).damaged);
	memset(filter.words, 0xff, BLOOM_LINE);
	assert_true(filter_measure(&filter, 10000).damaged);
	assert_true(filter_measure(&filter, 10000).rate > 0.001);
	free(filter.words);
}

/* --- more ids than planned -------------------------------------------------------------------- */

/* Sub-slices take them at once; the next slice has room for as many. */
static void the_slice_after_an_overfilled_one_has_one_filter(void **state)
{
	(void)state;
	struct dedup_window *window = open_with("ids=5k rate=1%"); /* 1000 a slice */
	add_at(window, 1, 4000, NOW);
	checkpoint(window);
	assert_in_range(figures_of(window).sub_slices, 1, 3);
	int subs = figures_of(window).sub_slices;
	for (uint64_t i = 1; i <= 3; i++) {
		add_at(window, 4000 * i + 1, 4000 * i + 4000, NOW + (int64_t)i * SLICE_MS);
		checkpoint(window);
		assert_int_equal(figures_of(window).sub_slices, subs);
	}
	assert_true(figures_of(window).planned_rate < 0.01);

	/* and it is so after a restart */
	dedup_window_close(window);
	window = open_with("ids=5k rate=1%");
	assert_int_equal(figures_of(window).rebuilt, 0);
	expect_all(window, 1, 16000);
	add_at(window, 16001, 20000, NOW + 4 * SLICE_MS);
	checkpoint(window);
	assert_int_equal(figures_of(window).sub_slices, subs);

	/* with fewer ids the slices get small again */
	for (int64_t i = 5; i < 20; i++)
		add_at(window, 100000 + (uint64_t)i, 100000 + (uint64_t)i, NOW + i * SLICE_MS);
	checkpoint(window);
	assert_int_equal(figures_of(window).sub_slices, 0);
	dedup_window_close(window);
	owned_text char *last = xformat("%d.0.map", NOW / SLICE_MS + 19);
	assert_in_range(size_of(last), 4096, 20000);
}

/* Then a slice of the planned size takes the ids, and sub-slices the excess. */
static void without_room_for_a_larger_slice_the_planned_one_is_made(void **state)
{
	(void)state;
	struct rlimit kept, tight;
	struct dedup_window *window = open_with("ids=50k");
	getrlimit(RLIMIT_FSIZE, &kept);
	add_at(window, 1, 10000, NOW);
	checkpoint(window);
	signal(SIGXFSZ, SIG_IGN);
	tight = kept;
	tight.rlim_cur = (rlim_t)size_of("100.0.map") * 5 / 4;
	setrlimit(RLIMIT_FSIZE, &tight);
	add_at(window, 10001, 16000, NOW); /* a sub-slice holds as many as the slice before it */
	add_at(window, 20001, 20010, NOW + SLICE_MS);
	add_at(window, 20011, 20020, NOW + 2 * SLICE_MS);
	setrlimit(RLIMIT_FSIZE, &kept);
	assert_int_equal(size_of("102.0.map"), size_of("100.0.map"));
	expect_all(window, 1, 16000);
	expect_all(window, 20001, 20020);
	dedup_window_close(window);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(an_overfilled_filter_is_back_under_its_target_after_a_checkpoint),
	    TEST(a_damaged_filter_is_made_anew),
	    TEST(a_checkpoint_repairs_all_slices_in_doubt),
	    TEST(a_window_that_closes_with_an_alarm_seals_no_damage),
	    TEST(a_process_that_is_killed_in_a_repair_forgets_nothing),
	    TEST(without_room_for_a_repair_the_old_filter_stays),
	    TEST(an_alarm_below_what_a_filter_reaches_makes_it_anew_once),
	    TEST(no_whole_filter_is_taken_for_damaged),
	    TEST(one_line_of_ones_is_damage),
	    TEST(without_room_for_a_larger_slice_the_planned_one_is_made),
	    TEST(the_slice_after_an_overfilled_one_has_one_filter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
