#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "fingerprint.h"
#include "dedup_walk.h"
#include "temporary.h"
#include "text.h"

enum { HOUR = 3600 * 1000, SLICE = 100 * HOUR };

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

static struct outbox_dedup *open_with(const char *settings)
{
	owned_text char *line = xformat("bitmap %s path=%s", settings, folder);
	return dedup_walk_open(line);
}

static enum outbox_dedup_state check(struct outbox_dedup *dedup, const char *text)
{
	struct outbox_dedup_id id = {text, strlen(text), -1, -1};
	struct outbox_error error;
	enum outbox_dedup_state found;
	if (!outbox_dedup_check(dedup, &id, 1, &found, &error))
		fail_msg("%s", error.message);
	return found;
}

static void refuse(struct outbox_dedup *dedup, const char *text)
{
	struct outbox_dedup_id id = {text, strlen(text), -1, -1};
	struct outbox_error error;
	enum outbox_dedup_state found;
	assert_false(outbox_dedup_check(dedup, &id, 1, &found, &error));
	print_message("%s\n", error.message);
	assert_int_equal(error.kind, OUTBOX_REJECT);
	assert_non_null(strstr(error.message, "raise ids"));
	assert_int_equal(dedup_walk_stats(dedup).pending, 0);
}

static void an_id_is_an_integer_of_the_range_in_one_spelling(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=5000001");
	assert_int_equal(check(dedup, "0"), OUTBOX_DEDUP_NEW);
	assert_int_equal(check(dedup, "5000000"), OUTBOX_DEDUP_NEW);
	static const char *const wrong[] = {"5000001", "-1", "+1", "01", "00", " 1", "1 ", "1.0",
	    "1e3", "0x1", "99999999999999999999", "18446744073709551617", "seven"};
	outbox_dedup_close(dedup);
	dedup = open_with("ids=5000001");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refuse(dedup, wrong[i]);
	outbox_dedup_close(dedup);
}

static void only_what_is_used_takes_room(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=1G");
	dedup_walk(dedup, 0, 10, -1, true);
	dedup_walk(dedup, 999999990, 10, -1, true);
	struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
	assert_int_equal(stats.ids, 20);
	assert_in_range(stats.disk_bytes, 2 * 512 * 1024, 2 * 512 * 1024 + 3 * 4096);
	assert_int_equal(dedup_walk(dedup, 999999980, 20, -1, false), 10);
	outbox_dedup_close(dedup);
	dedup = open_with("ids=1G");
	assert_int_equal(dedup_walk_stats(dedup).ids, 20);
	assert_int_equal(dedup_walk(dedup, 999999980, 20, -1, false), 10);
	outbox_dedup_close(dedup);
}

/* Ids without a pattern, one at a time: for numbers in a row a CRC32 has fewer collisions than
 * that. */
static uint64_t walk_hashes(struct outbox_dedup *dedup, uint64_t first, uint64_t count, bool finish)
{
	uint64_t fresh = 0;
	for (uint64_t i = first; i < first + count; i++) {
		struct fingerprint hash = fingerprint_of(&i, sizeof i, 1);
		struct outbox_dedup_id id = {&hash, sizeof hash, -1, -1};
		struct outbox_error error;
		enum outbox_dedup_state found;
		assert_true(outbox_dedup_check(dedup, &id, 1, &found, &error));
		if (found != OUTBOX_DEDUP_NEW)
			continue;
		fresh++;
		assert_true(
		    (finish ? outbox_dedup_done : outbox_dedup_release)(dedup, &id, 1, &error));
	}
	return fresh;
}

static void the_rate_of_the_classic_form_is_the_share_of_bits(void **state)
{
	(void)state;
	const uint64_t ids = 1000000;
	struct outbox_dedup *dedup = open_with("lossy form=hash ids=1M");
	uint64_t fresh = walk_hashes(dedup, 0, ids, true);
	struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
	assert_int_equal(stats.ids, fresh);
	assert_true(fabs(stats.planned_rate * 4294967296. / (double)ids - 1) < 0.01);
	uint64_t found = ids - walk_hashes(dedup, ids, ids, false);
	print_message("%llu false positives, in theory %.0f\n", (unsigned long long)found,
	    stats.planned_rate * (double)ids);
	assert_in_range(found, 233 - 4 * 16, 233 + 4 * 16);
	outbox_dedup_close(dedup);
}

/* CRC32 "123456789" is cbf43926 (any description of it): partition 815, offset 3422502. */
static void the_bit_is_where_the_classic_scheme_has_it(void **state)
{
	(void)state;
	struct dedup_walk_id id;
	struct outbox_error error;
	unsigned char byte;
	struct outbox_dedup *dedup = open_with("lossy form=hash ids=10");
	dedup_walk_name(&id, 123456789, -1);
	assert_int_equal(check(dedup, id.text), OUTBOX_DEDUP_NEW);
	assert_true(outbox_dedup_done(dedup, &id.id, 1, &error));
	outbox_dedup_close(dedup);
	owned_text char *path = xformat("%s/0.815.bits", folder);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	fseek(file, 4096 + 3422502 / 8, SEEK_SET);
	assert_int_equal(fread(&byte, 1, 1, file), 1);
	assert_int_equal(byte, 1 << 3422502 % 8);
	fclose(file);
}

static void a_killed_process_forgets_nothing(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct outbox_dedup *dedup = open_with("ids=10M");
		dedup_walk(dedup, 0, 1000, -1, true);
		dedup_walk_checkpoint(dedup, 5);
		dedup_walk(dedup, 9000000, 1000, -1, true);
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);
	struct outbox_dedup *dedup = open_with("ids=10M");
	assert_int_equal(dedup_walk_stats(dedup).offset, 5);
	assert_int_equal(dedup_walk_stats(dedup).ids, 2000);
	assert_int_equal(dedup_walk(dedup, 0, 1000, -1, false), 0);
	assert_int_equal(dedup_walk(dedup, 9000000, 1000, -1, false), 0);
	outbox_dedup_close(dedup);
}

static int files_synced; /* whole files: not a head alone, for the offset */

int msync(void *memory, size_t length, int flags)
{
	files_synced += length > 4096;
	return (int)syscall(SYS_msync, memory, length, flags);
}

/* Its offset is durable, and a check of these ids says that they are done. */
static void a_checkpoint_makes_durable_the_bits_of_a_killed_process(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct outbox_dedup *dedup = open_with("ids=10M");
		dedup_walk(dedup, 0, 10, -1, true);
		dedup_walk(dedup, 9000000, 10, -1, true);
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);

	struct outbox_dedup *dedup = open_with("ids=10M");
	assert_int_equal(dedup_walk(dedup, 0, 10, -1, false), 0);
	files_synced = 0;
	dedup_walk_checkpoint(dedup, 5);
	assert_int_equal(files_synced, 2);
	dedup_walk_checkpoint(dedup, 6);
	assert_int_equal(files_synced, 2);
	outbox_dedup_close(dedup);
}

static void without_room_on_the_disk_an_id_stays_pending(void **state)
{
	(void)state;
	const struct rlimit small = {100000, 100000};
	pid_t child = fork();
	if (child == 0) {
		struct dedup_walk_id id;
		struct outbox_error error;
		struct outbox_dedup *dedup = open_with("ids=10M");
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &small);
		dedup_walk_name(&id, 17, -1);
		bool right = check(dedup, id.text) == OUTBOX_DEDUP_NEW &&
			     !outbox_dedup_done(dedup, &id.id, 1, &error) &&
			     error.kind == OUTBOX_RETRY &&
			     check(dedup, id.text) == OUTBOX_DEDUP_PENDING;
		_exit(right ? 0 : 1);
	}
	int status;
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	struct outbox_dedup *dedup = open_with("ids=10M"); /* what was half made is made */
	assert_int_equal(dedup_walk(dedup, 0, 100, -1, true), 100);
	outbox_dedup_close(dedup);
}

static void expect_refusal(const char *settings, enum outbox_error_kind kind, const char *word)
{
	struct outbox_error error;
	owned_text char *line = xformat("bitmap %s path=%s", settings, folder);
	assert_null(outbox_dedup_open(line, &error));
	print_message("%s\n", error.message);
	assert_int_equal(error.kind, kind);
	assert_non_null(strstr(error.message, word));
}

static void a_folder_of_another_form_or_range_is_refused(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10M");
	dedup_walk(dedup, 9000000, 10, -1, true);
	expect_refusal("ids=10M", OUTBOX_FENCED, "another process");
	outbox_dedup_close(dedup);
	expect_refusal("lossy form=hash ids=10M", OUTBOX_CONFIG, "of the store 'bitmap'");
	expect_refusal("ids=1M", OUTBOX_CONFIG, "raise ids");
	dedup = open_with("ids=20M"); /* a larger range is no matter */
	assert_int_equal(dedup_walk(dedup, 9000000, 10, -1, false), 0);
	outbox_dedup_close(dedup);
}

/* --- with a window ------------------------------------------------------------------------- */

/* How many files of bits there are, of slices before `number`. */
static int files_before(int64_t number)
{
	int count = 0;
	DIR *list = opendir(folder);
	const struct dirent *entry;
	while ((entry = readdir(list))) {
		size_t length = strlen(entry->d_name);
		if (length > 5 && text_equal(entry->d_name + length - 5, ".bits") &&
		    strtoll(entry->d_name, NULL, 10) < number)
			count++;
	}
	closedir(list);
	return count;
}

/* How many files of bits are mapped into memory. */
static int files_of(const struct outbox_dedup *dedup)
{
	return (int)(dedup_walk_stats(dedup).memory_bytes / (4096 + 512 * 1024));
}

/* An id of each of so many partitions, of records of this time; returns how many are new. */
static uint64_t walk_parts(
    struct outbox_dedup *dedup, uint64_t number, int parts, int64_t time_ms, bool finish)
{
	uint64_t fresh = 0;
	for (int i = 0; i < parts; i++)
		fresh += dedup_walk(
		    dedup, number + ((uint64_t)i << 22), 1, time_ms - (i % 2 ? HOUR : 0), finish);
	return fresh;
}

/* A thread removes the files. */
static void wait_for_removal(const struct outbox_dedup *dedup, int64_t oldest)
{
	for (int i = 0;
	     i < 1000 && (files_before(oldest) || files_before(INT64_MAX) != files_of(dedup)); i++)
		usleep(10000);
	assert_int_equal(files_before(oldest), 0);
	assert_int_equal(files_before(INT64_MAX), files_of(dedup));
}

/*
 * Records of 30 slices, two steps in each, with ids in 20 partitions; every tenth step the process
 * ends and begins again.
 */
static void forget_and_remember(const char *settings)
{
	enum { STEPS = 60, PARTS = 20, STEP = SLICE / 2 };
	int64_t begin_ms = clock_wall_us() / 1000 - STEPS * (int64_t)STEP;
	struct outbox_dedup *dedup = open_with(settings);

	for (int step = 0; step < STEPS; step++) {
		int64_t time_ms = begin_ms + step * (int64_t)STEP;
		assert_int_equal(walk_parts(dedup, (uint64_t)step, PARTS, time_ms, true), PARTS);

		/* no false negative inside of the window of ten steps, and a late id has one too */
		for (int old = step > 9 ? step - 9 : 0; old <= step; old++)
			assert_int_equal(
			    walk_parts(dedup, (uint64_t)old, PARTS, time_ms, false), 0);
		/* slices that ended are forgotten at once */
		for (int old = 0; old < step - 14; old++)
			assert_int_equal(
			    walk_parts(dedup, (uint64_t)old, PARTS, time_ms, false), PARTS);

		if (step % 10 == 9) {
			dedup_walk_checkpoint(dedup, step);
			outbox_dedup_close(dedup);
			dedup = open_with(settings);
		}

		/* memory and files are gone behind it */
		wait_for_removal(dedup, time_ms / SLICE - 5);
		struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
		assert_true(files_of(dedup) <= 6 * 4 * PARTS);
		assert_true(stats.slices <= 6);
		assert_int_equal(stats.newest_ms, time_ms / SLICE * SLICE);
	}
	outbox_dedup_close(dedup);
	temporary_empty(folder);
}

static void bitmaps_that_forget_keep_the_window_and_free_memory_and_files_behind_it(void **state)
{
	(void)state;
	forget_and_remember("ids=100M window=500h slices=5");
	forget_and_remember("lossy form=hash ids=100M window=500h slices=5");
}

static void an_id_is_remembered_for_a_window_that_its_slices_do_not_divide(void **state)
{
	(void)state;
	owned_text char *line = xformat("bitmap ids=1k window=1009ms slices=10 path=%s", folder);
	dedup_walk_odd_window(line, folder);
}

static void late_and_future_ids_are_in_slices_that_are_alive(void **state)
{
	(void)state;
	int64_t now_ms = clock_wall_us() / 1000;
	struct outbox_dedup *dedup = open_with("ids=1k window=500h");
	dedup_walk(dedup, 1, 1, now_ms - 7 * (int64_t)SLICE, true);
	dedup_walk(dedup, 2, 1, now_ms + 90 * (int64_t)SLICE, true); /* as of now */
	assert_int_equal(dedup_walk_stats(dedup).newest_ms, now_ms / SLICE * SLICE);
	assert_int_equal(dedup_walk(dedup, 1, 1, now_ms, false), 1);
	dedup_walk(dedup, 3, 1, now_ms - 60 * (int64_t)SLICE, true); /* in the oldest */
	dedup_walk(dedup, 4, 1, 0, true);
	assert_int_equal(dedup_walk(dedup, 2, 3, now_ms, false), 0);
	assert_int_equal(dedup_walk_stats(dedup).slices, 2);
	wait_for_removal(dedup, now_ms / SLICE - 5);
	assert_int_equal(files_before(now_ms / SLICE - 4), 1);
	outbox_dedup_close(dedup);
}

static void a_released_id_is_new_in_every_slice(void **state)
{
	(void)state;
	struct dedup_walk_id id;
	struct outbox_error error;
	int64_t now_ms = clock_wall_us() / 1000;
	struct outbox_dedup *dedup = open_with("ids=1k window=500h");
	dedup_walk(dedup, 1, 3, now_ms - 3 * (int64_t)SLICE, true);
	dedup_walk(dedup, 10, 3, now_ms, true);
	for (uint64_t number = 1; number < 12; number += 10) {
		dedup_walk_name(&id, number, now_ms);
		assert_true(outbox_dedup_release(dedup, &id.id, 1, &error));
		assert_int_equal(check(dedup, id.text), OUTBOX_DEDUP_NEW);
	}
	assert_int_equal(dedup_walk_stats(dedup).ids, 4);
	assert_int_equal(dedup_walk(dedup, 2, 2, now_ms, false), 0);
	outbox_dedup_close(dedup);
}

static void files_that_a_killed_process_leaves_are_removed(void **state)
{
	(void)state;
	int64_t now_ms = clock_wall_us() / 1000, newest = now_ms / SLICE;
	struct outbox_dedup *dedup = open_with("ids=1G window=500h");
	for (uint64_t i = 0; i < 60; i++)
		dedup_walk(dedup, i << 22, 1, now_ms - 6 * (int64_t)SLICE, true);
	dedup_walk(dedup, 1, 1, now_ms - 5 * (int64_t)SLICE, true);
	dedup_walk_checkpoint(dedup, 7);

	/* as if the process had been killed before it removed this file */
	owned_text char *file = xformat("%s/%lld.50.bits", folder, (long long)newest - 6);
	owned_text char *kept = xformat("%s/kept", folder);
	assert_int_equal(link(file, kept), 0);
	dedup_walk(dedup, 2, 1, now_ms, true);
	outbox_dedup_close(dedup);
	assert_int_equal(files_before(newest - 5), 0);
	assert_int_equal(rename(kept, file), 0);

	/* fewer ids may be planned, because the slices with larger ids have ended */
	dedup = open_with("ids=4M window=500h");
	assert_int_equal(files_before(newest - 5), 0);
	assert_int_equal(files_before(INT64_MAX), 2);
	assert_int_equal(dedup_walk_stats(dedup).offset, 7);
	assert_int_equal(dedup_walk(dedup, 1, 2, now_ms, false), 0);
	assert_int_equal(dedup_walk(dedup, 0, 1, now_ms, false), 1);
	outbox_dedup_close(dedup);
}

static void a_blank_file_moves_no_window_and_is_removed(void **state)
{
	(void)state;
	int64_t time_ms = 100 * (int64_t)SLICE;
	struct outbox_dedup *dedup = open_with("ids=1k window=500h");
	dedup_walk(dedup, 1, 10, time_ms, true);
	dedup_walk_checkpoint(dedup, 1);
	outbox_dedup_close(dedup);
	owned_text char *path = xformat("%s/9000000.0.bits", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	dedup = open_with("ids=1k window=500h");
	assert_int_equal(dedup_walk(dedup, 1, 10, time_ms, false), 0);
	assert_int_equal(files_before(INT64_MAX), 1);
	outbox_dedup_close(dedup);
}

/* The file of the newest slice is blank after a loss of power, and the oldest one was removed. */
static void a_blank_newest_file_makes_no_old_file_missed(void **state)
{
	(void)state;
	int64_t time_ms = 100 * (int64_t)SLICE;
	struct outbox_dedup *dedup = open_with("ids=1k window=500h");
	dedup_walk(dedup, 1, 10, time_ms, true);
	dedup_walk(dedup, 11, 10, time_ms + SLICE, true);
	dedup_walk_checkpoint(dedup, 1);
	dedup_walk(dedup, 21, 10, time_ms + 6 * (int64_t)SLICE, true);
	outbox_dedup_close(dedup);
	owned_text char *path = xformat("%s/106.0.bits", folder);
	assert_int_equal(truncate(path, 0), 0);

	/* the first opening removes the blank file */
	for (int i = 0; i < 3; i++) {
		dedup = open_with("ids=1k window=500h");
		assert_int_equal(files_before(INT64_MAX), 1);
		assert_int_equal(dedup_walk(dedup, 11, 10, time_ms + SLICE, false), 0);
		outbox_dedup_close(dedup);
	}
	/* a file that is still listed is missed as before */
	owned_text char *listed = xformat("%s/101.0.bits", folder);
	assert_int_equal(unlink(listed), 0);
	expect_refusal("ids=1k window=500h", OUTBOX_CONFIG, "ids are lost");
}

static void a_file_that_is_missing_or_of_another_slice_is_refused(void **state)
{
	(void)state;
	static const char *const lines[] = {"ids=20M", "ids=20M window=500h"};
	int64_t time_ms = 100 * (int64_t)SLICE;
	for (int i = 0; i < 2; i++) {
		struct outbox_dedup *dedup = open_with(lines[i]);
		dedup_walk(dedup, 1, 1, time_ms, true);
		dedup_walk(dedup, 5000000, 1, time_ms, true);
		dedup_walk_checkpoint(dedup, 1);
		outbox_dedup_close(dedup);
		owned_text char *from = xformat("%s/%d.1.bits", folder, i ? 100 : 0);
		owned_text char *to = xformat("%s/%d.2.bits", folder, i ? 100 : 0);
		owned_text char *later = xformat("%s/200.1.bits", folder);

		assert_int_equal(rename(from, to), 0);
		expect_refusal(lines[i], OUTBOX_CONFIG, "another store or slice");
		assert_int_equal(rename(to, later), 0);
		expect_refusal(lines[i], OUTBOX_CONFIG, "another store or slice");
		assert_int_equal(rename(later, from), 0);
		outbox_dedup_close(open_with(lines[i]));
		assert_int_equal(truncate(from, 0), 0);
		expect_refusal(lines[i], OUTBOX_CONFIG, "some of the 2 files");
		assert_int_equal(unlink(from), 0);
		expect_refusal(lines[i], OUTBOX_CONFIG, "load them again");
		temporary_empty(folder);
	}
}

static void a_folder_keeps_its_window(void **state)
{
	(void)state;
	outbox_dedup_close(open_with("ids=1k"));
	expect_refusal("ids=1k window=24h", OUTBOX_CONFIG, "without a window: leave window");
	temporary_empty(folder);
	outbox_dedup_close(open_with("ids=1k window=24h"));
	expect_refusal("ids=1k", OUTBOX_CONFIG, "window=86400000ms slices=5");
	expect_refusal("ids=1k window=12h", OUTBOX_CONFIG, "window=86400000ms");
	expect_refusal("ids=1k window=24h slices=1", OUTBOX_CONFIG, "slices=5");
	outbox_dedup_close(open_with("ids=1k window=24h slices=5"));
}

static void the_rate_of_a_window_is_that_of_all_slices(void **state)
{
	(void)state;
	int64_t now_ms = clock_wall_us() / 1000;
	struct outbox_dedup *dedup = open_with("lossy form=hash ids=1M window=500h");
	for (int slice = 0; slice < 6; slice++)
		dedup_walk(
		    dedup, (uint64_t)slice * 1000, 1000, now_ms - slice * (int64_t)SLICE, true);
	struct outbox_dedup_stats stats = dedup_walk_stats(dedup);
	assert_int_equal(stats.slices, 6);
	assert_true(fabs(stats.planned_rate * 4294967296. / (double)stats.ids - 1) < 0.001);
	outbox_dedup_close(dedup);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(an_id_is_an_integer_of_the_range_in_one_spelling),
	    TEST(only_what_is_used_takes_room),
	    TEST(the_rate_of_the_classic_form_is_the_share_of_bits),
	    TEST(the_bit_is_where_the_classic_scheme_has_it),
	    TEST(a_killed_process_forgets_nothing),
	    TEST(a_checkpoint_makes_durable_the_bits_of_a_killed_process),
	    TEST(without_room_on_the_disk_an_id_stays_pending),
	    TEST(a_folder_of_another_form_or_range_is_refused),
	    TEST(bitmaps_that_forget_keep_the_window_and_free_memory_and_files_behind_it),
	    TEST(an_id_is_remembered_for_a_window_that_its_slices_do_not_divide),
	    TEST(late_and_future_ids_are_in_slices_that_are_alive),
	    TEST(a_released_id_is_new_in_every_slice),
	    TEST(files_that_a_killed_process_leaves_are_removed),
	    TEST(a_blank_file_moves_no_window_and_is_removed),
	    TEST(a_blank_newest_file_makes_no_old_file_missed),
	    TEST(a_file_that_is_missing_or_of_another_slice_is_refused),
	    TEST(a_folder_keeps_its_window),
	    TEST(the_rate_of_a_window_is_that_of_all_slices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
