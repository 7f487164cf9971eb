#include "bench_dedup.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "clock.h"
#include "text.h"

enum { LINE = 64, BATCH = 16 };

static uint64_t line_of(uint64_t number, uint64_t lines)
{
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)(((wide)number * lines) >> 64);
}

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

double bench_dedup_bare(const void *memory, size_t bytes, int64_t reads)
{
	const uint64_t *words = memory;
	uint64_t number = 1, lines = bytes / LINE;
	int64_t begin = clock_us();

	for (int64_t i = 0; i < reads; i++) {
		/* the next place depends on the word that was read, so no read begins before the
		 * last ends */
		number = (number ^ words[line_of(number, lines) * (LINE / 8)]) *
			     UINT64_C(0x9e3779b97f4a7c15) +
			 (uint64_t)i;
	}

	sink = number;
	return (double)(clock_us() - begin) * 1000 / (double)reads;
}

double bench_dedup_bare_batched(const void *memory, size_t bytes, int64_t reads)
{
	const uint64_t *words = memory;
	uint64_t lines = bytes / LINE, sum = 0, places[BATCH];
	int64_t begin = clock_us();

	for (int64_t i = 0; i < reads; i += BATCH) {
		/* the places depend on nothing that is read, so all reads of a batch run at once */
		for (int k = 0; k < BATCH; k++) {
			places[k] = line_of(bench_dedup_hash((uint64_t)(i + k)).low, lines);
			__builtin_prefetch(&words[places[k] * (LINE / 8)]);
		}
		for (int k = 0; k < BATCH; k++)
			sum += words[places[k] * (LINE / 8)];
	}
	sink = sum;
	return (double)(clock_us() - begin) * 1000 / (double)reads;
}

void *bench_dedup_memory(size_t bytes)
{
	void *memory = mmap(
	    NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED) {
		bench_say("no memory for %zu bytes", bytes);
		abort();
	}
	return memory;
}

bool bench_dedup_folder(char *ret_path, size_t size, struct err *err)
{
	const char *place = getenv("TMPDIR");
	snprintf(ret_path, size, "%s/outbox-bench.XXXXXX", place ? place : "/tmp");
	return mkdtemp(ret_path) ||
	       err_set(err, ERR_RETRY, "a folder %s cannot be made: %s; set TMPDIR to where it can",
		   ret_path, strerror(errno));
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void bench_dedup_remove(const char *path)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS))
		bench_say("folder %s stays behind: %s", path, strerror(errno));
}

bool bench_dedup(struct bench *bench, struct err *err)
{
	/* The servers first: an address that does not fit ends the bench at once. */
	return bench_dedup_redis(bench, err) && bench_dedup_postgres(bench, err) &&
	       bench_dedup_filter(bench, err) && bench_dedup_window(bench, err) &&
	       bench_dedup_stores(bench, err);
}
