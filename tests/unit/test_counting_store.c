#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bloom_size.h"
#include "cleanup.h"
#include "clock.h"
#include "counting_filter.h"
#include "dedup_mapped_inspect.h"
#include "dedup_stores.h"
#include "dedup_walk.h"
#include "mapped_file.h"
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

/* The width of the counters: main runs all tests with each. */
static int counter_bits;

static char *line_of(const char *settings)
{
	return xformat("counting lossy counter=%d %s path=%s", counter_bits, settings, folder);
}

static struct outbox_dedup *open_with(const char *settings)
{
	owned_text char *line = line_of(settings);
	return dedup_walk_open(line);
}

static struct fingerprint hash_of(uint64_t number)
{
	return fingerprint_of(&number, sizeof number, 3);
}

static size_t filter_bytes(uint64_t lines)
{
	return lines * counting_line_bytes(counter_bits);
}

static struct counting_filter filter_of(uint64_t lines)
{
	struct counting_filter filter = {
	    aligned_alloc(BLOOM_LINE, filter_bytes(lines)), lines, counter_bits};
	memset(filter.words, 0, filter_bytes(lines));
	return filter;
}

static void what_is_taken_out_leaves_no_trace(void **state)
{
	(void)state;
	struct counting_filter filter = filter_of(300), before = filter_of(300);
	for (uint64_t i = 0; i < 1000; i++)
		counting_add(&filter, hash_of(i));
	memcpy(before.words, filter.words, filter_bytes(300));
	for (uint64_t i = 5000; i < 5100; i++)
		counting_add(&filter, hash_of(i));
	for (uint64_t i = 5000; i < 5100; i++)
		assert_true(counting_remove(&filter, hash_of(i)));
	assert_memory_equal(filter.words, before.words, filter_bytes(300));
	struct counting_sum sum =
	    counting_sum_up(filter.words, filter_bytes(300) / 8, counter_bits);
	assert_int_equal(sum.values, 1000 * BLOOM_BITS);
	assert_int_equal(sum.full, 0);
	free(filter.words);
	free(before.words);
}

static void a_counter_that_is_full_stays(void **state)
{
	(void)state;
	struct counting_filter filter = filter_of(1);
	int most = counting_most(counter_bits), full = 0;
	for (int i = 0; i < most - 1; i++)
		full += counting_add(&filter, hash_of(1));
	assert_int_equal(full, 0);
	for (int i = 0; i < 40; i++)
		full += counting_add(&filter, hash_of(1));
	assert_int_equal(full, BLOOM_BITS); /* each counter is reported once */
	struct counting_sum sum = counting_sum_up(filter.words, filter_bytes(1) / 8, counter_bits);
	assert_int_equal(sum.full, BLOOM_BITS);
	assert_int_equal(sum.values, most * BLOOM_BITS);
	for (int i = 0; i < most + 100; i++)
		assert_true(counting_remove(&filter, hash_of(1)));
	assert_true(counting_has(&filter, hash_of(1)));
	assert_false(counting_remove(&filter, hash_of(2)));
	free(filter.words);
}

/* The ids that share a full counter with others stay; with wider counters there is no full one. */
static void an_id_that_came_twenty_times_can_be_removed_with_8_bits(void **state)
{
	(void)state;
	struct counting_filter filter = filter_of(1);
	for (int i = 0; i < 20; i++)
		counting_add(&filter, hash_of(1));
	for (int i = 0; i < 20; i++)
		assert_true(counting_remove(&filter, hash_of(1)));
	assert_int_equal(counting_has(&filter, hash_of(1)), counter_bits == 4);
	free(filter.words);
}

/* A window that is full in all of its slices. */
static void the_rate_of_a_window_is_that_of_theory(void **state)
{
	(void)state;
	static const char *const rates[] = {"5%", "1%"};
	int64_t now_ms = clock_wall_us() / 1000;
	for (int i = 0; i < 2; i++) {
		owned_text char *settings =
		    xformat("ids=500k slices=5 window=500h rate=%s", rates[i]);
		struct outbox_dedup *dedup = open_with(settings);
		for (int slice = 0; slice < 6; slice++)
			dedup_walk(dedup, (uint64_t)slice * 100000, 100000,
			    now_ms - (int64_t)(5 - slice) * SLICE, true);
		double planned = dedup_walk_stats(dedup).planned_rate * 300000;
		double found = 300000 - (double)dedup_walk(dedup, 1000000, 300000, -1, false);
		print_message(
		    "%s: %.0f false positives, in theory %.0f\n", rates[i], found, planned);
		/* Each slice is one draw of a filter, so counts scatter half as much again as
		 * Poisson's: 4 of his deviations were passed once. */
		assert_true(fabs(found - planned) <= fmax(0.03 * planned, 6 * sqrt(planned)));
		assert_int_equal(dedup_walk(dedup, 0, 600000, -1, false), 0);
		outbox_dedup_close(dedup);
		temporary_empty(folder);
	}
}

static void release_at(struct outbox_dedup *dedup, uint64_t first, uint64_t count, int64_t time_ms)
{
	struct dedup_walk_id id;
	struct outbox_error error;
	for (uint64_t i = 0; i < count; i++) {
		dedup_walk_name(&id, first + i, time_ms);
		assert_true(outbox_dedup_release(dedup, &id.id, 1, &error));
	}
}

static void release(struct outbox_dedup *dedup, uint64_t first, uint64_t count)
{
	release_at(dedup, first, count, -1);
}

/* Ids 0 to 5999 are of the oldest slice, the next 6,000 of the next, and so on. */
enum { FULL_SLICES = 6, OF_SLICE = 6000, FILLED = FULL_SLICES * OF_SLICE };
enum fate { NEVER_DONE, DONE, DELETED };
static enum fate fates[FILLED];

static int64_t time_of(int id, int64_t now_ms)
{
	return now_ms - (int64_t)(FULL_SLICES - 1 - id / OF_SLICE) * SLICE;
}

/* No id that is done is new: that would be a false negative. Returns how many of the deleted ids
 * are new again. */
static int check_all_fates(struct outbox_dedup *dedup, int64_t now_ms)
{
	int new_again = 0;
	for (int id = 0; id < FILLED; id++) {
		bool is_new = dedup_walk(dedup, (uint64_t)id, 1, time_of(id, now_ms), false) > 0;
		assert_false(is_new && fates[id] == DONE);
		new_again += is_new && fates[id] == DELETED;
	}
	return new_again;
}

/* All slices are full, and have grown by sub-slices, since more ids come than are planned. */
static void thirty_percent_are_deleted_and_no_other_id_is_forgotten(void **state)
{
	(void)state;
	static const char settings[] = "ids=20k slices=5 window=500h rate=1%";
	int64_t now_ms = clock_wall_us() / 1000;
	struct outbox_dedup *dedup = open_with(settings);
	int deleted = 0, new_again = 0;

	/* An id that seems to be done is never done: to delete it would delete others' counts. */
	for (int id = 0; id < FILLED; id++)
		fates[id] = dedup_walk(dedup, (uint64_t)id, 1, time_of(id, now_ms), true) > 0
				? DONE
				: NEVER_DONE;
	assert_true(dedup_walk_stats(dedup).sub_slices >= FULL_SLICES);
	check_all_fates(dedup, now_ms);

	for (int id = 0; id < FILLED; id++)
		if (fates[id] == DONE && id % 10 < 3) {
			release_at(dedup, (uint64_t)id, 1, time_of(id, now_ms));
			fates[id] = DELETED;
			deleted++;
		}
	new_again = check_all_fates(dedup, now_ms);
	print_message("%d of %d deleted, %d new again\n", deleted, FILLED, new_again);
	assert_true(deleted > FILLED * 29 / 100);
	/* the others seem to be done by chance, or two filters seemed to have them */
	assert_true(new_again > deleted * 97 / 100);

	outbox_dedup_close(dedup);
	dedup = open_with(settings);
	assert_int_equal(check_all_fates(dedup, now_ms), new_again);
	outbox_dedup_close(dedup);
}

static void what_is_released_is_new_again_and_the_others_stay(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10k rate=0.0000001%"); /* none seems done */
	dedup_walk(dedup, 0, 10000, -1, true);
	release(dedup, 1000, 1000);
	assert_int_equal(dedup_walk(dedup, 1000, 1000, -1, false), 1000);
	assert_int_equal(dedup_walk(dedup, 0, 1000, -1, false), 0);
	assert_int_equal(dedup_walk(dedup, 2000, 8000, -1, false), 0);
	release(dedup, 50000, 100); /* never were there */
	assert_int_equal(dedup_walk(dedup, 2000, 8000, -1, false), 0);
	outbox_dedup_close(dedup);
}

static void an_old_slice_is_removed(void **state)
{
	(void)state;
	int64_t now_ms = clock_wall_us() / 1000;
	struct outbox_dedup *dedup = open_with("ids=10k window=500h");
	dedup_walk(dedup, 0, 100, now_ms - 5 * (int64_t)SLICE, true);
	dedup_walk(dedup, 100, 100, now_ms - 4 * (int64_t)SLICE, true);
	dedup_walk(dedup, 200, 100, now_ms, true);
	assert_int_equal(dedup_walk(dedup, 0, 300, -1, false), 0);
	outbox_dedup_close(dedup);
	temporary_empty(folder);

	dedup = open_with("ids=10k window=500h");
	dedup_walk(dedup, 0, 100, now_ms - 6 * (int64_t)SLICE, true);
	dedup_walk(dedup, 100, 100, now_ms, true);
	assert_int_equal(dedup_walk(dedup, 0, 200, -1, false), 100);
	dedup_walk(dedup, 300, 100, now_ms - 60 * (int64_t)SLICE, true); /* late: in the oldest */
	assert_int_equal(dedup_walk(dedup, 300, 100, -1, false), 0);
	assert_int_equal(dedup_walk_stats(dedup).slices, 2);
	outbox_dedup_close(dedup);
}

static void more_than_planned_grow_by_sub_slices(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=1k slices=1");
	dedup_walk(dedup, 0, 10000, -1, true);
	assert_in_range(dedup_walk_stats(dedup).slices, 3, 6);
	assert_int_equal(dedup_walk_stats(dedup).sub_slices, dedup_walk_stats(dedup).slices - 1);
	assert_true(dedup_walk_stats(dedup).planned_rate <= 0.001);
	assert_int_equal(dedup_walk(dedup, 0, 10000, -1, false), 0);
	outbox_dedup_close(dedup);
}

static void a_killed_process_forgets_nothing(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		struct outbox_dedup *dedup = open_with("ids=10k");
		dedup_walk(dedup, 0, 1000, -1, true);
		dedup_walk_checkpoint(dedup, 5);
		dedup_walk(dedup, 1000, 1000, -1, true);
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);
	struct outbox_dedup *dedup = open_with("ids=10k");
	assert_int_equal(dedup_walk_stats(dedup).offset, 5);
	assert_int_equal(dedup_walk(dedup, 0, 2000, -1, false), 0);
	outbox_dedup_close(dedup);
}

static void expect_refusal(const char *settings, enum outbox_error_kind kind, const char *word)
{
	struct outbox_error error;
	owned_text char *line = line_of(settings);
	assert_null(outbox_dedup_open(line, &error));
	print_message("%s\n", error.message);
	assert_int_equal(error.kind, kind);
	assert_non_null(strstr(error.message, word));
}

/* The only .counts of the folder: a byte of it. */
static void flip(int64_t number, long at)
{
	owned_text char *path = xformat("%s/%lld.0.counts", folder, (long long)number);
	FILE *file = fopen(path, "r+");
	assert_non_null(file);
	fseek(file, at, SEEK_SET);
	int byte = fgetc(file);
	fseek(file, at, SEEK_SET);
	fputc(byte ^ 1, file);
	fclose(file);
}

static void a_damaged_or_foreign_file_is_refused(void **state)
{
	(void)state;
	int64_t time_ms = 100 * (int64_t)SLICE;
	struct outbox_dedup *dedup = open_with("ids=10k window=500h");
	dedup_walk(dedup, 0, 10, time_ms, true);
	expect_refusal("ids=10k window=500h", OUTBOX_FENCED, "another process");
	outbox_dedup_close(dedup);
	static const struct {
		long at;
		const char *word;
	} damages[] = {{0, "something else"}, {8, "version"}, {16, "damaged head"},
	    {24, "damaged head"}, {56, "damaged head"}};
	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		flip(100, damages[i].at);
		expect_refusal("ids=10k window=500h", OUTBOX_CONFIG, damages[i].word);
		flip(100, damages[i].at);
	}
	owned_text char *path = xformat("%s/100.0.counts", folder);
	assert_int_equal(truncate(path, 8192), 0);
	expect_refusal("ids=10k window=500h", OUTBOX_CONFIG, "shorter");
	assert_int_equal(truncate(path, 7), 0);
	expect_refusal("ids=10k window=500h", OUTBOX_CONFIG, "something else");
	assert_int_equal(truncate(path, 0), 0); /* was being made: no checkpoint knows of it */
	outbox_dedup_close(open_with("ids=10k window=500h"));
}

static void another_plan_keeps_what_is_there(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10k");
	dedup_walk(dedup, 0, 1000, -1, true);
	outbox_dedup_close(dedup);
	dedup = open_with("ids=100k rate=1%");
	assert_int_equal(dedup_walk(dedup, 0, 1000, -1, false), 0);
	outbox_dedup_close(dedup);
	expect_refusal("ids=10k slices=7", OUTBOX_CONFIG, "slices=5");
}

/* A slice that is there has room for what it was made for. */
static void a_slice_is_not_filled_beyond_its_size_when_more_ids_are_planned(void **state)
{
	(void)state;
	static const char *const plans[] = {"ids=100k slices=1", "ids=100k rate=0.01% slices=1"};
	for (int i = 0; i < 2; i++) {
		struct outbox_dedup *dedup = open_with("ids=1k slices=1");
		dedup_walk(dedup, 0, 500, -1, true);
		outbox_dedup_close(dedup);
		dedup = open_with(plans[i]);
		dedup_walk(dedup, 500, 30000, -1, true);
		assert_true(dedup_walk_stats(dedup).planned_rate <= (i ? 0.0001 : 0.001));
		assert_int_equal(dedup_walk_stats(dedup).slices, 2);
		assert_in_range(dedup_walk(dedup, 100000, 20000, -1, false), 20000 - 40, 20000);
		outbox_dedup_close(dedup);
		temporary_empty(folder);
	}
}

static void an_id_is_remembered_for_a_window_that_its_slices_do_not_divide(void **state)
{
	(void)state;
	owned_text char *line = line_of("ids=1k window=1009ms slices=10");
	dedup_walk_odd_window(line, folder);
}

/* Its first bytes are no sign that it was being made. */
static void a_file_that_lost_its_beginning_or_is_gone_is_refused(void **state)
{
	(void)state;
	int64_t time_ms = 100 * (int64_t)SLICE;
	owned_text char *path = xformat("%s/100.0.counts", folder);
	struct outbox_dedup *dedup = open_with("ids=10k window=500h");
	dedup_walk(dedup, 0, 10, time_ms, true);
	dedup_walk_checkpoint(dedup, 1);
	outbox_dedup_close(dedup);
	static const size_t lengths[] = {8, MAPPED_HEAD};
	for (int i = 0; i < 2; i++) {
		static const char none[MAPPED_HEAD];
		FILE *file = fopen(path, "r+");
		assert_int_equal(fwrite(none, 1, lengths[i], file), lengths[i]);
		fclose(file);
		expect_refusal("ids=10k window=500h", OUTBOX_CONFIG, "something else");
	}
	assert_int_equal(unlink(path), 0);
	expect_refusal("ids=10k window=500h", OUTBOX_CONFIG, "100.0.counts is missing");
}

static int width_of(int64_t number, int sub)
{
	struct mapped_head head = {0};
	owned_text char *path = xformat("%s/%lld.%d.counts", folder, (long long)number, sub);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(&head, sizeof head, 1, file), 1);
	fclose(file);
	return head.kind == DEDUP_MAPPED_COUNTS8 ? 8 : head.kind == DEDUP_MAPPED_COUNTS ? 4 : 0;
}

/* A file keeps its width; the next one, also a sub-slice, has that of the line. */
static void another_width_keeps_what_is_there(void **state)
{
	(void)state;
	const int first = counter_bits, second = 12 - first;
	const int64_t time_ms = 100 * (int64_t)SLICE, next_ms = time_ms + SLICE;
	static const char settings[] = "ids=5k slices=5 window=500h rate=0.0000001%";

	struct outbox_dedup *dedup = open_with(settings);
	dedup_walk(dedup, 0, 900, time_ms, true);
	outbox_dedup_close(dedup);

	counter_bits = second;
	dedup = open_with(settings);
	assert_int_equal(dedup_walk(dedup, 0, 900, -1, false), 0);
	dedup_walk(dedup, 900, 2000, time_ms, true);
	dedup_walk(dedup, 3000, 100, next_ms, true);
	release_at(dedup, 0, 300, time_ms);
	release_at(dedup, 3000, 50, next_ms);
	dedup_walk_checkpoint(dedup, 1);
	outbox_dedup_close(dedup);
	assert_int_equal(width_of(100, 0), first);
	assert_int_equal(width_of(100, 1), second);
	assert_int_equal(width_of(101, 0), second);

	counter_bits = first;
	dedup = open_with(settings);
	assert_int_equal(dedup_walk(dedup, 0, 300, -1, false), 300);
	assert_int_equal(dedup_walk(dedup, 300, 2600, -1, false), 0);
	assert_int_equal(dedup_walk(dedup, 3000, 100, -1, false), 50);
	outbox_dedup_close(dedup);
}

/* As a call of `add` that failed, and is repeated with the same ids. */
static void full_counters_are_told_also_after_a_restart(void **state)
{
	(void)state;
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	struct err err;
	const struct dedup_item item = {.hash = hash_of(1), .time_ms = 100 * (int64_t)SLICE};
	owned_text char *line = line_of("ids=1k window=500h");
	uint64_t expected = counter_bits == 4 ? BLOOM_BITS : 0;

	assert_true(dedup_spec_parse(line, &spec, &err));
	struct dedup_store *store = spec.type->open(&spec, &err);
	assert_non_null(store);
	for (int i = 0; i < 20; i++)
		assert_true(spec.type->add(store, &item, 1, &err));
	struct outbox_dedup_stats stats = {0};
	spec.type->stats(store, &stats);
	assert_int_equal(stats.saturated, expected);
	spec.type->close(store);

	struct outbox_dedup *dedup = open_with("ids=1k window=500h");
	assert_int_equal(dedup_walk_stats(dedup).saturated, expected);
	outbox_dedup_close(dedup);
}

static bool add_one(
    const struct dedup_spec *spec, struct dedup_store *store, uint64_t id, int64_t slice)
{
	struct err err = {0};
	const struct dedup_item item = {.hash = hash_of(id), .time_ms = slice * (int64_t)SLICE};
	return spec->type->add(store, &item, 1, &err);
}

static int slices_of(const struct dedup_spec *spec, const struct dedup_store *store)
{
	struct outbox_dedup_stats stats = {0};
	spec->type->stats(store, &stats);
	return stats.slices;
}

/* Expired slices leave their room to the record that ends them. */
static void a_full_window_takes_a_later_record(void **state)
{
	(void)state;
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	struct err err;
	uint64_t id = 0;
	owned_text char *line = line_of("ids=31 slices=30 window=3000h rate=1%");
	assert_true(dedup_spec_parse(line, &spec, &err));
	struct dedup_store *store = spec.type->open(&spec, &err);
	assert_non_null(store);

	/* each of the slices 0 to 30 has a sub-slice at least */
	for (int i = 0; i <= 30; i++)
		while (slices_of(&spec, store) < 2 * (i + 1))
			assert_true(add_one(&spec, store, id++, i));
	while (add_one(&spec, store, id, 30))
		id++;
	assert_int_equal(slices_of(&spec, store), BLOOM_FILTERS);

	assert_true(add_one(&spec, store, id, 31));
	assert_int_equal(slices_of(&spec, store), BLOOM_FILTERS - 1);
	assert_true(add_one(&spec, store, id, 62));
	assert_int_equal(slices_of(&spec, store), 1);
	spec.type->close(store);
}

static int syncs_to_fail;
static size_t synced; /* bytes of the largest */

int msync(void *memory, size_t length, int flags)
{
	synced = length > synced ? length : synced;
	if (syncs_to_fail && syncs_to_fail--) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_msync, memory, length, flags);
}

static void expect_fatal(struct outbox_dedup *dedup)
{
	struct outbox_error error;
	assert_false(outbox_dedup_checkpoint(dedup, 9, &error));
	assert_int_equal(error.kind, OUTBOX_FATAL);
	assert_non_null(strstr(error.message, "open the folder again"));
}

/* The kernel would say that all is well. */
static void after_a_sync_that_failed_all_is_written_again(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = open_with("ids=10k");
	dedup_walk(dedup, 0, 1000, -1, true);
	syncs_to_fail = 1;
	expect_fatal(dedup);
	expect_fatal(dedup);
	outbox_dedup_close(dedup);
	synced = 0;
	syncs_to_fail = 1;
	expect_refusal("ids=10k", OUTBOX_RETRY, "cannot be made durable");
	dedup = open_with("ids=10k");
	assert_true(synced > MAPPED_HEAD);
	assert_int_equal(dedup_walk(dedup, 0, 1000, -1, false), 0);
	dedup_walk_checkpoint(dedup, 9);
	outbox_dedup_close(dedup);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(what_is_taken_out_leaves_no_trace),
	    TEST(a_counter_that_is_full_stays),
	    TEST(the_rate_of_a_window_is_that_of_theory),
	    TEST(an_id_that_came_twenty_times_can_be_removed_with_8_bits),
	    TEST(thirty_percent_are_deleted_and_no_other_id_is_forgotten),
	    TEST(another_width_keeps_what_is_there),
	    TEST(full_counters_are_told_also_after_a_restart),
	    TEST(what_is_released_is_new_again_and_the_others_stay),
	    TEST(an_old_slice_is_removed),
	    TEST(a_full_window_takes_a_later_record),
	    TEST(more_than_planned_grow_by_sub_slices),
	    TEST(a_killed_process_forgets_nothing),
	    TEST(a_damaged_or_foreign_file_is_refused),
	    TEST(another_plan_keeps_what_is_there),
	    TEST(an_id_is_remembered_for_a_window_that_its_slices_do_not_divide),
	    TEST(a_file_that_lost_its_beginning_or_is_gone_is_refused),
	    TEST(after_a_sync_that_failed_all_is_written_again),
	    TEST(a_slice_is_not_filled_beyond_its_size_when_more_ids_are_planned),
	};
	counter_bits = 4;
	int failed = cmocka_run_group_tests_name("counter=4", tests, NULL, NULL);
	counter_bits = 8;
	return failed + cmocka_run_group_tests_name("counter=8", tests, NULL, NULL);
}
