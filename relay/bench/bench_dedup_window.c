/* The window on disk: how fast it takes ids, and how long it takes to open again. */
#include "bench_dedup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "clock.h"
#include "dedup_slice.h"
#include "dedup_window.h"
#include "text.h"

enum { SLICES = 5, CHECKPOINT_US = 100000, BEGIN_MS = 1000000, SLICE_MS = 1000 };

struct window_bench {
	struct bench *bench;
	const char *path;
	int64_t ids;
	double rotation_us; /* the longest rotation */
};

static struct dedup_window *open_window(const struct window_bench *run, struct err *err)
{
	const struct dedup_window_settings settings = {.path = run->path,
	    .ids = (uint64_t)run->ids,
	    .rate = 0.001,
	    .alarm = 0.002,
	    .slice_ms = SLICE_MS,
	    .slices = SLICES,
	    .hot = 4096};
	return dedup_window_open(&settings, err);
}

/* Uses the window as consumers do: adds missing ids. */
static bool take_window_id(
    struct dedup_window *window, int64_t number, int64_t time_ms, struct err *err)
{
	struct fingerprint hash = bench_dedup_hash((uint64_t)number);
	bool there;
	return dedup_window_has(window, hash, &there, err) &&
	       (there || dedup_window_add(window, hash, number, time_ms, BEGIN_MS * 2, err));
}

static bool add_all(struct window_bench *run, struct dedup_window *window, struct err *err)
{
	int64_t a_slice = run->ids / SLICES + 1, durable_us = clock_us();

	for (int64_t i = 0; i < run->ids; i++) {
		bool turns = i && i % a_slice == 0;
		int64_t begin = turns ? clock_us() : 0;
		if (!take_window_id(window, i, BEGIN_MS + i / a_slice * SLICE_MS, err))
			return false;
		if (turns && (double)(clock_us() - begin) > run->rotation_us)
			run->rotation_us = (double)(clock_us() - begin);
		/* the clock is read rarely: it would cost as much as the work */
		if (i % 1024 || clock_us() - durable_us < CHECKPOINT_US)
			continue;
		durable_us = clock_us();
		if (!bench_goes_on(err) || !dedup_window_checkpoint(window, i, err))
			return false;
	}
	return dedup_window_checkpoint(window, run->ids, err);
}

static bool measure_adding(struct window_bench *run, struct err *err)
{
	struct dedup_window *window = open_window(run, err);
	int64_t begin = clock_us();

	if (!window)
		return false;

	bool good = add_all(run, window, err);
	double seconds = (double)(clock_us() - begin) / 1e6;
	struct dedup_window_figures figures;
	dedup_window_figures(window, &figures);
	dedup_window_close(window);
	if (!good)
		return false;

	bench_judge(run->bench, "ids taken, fdatasync each 100 ms", "ids/s",
	    (double)run->ids / seconds, '>', 1000000);
	bench_judge(
	    run->bench, "rotation of a slice, the longest", "us", run->rotation_us, '<', 1000);
	bench_tell(run->bench, "on disk, all files, an id", "bytes",
	    (double)figures.bytes / (double)figures.ids);
	return true;
}

static bool measure_opening(struct window_bench *run, double *ret_seconds, struct err *err)
{
	int64_t begin = clock_us();
	struct dedup_window *window = open_window(run, err);
	if (!window)
		return false;
	*ret_seconds = (double)(clock_us() - begin) / 1e6;
	dedup_window_close(window);
	return true;
}

/* Leaves the files like a killed process does, with some ids unwritten. */
static bool kill_one(struct window_bench *run, struct err *err)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct dedup_window *window = open_window(run, err);
		for (int64_t i = 0; window && i < 100000; i++)
			if (!take_window_id(
				window, run->ids + i, BEGIN_MS + SLICES * SLICE_MS, err))
				_exit(1);
		/* SIGKILL only if the window was open: the parent takes any other end for a
		 * failure */
		kill(getpid(), window ? SIGKILL : SIGTERM);
	}
	bool killed = child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
		      WTERMSIG(status) == SIGKILL;
	return killed || err_set(err, ERR_FATAL, "a process with the window could not be killed");
}

static void remove_maps(const char *path)
{
	DIR *list = opendir(path);
	const struct dirent *entry;
	while (list && (entry = readdir(list))) {
		size_t length = strlen(entry->d_name);
		if (length > 4 && text_equal(entry->d_name + length - 4, ".map"))
			unlinkat(dirfd(list), entry->d_name, 0);
	}
	if (list)
		closedir(list);
}

static bool measure_restarts(struct window_bench *run, struct err *err)
{
	double mapped, killed, rebuilt;

	if (!measure_opening(run, &mapped, err) || !kill_one(run, err) ||
	    !measure_opening(run, &killed, err))
		return false;

	remove_maps(run->path);
	if (!measure_opening(run, &rebuilt, err))
		return false;

	bench_judge(run->bench, "restart on the same boot", "ms", mapped * 1000, '<', 100);
	bench_judge(run->bench, "restart after kill -9", "ms", killed * 1000, '<', 100);
	bench_judge(run->bench, "rebuild from the key log", "ids/s", (double)run->ids / rebuilt,
	    '>', 10000000);
	return true;
}

/* --- a hit is confirmed --------------------------------------------------------------------- */

static double time_confirmations(struct dedup_slice *slice, uint64_t ids)
{
	const int64_t looks = 2000000;
	int64_t found = 0, begin = clock_us();

	for (uint64_t i = 0; i < (uint64_t)looks; i++) {
		bool there = false;
		struct err err;
		found +=
		    dedup_slice_has(slice, bench_dedup_hash(i * 7919 % ids), &there, &err) && there;
	}
	if (found != looks)
		bench_say(
		    "%lld of %lld are not found", (long long)(looks - found), (long long)looks);
	return (double)(clock_us() - begin) * 1000 / (double)looks;
}

static bool fill_slice(struct dedup_slice *slice, uint64_t ids, struct err *err)
{
	for (uint64_t i = 0; i < ids; i++) {
		const struct key_entry entry = {bench_dedup_hash(i), (int64_t)i, BEGIN_MS};
		dedup_slice_add(slice, &entry);
	}
	return dedup_slice_write(slice, -1, err);
}

static void judge_confirming(struct bench *bench, struct dedup_slice *slice, uint64_t ids)
{
	double values[BENCH_MOST_RUNS], references[BENCH_MOST_RUNS];
	size_t bytes = ids * (KEY_UNIT + KEY_BUCKET / KEY_BUCKET_PLANNED);
	void *memory = bench_dedup_memory(bytes);
	for (int i = 0; i < (int)bench->options.runs; i++) {
		values[i] = time_confirmations(slice, ids);
		references[i] = bench_dedup_bare(memory, bytes, 4000000);
	}
	munmap(memory, bytes);
	bench_judge_pairs(bench, "confirmation of a hit, beside a read", "ns", values, references,
	    (int)bench->options.runs, '<', 4);
}

static bool measure_confirming(struct bench *bench, const char *path, struct err *err)
{
	const uint64_t ids = 2000000;
	const struct dedup_slice_plan plan = {
	    .head = {.slice_ms = SLICE_MS}, .ids = ids, .lines = ids / 16};
	struct dedup_slice slice;
	owned_fd int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!dedup_slice_open(&slice, folder, &plan, err))
		return false;

	bool good = fill_slice(&slice, ids, err);
	if (good)
		judge_confirming(bench, &slice, ids);
	dedup_slice_remove(&slice, folder);
	return good;
}

bool bench_dedup_window(struct bench *bench, struct err *err)
{
	char path[256];
	struct window_bench run = {.bench = bench, .path = path, .ids = bench->options.ids};
	if (!bench_dedup_folder(path, sizeof path, err))
		return false;
	bool good = measure_confirming(bench, path, err) && measure_adding(&run, err) &&
		    measure_restarts(&run, err);
	bench_dedup_remove(path);
	return good;
}
