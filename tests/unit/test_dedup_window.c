#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "clock.h"
#include "disk_error.h"
#include "dedup_stores.h"
#include "dedup_window.h"
#include "temporary.h"
#include "text.h"

/* A window of 5000 ms in slices of 1000. */
enum { SLICE_MS = 1000, NOW = 100 * SLICE_MS };

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

static struct dedup_window *try_open(const char *settings, struct err *err)
{
	struct dedup_spec spec;
	owned_text char *line = xformat("bloom window=5s slices=5 %s path=%s", settings, folder);
	assert_true(dedup_spec_parse(line, &spec, err));
	const struct dedup_window_settings wanted = dedup_spec_window(&spec);
	struct dedup_window *window = dedup_window_open(&wanted, err);
	dedup_spec_finish(&spec);
	return window;
}

static struct dedup_window *open_with(const char *settings)
{
	struct err err;
	struct dedup_window *window = try_open(settings, &err);
	if (!window)
		fail_msg("%s", err.message);
	return window;
}

static struct dedup_window *open_window(void)
{
	return open_with("ids=10k");
}

static void expect_refusal(const char *settings, enum err_kind kind, const char *word)
{
	struct err err = {0};
	assert_null(try_open(settings, &err));
	print_message("%s\n", err.message);
	assert_int_equal(err.kind, kind);
	assert_non_null(strstr(err.message, word));
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

static void add_at(struct dedup_window *window, uint64_t id, int64_t time_ms)
{
	struct err err;
	if (!dedup_window_add(window, hash_of(window, id), (int64_t)id, time_ms, NOW, &err))
		fail_msg("%s", err.message);
}

/* Ids first to last, all of the newest slice. */
static void add(struct dedup_window *window, uint64_t first, uint64_t last)
{
	for (uint64_t id = first; id <= last; id++)
		add_at(window, id, NOW);
}

static void checkpoint(struct dedup_window *window, int64_t offset)
{
	struct err err;
	if (!dedup_window_checkpoint(window, offset, &err))
		fail_msg("%s", err.message);
}

static void expect_all(struct dedup_window *window, uint64_t first, uint64_t last)
{
	for (uint64_t id = first; id <= last; id++)
		assert_true(has(window, id));
}

static void expect_none(struct dedup_window *window, uint64_t first, uint64_t last)
{
	for (uint64_t id = first; id <= last; id++)
		assert_false(has(window, id));
}

static struct dedup_window_figures figures_of(const struct dedup_window *window)
{
	struct dedup_window_figures figures;
	dedup_window_figures(window, &figures);
	return figures;
}

static void each_file(const char *end_of_name, void (*change)(int fd))
{
	DIR *list = opendir(folder);
	const struct dirent *entry;
	while ((entry = readdir(list)))
		if (strlen(entry->d_name) > 4 &&
		    strcmp(entry->d_name + strlen(entry->d_name) - 4, end_of_name) == 0) {
			int fd = openat(dirfd(list), entry->d_name, O_RDWR);
			change(fd);
			close(fd);
		}
	closedir(list);
}

static void forget_boot(int fd)
{
	assert_int_equal(pwrite(fd, "another boot....", 16, 16), 16);
}

static void unseal(int fd)
{
	forget_boot(fd);
	assert_int_equal(pwrite(fd, "\0\0\0\0", 4, 12), 4);
}

static void flip_in_the_middle(int fd)
{
	struct stat state;
	char byte;
	fstat(fd, &state);
	assert_int_equal(pread(fd, &byte, 1, state.st_size / 2), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, state.st_size / 2), 1);
}

/* --- what is remembered --------------------------------------------------------------------- */

static void an_id_is_remembered_for_the_window_and_no_slice_longer(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	for (uint64_t slice = 0; slice <= 40; slice++) {
		int64_t begins = (int64_t)slice * SLICE_MS;
		add_at(window, 2 * slice, begins);
		add_at(window, 2 * slice + 1, begins + SLICE_MS - 1);
		for (uint64_t old = 0; old <= slice; old++)
			for (uint64_t id = 2 * old; id <= 2 * old + 1; id++)
				assert_int_equal(has(window, id), slice - old <= 5);
	}
	assert_int_equal(figures_of(window).slices, 6);
	assert_int_equal(figures_of(window).ids, 12);
	dedup_window_close(window);
}

/* Also where its slices do not divide it. */
static void an_id_is_remembered_for_the_whole_window(void **state)
{
	(void)state;
	for (int64_t begins = 0; begins < 120; begins += 7) {
		struct dedup_window *window = open_with("ids=10k window=1009ms slices=10 hot=1");
		add_at(window, 1, begins);
		add_at(window, 2, begins + 1009);
		assert_true(has(window, 1));
		dedup_window_close(window);
		temporary_empty(folder);
	}
}

static void a_late_id_and_one_of_the_future_are_remembered(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	add_at(window, 1, NOW);
	add_at(window, 2, NOW + 1000000);
	add_at(window, 3, 0);
	add_at(window, 4, -77);
	expect_all(window, 1, 4);
	assert_int_equal(figures_of(window).slices, 2);
	assert_int_equal(figures_of(window).newest_ms, NOW);
	dedup_window_close(window);
}

static void more_ids_than_planned_get_slices_of_their_own_and_the_rate_holds(void **state)
{
	(void)state;
	struct dedup_window *window = open_with("ids=5k rate=1%"); /* 1000 a slice */
	add(window, 1, 9000);
	expect_all(window, 1, 9000);
	checkpoint(window, 9001);
	expect_all(window, 1, 9000);
	struct dedup_window_figures before = figures_of(window);
	assert_in_range(before.slices, 4, 5);
	assert_true(before.planned_rate <= 0.01 / 6 * 1.01);
	expect_none(window, 1000000, 1400000);
	struct dedup_window_figures after = figures_of(window);
	uint64_t allowed = (uint64_t)(400001 * 0.01 / 6 * 1.5); /* small filters differ */
	assert_in_range(after.false_hits, 1, allowed);
	dedup_window_close(window);
}

/* --- what survives -------------------------------------------------------------------------- */

/* Each of the slices 0 to 30 has a sub-slice at least; returns the number of ids. */
static uint64_t fill_window(struct dedup_window *window)
{
	struct err err = {0};
	uint64_t id = 0;
	for (int i = 0; i <= 30; i++)
		while (figures_of(window).slices < 2 * (i + 1))
			add_at(window, id++, i * (int64_t)SLICE_MS);
	while (dedup_window_add(
	    window, hash_of(window, id), (int64_t)id, 30 * (int64_t)SLICE_MS, NOW, &err))
		id++;

	assert_int_equal(err.kind, ERR_RETRY);
	assert_non_null(strstr(err.message, "raise ids"));
	assert_int_equal(figures_of(window).slices, 64);
	return id;
}

/* Expired slices leave their room to the record that ends them: one slice, or all. */
static void a_full_window_takes_a_later_record(void **state)
{
	(void)state;
	const struct dedup_window_settings settings = {
	    .path = folder, .ids = 31, .rate = 0.01, .slice_ms = SLICE_MS, .slices = 30};
	for (int later = 1; later <= 31; later += 10) {
		struct err err;
		struct dedup_window *window = dedup_window_open(&settings, &err);
		assert_non_null(window);
		uint64_t ids = fill_window(window);
		checkpoint(window, 1);

		for (int restart = 0; restart < 2; restart++) {
			add_at(window, ids + 1, (30 + later) * (int64_t)SLICE_MS);
			checkpoint(window, 2);
			assert_true(has(window, ids + 1));
			assert_int_equal(has(window, ids - 1), later < 31);
			assert_true(figures_of(window).slices <= 65 - 2 * later ||
				    (later == 31 && figures_of(window).slices == 1));
			dedup_window_close(window);
			window = dedup_window_open(&settings, &err);
			assert_non_null(window);
		}
		dedup_window_close(window);
		temporary_empty(folder);
	}
}

static void a_window_is_as_it_was_when_it_is_opened_again(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	for (uint64_t id = 1; id <= 3000; id++)
		add_at(window, id, NOW - (int64_t)(id % 6) * SLICE_MS);
	checkpoint(window, 3001);
	dedup_window_close(window);
	window = open_window();
	expect_all(window, 1, 3000);
	expect_none(window, 3001, 9000);
	struct dedup_window_figures figures = figures_of(window);
	assert_int_equal(figures.offset, 3001);
	assert_int_equal(figures.mapped, 6);
	assert_int_equal(figures.ids, 3000);
	checkpoint(window, 3005); /* no ids, and yet an offset */
	dedup_window_close(window);
	window = open_window();
	assert_int_equal(figures_of(window).offset, 3005);
	dedup_window_close(window);
}

static void after_another_start_a_sealed_map_is_believed(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	add(window, 1, 2000);
	checkpoint(window, 2001);
	dedup_window_close(window);
	each_file(".map", forget_boot);
	window = open_window();
	assert_int_equal(figures_of(window).mapped, 1);
	assert_int_equal(figures_of(window).rebuilt, 0);
	expect_all(window, 1, 2000);
	dedup_window_close(window);
}

static void a_map_that_cannot_be_believed_is_made_again(void **state)
{
	(void)state;
	for (int how = 0; how < 2; how++) {
		struct dedup_window *window = open_window();
		add(window, 1, 2000);
		checkpoint(window, 2001);
		dedup_window_close(window);
		each_file(".map", how ? flip_in_the_middle : unseal);
		each_file(".map", forget_boot);
		window = open_window();
		assert_int_equal(figures_of(window).rebuilt, 1);
		assert_int_equal(figures_of(window).offset, 2001);
		expect_all(window, 1, 2000);
		expect_none(window, 2001, 12000);
		dedup_window_close(window);
		temporary_empty(folder);
	}
}

static void another_plan_keeps_what_is_remembered(void **state)
{
	(void)state;
	struct dedup_window *window = open_with("ids=10k");
	add(window, 1, 2000);
	checkpoint(window, 1);
	dedup_window_close(window);
	static const char *const plans[] = {"ids=1M rate=0.01%", "ids=50 rate=10%", "ids=10k"};
	for (int i = 0; i < 3; i++) {
		window = open_with(plans[i]);
		expect_all(window, 1, 2000);
		dedup_window_close(window);
	}
}

static char *read_file(const char *name, size_t *ret_length)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	FILE *file = fopen(path, "r");
	char *bytes = xmalloc(1 << 20);
	assert_non_null(file);
	*ret_length = fread(bytes, 1, 1 << 20, file);
	fclose(file);
	return bytes;
}

static void write_file(const char *name, const char *bytes, size_t length)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, length, file), length);
	fclose(file);
}

enum { LOG_HEAD = 64, UNIT = 32 };

/*
 * A log with these last batches of 3 ids, 11 and on, behind one of 10 that is durable: as it is
 * when the machine dies before those are.
 */
static char *log_with_unsynced(int batches, size_t *ret_length)
{
	struct dedup_window *window = open_window();
	size_t length;
	add(window, 1, 10);
	checkpoint(window, 11);
	owned_text char *synced = read_file("100.0.log", &length);
	for (uint64_t i = 0; i < (uint64_t)batches; i++) {
		add(window, 11 + 3 * i, 13 + 3 * i);
		checkpoint(window, 14 + 3 * (int64_t)i);
	}
	dedup_window_close(window);
	char *bytes = read_file("100.0.log", ret_length);
	memcpy(bytes, synced, LOG_HEAD);
	return bytes;
}

static void a_tail_torn_at_any_byte_costs_nothing_that_was_durable(void **state)
{
	(void)state;
	struct dedup_window *window;
	size_t length, whole = LOG_HEAD + 11 * UNIT;
	owned_text char *bytes = log_with_unsynced(1, &length);
	assert_int_equal(length, whole + 4 * UNIT);
	each_file(".map", unseal);
	for (size_t torn = whole; torn < length; torn++)
		for (int noise = 0; noise < 2; noise++) {
			/* cut off there, or the disk has something else from there on */
			owned_text char *copy = xmalloc(length);
			memcpy(copy, bytes, length);
			for (size_t i = torn; i < length; i++)
				copy[i] ^= 0x5a;
			write_file("100.0.log", copy, noise ? length : torn);
			each_file(".map", unseal);
			window = open_window();
			expect_all(window, 1, 10);
			expect_none(window, 11, 13);
			assert_int_equal(figures_of(window).offset, 11);
			add(window, 11, 13);
			checkpoint(window, 14);
			dedup_window_close(window);
			window = open_window();
			expect_all(window, 1, 13);
			dedup_window_close(window);
		}
}

/* The disk may write them in any order. */
static void a_batch_that_came_to_the_disk_before_an_earlier_one_is_cut_with_it(void **state)
{
	(void)state;
	size_t length, torn = LOG_HEAD + 11 * UNIT + 40;
	owned_text char *bytes = log_with_unsynced(3, &length);
	bytes[torn] ^= 1;
	write_file("100.0.log", bytes, length);
	each_file(".map", unseal);
	struct dedup_window *window = open_window();
	expect_all(window, 1, 10);
	expect_none(window, 11, 19);
	assert_int_equal(figures_of(window).offset, 11);
	dedup_window_close(window);
}

/* --- what the kernel does ------------------------------------------------------------------- */

static _Atomic ino_t watched; /* a file: its syncs are counted, and may fail */
static _Atomic int syncs, syncs_to_fail, syncs_before_map;

int fdatasync(int fd)
{
	struct stat state;
	if (fstat(fd, &state) == 0 && state.st_ino == watched) {
		syncs++;
		if (syncs_to_fail && syncs_to_fail--) {
			errno = EIO;
			return -1;
		}
	}
	return (int)syscall(SYS_fdatasync, fd);
}

int msync(void *memory, size_t length, int flags)
{
	syncs_before_map = syncs;
	return (int)syscall(SYS_msync, memory, length, flags);
}

static void watch(const char *name)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	struct stat state;
	assert_int_equal(stat(path, &state), 0);
	watched = state.st_ino;
	syncs = syncs_before_map = 0;
}

static _Atomic int made_here; /* files, by the thread of the test */
static _Atomic pthread_t here;

int posix_fallocate(int fd, off_t offset, off_t length)
{
	made_here += pthread_equal(here, pthread_self()) != 0;
	return syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0;
}

/* However long no record came. */
static void who_adds_makes_no_slice(void **state)
{
	(void)state;
	struct err err;
	struct dedup_window *window = open_window();
	made_here = 0;
	static const int slices[] = {1, 2, 6, 7, 90};
	for (uint64_t i = 0; i < 5; i++)
		add_at(window, i, slices[i] * SLICE_MS);
	assert_int_equal(made_here, 0);
	expect_none(window, 0, 3);
	checkpoint(window, 4);
	add_at(window, 5, 92 * SLICE_MS);
	assert_true(dedup_window_flush(window, &err));
	dedup_window_close(window);
	window = open_window();
	expect_all(window, 4, 5);
	assert_int_equal(figures_of(window).slices, 2);
	dedup_window_close(window);
}

static bool is_made(const char *name)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	char magic[3] = "";
	owned_fd int fd = open(path, O_RDONLY);
	return fd >= 0 && pread(fd, magic, 2, 0) == 2 && text_equal(magic, "ob");
}

static void move_file(const char *from, const char *to)
{
	owned_text char *old = xformat("%s/%s", folder, from), *new = xformat("%s/%s", folder, to);
	assert_int_equal(rename(old, new), 0);
}

/* A slice was made ready, and becomes that of another time: a process may be killed at any step. */
static void a_slice_that_was_half_renamed_is_no_loss(void **state)
{
	(void)state;
	for (int step = 0; step < 3; step++) {
		pid_t child = fork();
		if (child == 0) {
			struct dedup_window *window = open_window();
			add(window, 1, 10);
			checkpoint(window, 11);
			while (!is_made("101.0.log") || !is_made("101.0.map"))
				usleep(1000);
			kill(getpid(), SIGKILL);
		}
		assert_int_equal(waitpid(child, NULL, 0), child);
		if (step > 0)
			move_file("101.0.map", "105.0.map");
		if (step > 1)
			move_file("101.0.log", "105.0.log");
		struct dedup_window *window = open_window();
		expect_all(window, 1, 10);
		dedup_window_close(window);
		assert_false(is_made("101.0.log") || is_made("105.0.log") || is_made("105.0.map"));
		temporary_empty(folder);
	}
}

/* What the kernel could not write it may have dropped, and says no more of it. */
static void after_a_sync_that_failed_the_log_is_read_and_written_again(void **state)
{
	(void)state;
	struct err err;
	struct dedup_window *window = open_window();
	add(window, 1, 1000);
	checkpoint(window, 1001);
	add(window, 1001, 2000);
	watch("100.0.log");
	syncs_to_fail = 1;
	assert_false(dedup_window_checkpoint(window, 2001, &err));
	print_message("%s\n", err.message);
	assert_int_equal(err.kind, ERR_FATAL);
	for (int i = 0; i < 2; i++) { /* and that stays so */
		assert_false(dedup_window_checkpoint(window, 2001, &err));
		assert_int_equal(err.kind, ERR_FATAL);
	}
	dedup_window_close(window);
	size_t length, durable = LOG_HEAD + 1001 * UNIT;
	owned_text char *bytes = read_file("100.0.log", &length);
	assert_int_equal(length, durable + 1001 * UNIT);
	window = open_window();
	assert_int_equal(figures_of(window).rebuilt, 1);
	expect_all(window, 1, 2000);
	dedup_window_close(window);
	/* and when it was dropped */
	memset(bytes + durable, 0, length - durable);
	write_file("100.0.log", bytes, length);
	each_file(".map", unseal);
	window = open_window();
	expect_all(window, 1, 1000);
	expect_none(window, 1001, 2000);
	assert_int_equal(figures_of(window).offset, 1001);
	dedup_window_close(window);
}

static void what_a_sealed_map_knows_is_durable_before_it(void **state)
{
	(void)state;
	struct err err;
	struct dedup_window *window = open_window();
	add(window, 1, 100);
	assert_true(dedup_window_flush(window, &err));
	watch("100.0.log");
	dedup_window_close(window);
	assert_int_equal(syncs_before_map, 1);
}

static void run_until_killed(int told)
{
	struct dedup_window *window = open_with("ids=200k");
	uint64_t id = (uint64_t)figures_of(window).offset;
	for (id = id == UINT64_MAX ? 0 : id;; id += 100) {
		/* some are late */
		for (uint64_t i = 0; i < 100; i++)
			add_at(window, id + i, NOW - (int64_t)(i % 3) * SLICE_MS);
		checkpoint(window, (int64_t)id + 100);
		uint64_t acknowledged = id + 100;
		if (write(told, &acknowledged, sizeof acknowledged) < 0)
			_exit(1);
	}
}

static uint64_t kill_one(unsigned random)
{
	int pipes[2];
	uint64_t acknowledged = 0, next;
	assert_int_equal(pipe(pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		close(pipes[0]);
		run_until_killed(pipes[1]);
	}
	close(pipes[1]);
	for (unsigned i = 0; i < random % 7 + 1; i++)
		if (read(pipes[0], &next, sizeof next) == sizeof next)
			acknowledged = next;
	usleep(random % 997);
	kill(child, SIGKILL);
	while (read(pipes[0], &next, sizeof next) == sizeof next)
		acknowledged = next;
	close(pipes[0]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	return acknowledged;
}

static void no_acknowledged_id_is_forgotten_by_a_killed_process(void **state)
{
	(void)state;
	const char *text = getenv("DEDUP_KILLS");
	int64_t kills = 40;
	uint64_t acknowledged = 0;
	unsigned random = 1;
	if (text)
		assert_true(text_to_int64(text, 1, 1000000, &kills));
	for (int64_t i = 0; i < kills; i++) {
		random = random * 1664525 + 1013904223;
		uint64_t later = kill_one(random >> 8);
		acknowledged = later > acknowledged ? later : acknowledged;
		struct dedup_window *window = open_with("ids=200k");
		assert_true(figures_of(window).offset >= (int64_t)acknowledged);
		if (acknowledged)
			expect_all(window, 0, acknowledged - 1);
		dedup_window_close(window);
	}
	print_message("%lld kills, %llu ids\n", (long long)kills, (unsigned long long)acknowledged);
	assert_true(acknowledged > 0);
}

/* More of them than there are batches; and what is delivered once more was never a false hit. */
static void a_killed_process_leaves_no_unwritten_id_in_its_maps(void **state)
{
	(void)state;
	struct err err;
	pid_t child = fork();
	if (child == 0) {
		struct dedup_window *window = open_with("ids=100k alarm=0.1%");
		add(window, 1, 1000);
		checkpoint(window, 1001);
		add(window, 1001, 9000);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
	struct dedup_window *window = open_with("ids=100k alarm=0.1%");
	assert_int_equal(figures_of(window).rebuilt, 0);
	assert_int_equal(figures_of(window).ids, 1000);
	expect_all(window, 1, 1000);
	expect_none(window, 1001, 9000);
	assert_in_range(figures_of(window).false_hits, 0, 2);
	add(window, 1001, 9000);
	expect_all(window, 1, 9000);
	assert_true(dedup_window_flush(window, &err));
	expect_all(window, 1, 9000);
	dedup_window_close(window);
}

/* Slices of a whole window, as many ids in each as planned, and some that are not written. */
static void fill_and_die(const char *settings, uint64_t ids)
{
	struct err err;
	struct dedup_window *window = open_with(settings);
	for (uint64_t id = 0; id < ids; id++) {
		add_at(window, id, NOW - SLICE_MS * (int64_t)(4 - id * 5 / ids));
		if (id % 1000000 == 999999 && !dedup_window_flush(window, &err))
			_exit(1);
	}
	checkpoint(window, (int64_t)ids);
	add(window, ids, ids + 10000);
	kill(getpid(), SIGKILL);
}

static void open_and_die(const char *settings, uint64_t ids)
{
	struct dedup_window *window = open_with(settings);
	add(window, ids, ids + 10000);
	kill(getpid(), SIGKILL);
}

static void run_child(
    void (*live)(const char *settings, uint64_t ids), const char *settings, uint64_t ids)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		live(settings, ids);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static int64_t open_once(const char *settings)
{
	int64_t begin = clock_us();
	struct dedup_window *window = open_with(settings);
	int64_t spent = clock_us() - begin;
	assert_int_equal(figures_of(window).rebuilt, 0);
	assert_true(has(window, 7));
	dedup_window_close(window);
	return spent;
}

/* ThreadSanitizer takes too long for 100 M. */
static bool is_full_run(void)
{
#ifdef __SANITIZE_THREAD__
	return false;
#else
	const char *full = getenv("TEST_FULL");
	return full && full[0];
#endif
}

/* With --full of 100 M ids: the time of an opening that nothing disturbed. */
static void a_restart_after_a_kill_takes_no_time(void **state)
{
	(void)state;
	uint64_t ids = is_full_run() ? 100000000 : 100000;
	int64_t best = INT64_MAX;
	owned_text char *settings = xformat("ids=%llu", (unsigned long long)ids);
	run_child(fill_and_die, settings, ids);
	for (int i = 0; i < 5; i++) {
		run_child(open_and_die, settings, ids);
		int64_t spent = open_once(settings);
		best = spent < best ? spent : best;
	}
	print_message("%llu ids: %lld ms\n", (unsigned long long)ids, (long long)best / 1000);
	if (is_full_run())
		assert_in_range(best, 0, 100000);
}

/* --- what is refused ------------------------------------------------------------------------ */

static void a_damaged_log_is_refused(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	for (uint64_t i = 0; i < 10; i++) {
		add(window, i * 10, i * 10 + 9);
		checkpoint(window, 1);
	}
	dedup_window_close(window);
	each_file(".log", flip_in_the_middle);
	each_file(".map", unseal);
	expect_refusal("ids=10k", ERR_CONFIG, "load them again");
	expect_refusal("ids=10k", ERR_CONFIG, "damaged at byte");
}

static void flip_at(const char *name, size_t at)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	temporary_flip(path, (off_t)at);
}

static size_t size_of(const char *name)
{
	owned_text char *path = xformat("%s/%s", folder, name);
	struct stat state;
	assert_int_equal(stat(path, &state), 0);
	return (size_t)state.st_size;
}

enum { FEW = 40, A_BATCH = 10 };

static void fill_with_few(void)
{
	struct dedup_window *window = open_with("ids=250 hot=1");
	for (uint64_t i = 0; i < FEW; i += A_BATCH) {
		add(window, i, i + A_BATCH - 1);
		checkpoint(window, 1);
	}
	dedup_window_close(window);
}

/* Without another start of the machine, and in a window that was closed in order. */
static void a_map_that_is_damaged_anywhere_is_made_again(void **state)
{
	(void)state;
	struct err err;
	fill_with_few();
	size_t length = size_of("100.0.map"), heads = 120;
	for (size_t at = 0; at < length; at += at < heads ? 1 : at < 4096 ? 4096 - at : 61) {
		flip_at("100.0.map", at);
		struct dedup_window *window = open_with("ids=250 hot=1");
		expect_all(window, 0, FEW - 1);
		add(window, 1000 + at, 1000 + at);
		assert_true(dedup_window_flush(window, &err));
		expect_all(window, 0, FEW - 1);
		dedup_window_close(window);
		if (at % 10 == 0) { /* its slice is not to grow for ever */
			temporary_empty(folder);
			fill_with_few();
		}
	}
}

/* No id of a damaged entry is new, and the next start refuses the log. */
static void an_entry_that_is_damaged_is_told_when_it_is_asked_for(void **state)
{
	(void)state;
	struct err err;
	for (size_t byte = 0; byte < 16; byte += 5)
		for (size_t id = 3; id < FEW; id += 17) {
			temporary_empty(folder);
			fill_with_few();
			flip_at("100.0.log", LOG_HEAD + (id + id / A_BATCH + 1) * UNIT + byte);
			struct dedup_window *window = open_with("ids=250 hot=1");
			bool there = false, told = false;
			for (uint64_t i = 0; i < FEW && !told; i++) {
				told = !dedup_window_has(window, hash_of(window, i), &there, &err);
				assert_true(told ? i == id : there);
			}
			assert_true(told);
			assert_int_equal(err.kind, ERR_FATAL);
			assert_non_null(strstr(err.message, "100.0.log is damaged at byte"));
			for (uint64_t i = 0; i < FEW; i++)
				assert_false(
				    dedup_window_has(window, hash_of(window, i), &there, &err) &&
				    !there);
			assert_false(dedup_window_checkpoint(window, 2, &err));
			dedup_window_close(window);
			expect_refusal("ids=250", ERR_CONFIG, "damaged at byte");
		}
}

static void a_log_that_is_gone_is_noticed(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	add(window, 1, 100);
	checkpoint(window, 1);
	dedup_window_close(window);
	size_t length;
	owned_text char *bytes = read_file("100.0.log", &length);
	write_file("100.0.log", bytes, 64);
	expect_refusal("ids=10k", ERR_CONFIG, "shorter than it was");
	write_file("100.0.log", bytes, length);
	owned_text char *path = xformat("%s/100.0.log", folder);
	unlink(path);
	expect_refusal("ids=10k", ERR_CONFIG, "without its key log");
}

/* The log with its map, of the newest slice or of another one, or all of them. */
static void a_slice_that_is_gone_is_noticed(void **state)
{
	(void)state;
	for (int gone = 1; gone < 4; gone++) {
		struct dedup_window *window = open_window();
		add_at(window, 1, NOW - SLICE_MS);
		add_at(window, 2, NOW);
		checkpoint(window, 1);
		dedup_window_close(window);
		for (int i = 0; i < 2; i++) {
			owned_text char *log = xformat("%s/%d.0.log", folder, 99 + i);
			owned_text char *map = xformat("%s/%d.0.map", folder, 99 + i);
			if (!(gone >> i & 1))
				continue;
			assert_int_equal(unlink(log), 0);
			assert_int_equal(unlink(map), 0);
		}
		expect_refusal("ids=10k", ERR_CONFIG, "0.log is missing");
		temporary_empty(folder);
	}
}

/* A record of a later time, which was not written, ended all that was. */
static void slices_that_ended_before_a_kill_are_not_missed(void **state)
{
	(void)state;
	for (int slices = 1; slices < 20; slices += 6) {
		pid_t child = fork();
		if (child == 0) {
			struct dedup_window *window = open_window();
			add_at(window, 1, NOW - 20 * SLICE_MS);
			add_at(window, 2, NOW - 19 * SLICE_MS);
			checkpoint(window, 1);
			add_at(window, 3, NOW - (19 - slices) * SLICE_MS);
			owned_text char *next = xformat("%d.0.log", NOW / SLICE_MS - 18 + slices);
			while (!is_made(next)) /* by who removes the others before */
				usleep(1000);
			kill(getpid(), SIGKILL);
		}
		assert_int_equal(waitpid(child, NULL, 0), child);
		/* the first opening removes the newest slice, which is empty */
		for (int i = 0; i < 3; i++)
			dedup_window_close(open_window());
		temporary_empty(folder);
	}
}

static void a_folder_of_something_else_is_refused(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	add(window, 1, 100);
	checkpoint(window, 1);
	dedup_window_close(window);
	expect_refusal("ids=10k slices=4", ERR_CONFIG, "slices=5");
	expect_refusal("ids=10k window=10s", ERR_CONFIG, "window=5000ms");
	size_t length;
	owned_text char *log = read_file("100.0.log", &length);
	log[8]++;
	write_file("100.0.log", log, length);
	expect_refusal("ids=10k", ERR_CONFIG, "version");
	log[8]--;
	log[16]++; /* the seed */
	write_file("100.0.log", log, length);
	expect_refusal("ids=10k", ERR_CONFIG, "damaged head");
	static const char of_something[] =
	    "hello, this is a file that has nothing to do with that, and yet is long enough";
	write_file("100.0.log", of_something, sizeof of_something);
	expect_refusal("ids=10k", ERR_CONFIG, "no key log");
	write_file("window", "hello", 5);
	expect_refusal("ids=10k", ERR_CONFIG, "'window'");
}

static void expect_removed(struct dedup_window *window)
{
	struct err err;
	assert_false(dedup_window_checkpoint(window, 2, &err));
	print_message("%s\n", err.message);
	assert_int_equal(err.kind, ERR_FATAL);
	assert_non_null(strstr(err.message, "load the ids again"));
}

static void a_folder_that_is_removed_in_use_is_noticed(void **state)
{
	(void)state;
	owned_text char *moved = xformat("%s.moved", folder), *head = xformat("%s/window", moved);
	struct dedup_window *window = open_window();
	add(window, 1, 100);
	checkpoint(window, 1);
	assert_int_equal(rename(folder, moved), 0);
	expect_removed(window);
	assert_int_equal(mkdir(folder, 0700), 0); /* another of its name is not it */
	expect_removed(window);
	rmdir(folder);
	assert_int_equal(rename(moved, folder), 0);
	checkpoint(window, 2);
	assert_int_equal(rename(folder, moved), 0);
	unlink(head);
	assert_int_equal(rename(moved, folder), 0);
	expect_removed(window);
	dedup_window_close(window);
}

static void a_removed_folder_is_an_empty_one(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	add(window, 1, 100);
	checkpoint(window, 1);
	dedup_window_close(window);
	temporary_remove(folder);
	window = open_window();
	expect_none(window, 1, 100);
	assert_int_equal(figures_of(window).offset, -1); /* so the owner knows */
	dedup_window_close(window);
}

static void two_do_not_share_a_folder(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	expect_refusal("ids=10k", ERR_FENCED, "another process");
	dedup_window_close(window);
	dedup_window_close(open_window());
}

static void a_folder_that_others_could_fill_is_refused(void **state)
{
	(void)state;
	char link_path[sizeof folder + 8], kept[sizeof folder];
	dedup_window_close(open_window());
	assert_int_equal(chmod(folder, 0722), 0);
	expect_refusal("ids=10k", ERR_CONFIG, "everybody may write to it");
	if (geteuid() != 0) {
		assert_int_equal(chmod(folder, 0720), 0);
		expect_refusal("ids=10k", ERR_CONFIG, "its group may write to it");
	}
	assert_int_equal(chmod(folder, 0700), 0);
	if (geteuid() == 0) { /* nobody else may give a folder away */
		assert_int_equal(chown(folder, 65534, (gid_t)-1), 0);
		expect_refusal("ids=10k", ERR_CONFIG, "belongs to another user");
		assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
	}

	snprintf(link_path, sizeof link_path, "%s.link", folder);
	assert_int_equal(symlink(folder, link_path), 0);
	memcpy(kept, folder, sizeof kept);
	memcpy(folder, link_path, sizeof folder);
	expect_refusal("ids=10k", ERR_CONFIG, "symbolic link");
	memcpy(folder, kept, sizeof kept);
	assert_int_equal(unlink(link_path), 0);
	dedup_window_close(open_window());
}

static void a_link_in_the_folder_is_not_followed(void **state)
{
	(void)state;
	static const char *const names[] = {"window", "window.new", "lock", "0.log", "0.map"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[sizeof folder + 16], target[sizeof folder + 16];
		struct stat found;
		struct err err;
		temporary_remove(folder);
		assert_int_equal(mkdir(folder, 0700), 0);
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		snprintf(target, sizeof target, "%s.target", folder);
		assert_int_equal(symlink(target, path), 0);
		struct dedup_window *window = try_open("ids=10k", &err);
		if (window) {
			add(window, 1, 100);
			dedup_window_close(window);
		}
		if (lstat(target, &found) == 0)
			fail_msg("%s was followed", names[i]);
	}
	temporary_remove(folder);
}

static void a_folder_that_cannot_be_made_is_told(void **state)
{
	(void)state;
	char kept[sizeof folder];
	memcpy(kept, folder, sizeof kept);
	snprintf(folder, sizeof folder, "/proc/nowhere");
	expect_refusal("ids=10k", ERR_CONFIG, "path=/proc/nowhere");
	expect_refusal("ids=10k", ERR_CONFIG, "make the folder that it is in");
	memcpy(folder, kept, sizeof kept);
}

static void what_a_disk_refuses_is_told_with_the_setting_and_the_cure(void **state)
{
	(void)state;
	struct err err;
	static const struct {
		int error;
		enum err_kind kind;
		const char *cure;
	} rows[] = {{ENOSPC, ERR_RETRY, "name a folder of another one in path, or lower ids"},
	    {EROFS, ERR_DENIED, "mount it for writing"}, {EACCES, ERR_DENIED, "path"},
	    {EIO, ERR_RETRY, "5.0.map cannot be made: Input/output error"}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		errno = rows[i].error;
		assert_false(disk_error_fail("5.0.map", "made", &err));
		assert_int_equal(err.kind, rows[i].kind);
		assert_non_null(strstr(err.message, rows[i].cure));
	}
}

static void without_room_on_the_disk_nothing_is_forgotten(void **state)
{
	(void)state;
	struct dedup_window *window = open_window();
	struct rlimit kept, tight;
	struct err err;
	add(window, 1, 1000);
	checkpoint(window, 1001);
	add(window, 1001, 3000); /* and a sub-slice */
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &kept);
	tight = kept;
	tight.rlim_cur = 40000;
	setrlimit(RLIMIT_FSIZE, &tight);
	for (int i = 0; i < 3; i++) {
		assert_false(dedup_window_checkpoint(window, 3001, &err));
		assert_int_equal(err.kind, ERR_RETRY);
		assert_int_equal(figures_of(window).offset, 1001);
		expect_all(window, 1, 3000);
	}
	print_message("%s\n", err.message);
	assert_non_null(strstr(err.message, "path="));
	assert_non_null(strstr(err.message, "ulimit -f"));
	setrlimit(RLIMIT_FSIZE, &kept);
	checkpoint(window, 3001);
	dedup_window_close(window);
	window = open_window();
	expect_all(window, 1, 3000);
	assert_int_equal(figures_of(window).offset, 3001);
	dedup_window_close(window);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	here = pthread_self();
	const struct CMUnitTest tests[] = {
	    TEST(an_id_is_remembered_for_the_window_and_no_slice_longer),
	    TEST(an_id_is_remembered_for_the_whole_window),
	    TEST(a_late_id_and_one_of_the_future_are_remembered),
	    TEST(more_ids_than_planned_get_slices_of_their_own_and_the_rate_holds),
	    TEST(a_full_window_takes_a_later_record),
	    TEST(a_window_is_as_it_was_when_it_is_opened_again),
	    TEST(after_another_start_a_sealed_map_is_believed),
	    TEST(a_map_that_cannot_be_believed_is_made_again),
	    TEST(another_plan_keeps_what_is_remembered),
	    TEST(a_tail_torn_at_any_byte_costs_nothing_that_was_durable),
	    TEST(no_acknowledged_id_is_forgotten_by_a_killed_process),
	    TEST(a_batch_that_came_to_the_disk_before_an_earlier_one_is_cut_with_it),
	    TEST(who_adds_makes_no_slice),
	    TEST(a_slice_that_was_half_renamed_is_no_loss),
	    TEST(after_a_sync_that_failed_the_log_is_read_and_written_again),
	    TEST(what_a_sealed_map_knows_is_durable_before_it),
	    TEST(a_killed_process_leaves_no_unwritten_id_in_its_maps),
	    TEST(a_restart_after_a_kill_takes_no_time),
	    TEST(a_damaged_log_is_refused),
	    TEST(a_map_that_is_damaged_anywhere_is_made_again),
	    TEST(an_entry_that_is_damaged_is_told_when_it_is_asked_for),
	    TEST(a_log_that_is_gone_is_noticed),
	    TEST(a_slice_that_is_gone_is_noticed),
	    TEST(slices_that_ended_before_a_kill_are_not_missed),
	    TEST(a_folder_of_something_else_is_refused),
	    TEST(a_folder_that_is_removed_in_use_is_noticed),
	    TEST(a_removed_folder_is_an_empty_one),
	    TEST(two_do_not_share_a_folder),
	    TEST(a_folder_that_others_could_fill_is_refused),
	    TEST(a_link_in_the_folder_is_not_followed),
	    TEST(a_folder_that_cannot_be_made_is_told),
	    TEST(what_a_disk_refuses_is_told_with_the_setting_and_the_cure),
	    TEST(without_room_on_the_disk_nothing_is_forgotten),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
