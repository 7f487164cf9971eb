#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "dedup_walk.h"
#include "temporary.h"
#include "text.h"

enum { HOUR = 3600 * 1000, DAY = 24 * HOUR };

static char folder[TEMPORARY];
static int64_t now_ms;

static int begin(void **state)
{
	(void)state;
	now_ms = clock_wall_us() / 1000;
	return temporary_make(folder) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	temporary_remove(folder);
	return 0;
}

static struct outbox_dedup *open_store(void)
{
	owned_text char *line = xformat("exact ids=10k path=%s", folder);
	return dedup_walk_open(line);
}

static void expect(struct outbox_dedup *dedup, uint64_t first, uint64_t count, uint64_t fresh)
{
	assert_int_equal(dedup_walk(dedup, first, count, -1, false), fresh);
}

static void an_id_takes_40_bytes_at_most(void **state)
{
	(void)state;
	static const char *const lines[] = {
	    "exact ids=1M", "exact ids=1050k", "exact ids=600k" /* it grows */};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct outbox_dedup *dedup = dedup_walk_open(lines[i]);
		assert_int_equal(dedup_walk(dedup, 0, 1000000, -1, true), 1000000);
		struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
		assert_int_equal(stats.ids, 1000000);
		print_message("%s: %llu bytes an id\n", lines[i],
		    (unsigned long long)stats.memory_bytes / 1000000);
		assert_in_range(stats.memory_bytes, 24000000, 40000000);
		assert_int_equal(dedup_walk(dedup, 0, 1000000, -1, false), 0);
		outbox_dedup_close(dedup);
	}
}

static void an_id_is_forgotten_when_its_window_has_passed(void **state)
{
	(void)state;
	for (int stored = 0; stored < 2; stored++) {
		struct outbox_dedup *dedup =
		    stored ? open_store() : dedup_walk_open("exact ids=10k");
		int64_t old = now_ms - 30 * (int64_t)DAY;
		dedup_walk(dedup, 0, 1000, old, true);
		dedup_walk(dedup, 1000, 1000, old + DAY - 1, true);
		expect(dedup, 0, 2000, 0);
		dedup_walk(dedup, 2000, 1, old + DAY, true);
		expect(dedup, 0, 2000, 0); /* the window is there to its other end */
		dedup_walk(dedup, 3000, 1000, old + DAY + HOUR, true); /* makes room by and by */
		expect(dedup, 0, 1000, 1000);
		expect(dedup, 1000, 1000, 0);
		dedup_walk(dedup, 4000, 3000, now_ms, true);
		expect(dedup, 0, 4000, 4000);
		expect(dedup, 4000, 3000, 0);
		assert_int_equal(dedup_walk_stats(dedup).ids, 3000);
		outbox_dedup_close(dedup);
	}
}

static void what_is_older_than_the_window_is_remembered_for_a_while(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_store();
	dedup_walk(dedup, 0, 1, now_ms, true);
	dedup_walk(dedup, 1, 100, now_ms - 50 * (int64_t)DAY, true);
	expect(dedup, 0, 101, 0);
	dedup_walk_checkpoint(dedup, 1);
	outbox_dedup_close(dedup);
	dedup = open_store();
	expect(dedup, 0, 101, 0);
	outbox_dedup_close(dedup);
}

static void a_clock_that_is_moved_back_forgets_nothing(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_store();
	dedup_walk(dedup, 0, 100, now_ms, true);
	dedup_walk(dedup, 100, 100, now_ms - HOUR, true);
	dedup_walk(dedup, 200, 100, now_ms + 10 * (int64_t)DAY, true); /* taken as now */
	expect(dedup, 0, 300, 0);
	outbox_dedup_close(dedup);
}

/* --- restart -------------------------------------------------------------------------------- */

static void release(struct outbox_dedup *dedup, uint64_t number)
{
	struct dedup_walk_id id;
	struct outbox_error error;
	dedup_walk_name(&id, number, -1);
	assert_true(outbox_dedup_release(dedup, &id.id, 1, &error));
}

static void a_killed_process_forgets_nothing_of_a_checkpoint(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct outbox_dedup *dedup = open_store();
		dedup_walk(dedup, 0, 5000, now_ms, true);
		dedup_walk(dedup, 5000, 5000, now_ms - 20 * (int64_t)HOUR, true);
		release(dedup, 17);
		release(dedup, 5017);
		dedup_walk_checkpoint(dedup, 77);
		dedup_walk(dedup, 20000, 10, now_ms, true);
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);
	struct outbox_dedup *dedup = open_store();
	assert_int_equal(dedup_walk_stats(dedup).offset, 77);
	assert_int_equal(dedup_walk_stats(dedup).ids, 9998);
	expect(dedup, 0, 10000, 2);
	expect(dedup, 17, 1, 1);
	expect(dedup, 5017, 1, 1);
	outbox_dedup_close(dedup);
}

/* Where the last record of an id, its release and the record before are in different logs. */
static void the_last_that_was_said_of_an_id_is_true_after_a_restart(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_store();
	dedup_walk(dedup, 100, 1, now_ms, true);
	dedup_walk(dedup, 101, 1, now_ms - 20 * (int64_t)HOUR, true);
	dedup_walk(dedup, 1, 1, now_ms, true); /* new, old: remembered by the old */
	release(dedup, 1);
	dedup_walk(dedup, 1, 1, now_ms - 20 * (int64_t)HOUR, true);
	dedup_walk(dedup, 2, 1, now_ms - 20 * (int64_t)HOUR, true); /* and the other way round */
	release(dedup, 2);
	dedup_walk(dedup, 2, 1, now_ms, true);
	dedup_walk(dedup, 3, 1, now_ms, true);
	release(dedup, 3);
	dedup_walk(dedup, 3, 1, now_ms - 20 * (int64_t)HOUR, true);
	release(dedup, 3);
	dedup_walk_checkpoint(dedup, 1);
	outbox_dedup_close(dedup);
	dedup = open_store();
	expect(dedup, 1, 1, 0);
	expect(dedup, 2, 1, 0);
	expect(dedup, 3, 1, 1);
	expect(dedup, 100, 2, 0);
	outbox_dedup_close(dedup);
}

/* It is in two logs then, and what the older one says is over while they are read. */
static void an_id_that_came_again_when_it_was_forgotten_survives_a_restart(void **state)
{
	(void)state;
	enum { TICK = 1000 };
	int64_t old = now_ms / (8 * TICK) * (8 * TICK) - (int64_t)DAY;
	owned_text char *line = xformat("exact ids=10k window=64s path=%s", folder);
	struct outbox_dedup *dedup = dedup_walk_open(line);
	dedup_walk(dedup, 1, 1, old, true);
	dedup_walk(dedup, 100, 20, old + 65 * TICK, true);
	assert_int_equal(dedup_walk(dedup, 1, 1, old + 66 * TICK, true), 1);
	dedup_walk_checkpoint(dedup, 7);
	outbox_dedup_close(dedup);
	dedup = dedup_walk_open(line);
	for (uint64_t i = 0; i < 3; i++) {
		expect(dedup, 1, 1, 0);
		dedup_walk(dedup, 200 + i, 1, old + 66 * TICK, true);
	}
	dedup_walk(dedup, 300, 20, old + 66 * TICK, true);
	assert_int_equal(dedup_walk_stats(dedup).ids, 20 + 1 + 3 + 20);
	release(dedup, 1);
	expect(dedup, 1, 1, 1);
	outbox_dedup_close(dedup);
}

static void a_log_that_is_gone_or_emptied_is_refused(void **state)
{
	(void)state;
	struct outbox_error error;
	for (int emptied = 0; emptied < 2; emptied++) {
		owned_text char *line = xformat("exact ids=10k path=%s", folder);
		owned_text char *command =
		    xformat(emptied ? "truncate -s 0 %s/*.0.log" : "rm %s/*.0.log", folder);
		struct outbox_dedup *dedup = open_store();
		dedup_walk(dedup, 0, 10, now_ms, true);
		dedup_walk_checkpoint(dedup, 1);
		outbox_dedup_close(dedup);
		assert_int_equal(system(command), 0);
		assert_null(outbox_dedup_open(line, &error));
		assert_int_equal(error.kind, OUTBOX_CONFIG);
		assert_non_null(strstr(error.message, ".0.log is missing, or empty"));
		temporary_empty(folder);
	}
}

static void a_folder_of_another_store_or_process_is_refused(void **state)
{
	(void)state;
	struct outbox_error error;
	owned_text char *other = xformat("bloom ids=10k path=%s", folder);
	owned_text char *same = xformat("exact ids=10k path=%s", folder);
	owned_text char *wider = xformat("exact ids=10k window=48h path=%s", folder);
	struct outbox_dedup *dedup = open_store();
	assert_null(outbox_dedup_open(same, &error));
	assert_int_equal(error.kind, OUTBOX_FENCED);
	outbox_dedup_close(dedup);
	assert_null(outbox_dedup_open(other, &error));
	assert_int_equal(error.kind, OUTBOX_CONFIG);
	assert_non_null(strstr(error.message, "'exact'"));
	assert_null(outbox_dedup_open(wider, &error));
	assert_int_equal(error.kind, OUTBOX_CONFIG);
	assert_non_null(strstr(error.message, "window=86400000ms; say"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(an_id_takes_40_bytes_at_most),
	    TEST(an_id_is_forgotten_when_its_window_has_passed),
	    TEST(what_is_older_than_the_window_is_remembered_for_a_while),
	    TEST(a_clock_that_is_moved_back_forgets_nothing),
	    TEST(a_killed_process_forgets_nothing_of_a_checkpoint),
	    TEST(the_last_that_was_said_of_an_id_is_true_after_a_restart),
	    TEST(an_id_that_came_again_when_it_was_forgotten_survives_a_restart),
	    TEST(a_log_that_is_gone_or_emptied_is_refused),
	    TEST(a_folder_of_another_store_or_process_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
