#pragma once
/* Shared by the files of the part dedup. One thread. */
#include "bench.h"
#include "dedup.h"
#include "fingerprint.h"

/* A cheap hash of a number, as good as that of an id, so that the hash is not part of the
 * measurement. */
static inline struct fingerprint bench_dedup_hash(uint64_t number)
{
	uint64_t low = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
	low = (low ^ low >> 32) * UINT64_C(0xd6e8feb86659fd93);
	uint64_t high = (low ^ low >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return (struct fingerprint){low ^ low >> 32, high ^ high >> 31};
}

/* Reads single cache lines at random places of the memory; returns nanoseconds per read. Each place
 * depends on the previous read, or many reads run at a time. */
double bench_dedup_bare(const void *memory, size_t bytes, int64_t reads);
double bench_dedup_bare_batched(const void *memory, size_t bytes, int64_t reads);

/*
 * Memory of that many bytes, with all pages present; never NULL. The caller unmaps it with munmap.
 */
void *bench_dedup_memory(size_t bytes);

/* Makes a folder for the bench below TMPDIR. */
bool bench_dedup_folder(char *ret_path, size_t size, struct err *err) MUST_CHECK;
void bench_dedup_remove(const char *path);

enum { BENCH_DEDUP_BATCH = 1000 };

/* How the ids of a store are written. */
enum bench_dedup_ids { IDS_TEXT, IDS_INTEGER, IDS_POSITION };

/* Microseconds of all calls: new ids, the same ids as done, and the same ids once more. */
struct bench_dedup_figures {
	int64_t check_us, done_us, again_us;
	struct outbox_dedup_stats stats;
};

/* Opens the store of a settings line and measures it. ids: a multiple of BENCH_DEDUP_BATCH. */
bool bench_dedup_store(const char *line, enum bench_dedup_ids kind, int64_t ids,
    struct bench_dedup_figures *ret_figures, struct err *err) MUST_CHECK;

/* A server, or the masters of a cluster, that is emptied between measurements if it was empty. Keys
 * of the bench begin with b, its process id, and a dash. */
struct bench_redis {
	const char *url;
	bool may_empty; /* its databases had no keys at the beginning */
};
/* option: the one that names the server, for people. */
bool bench_redis_begin(struct bench_redis *server, const char *option, struct err *err) MUST_CHECK;
bool bench_redis_empty(const struct bench_redis *server, struct err *err) MUST_CHECK;

bool bench_dedup_filter(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_window(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_stores(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_redis(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_postgres(struct bench *bench, struct err *err) MUST_CHECK;
