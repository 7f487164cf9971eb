#pragma once
/* Shared by the files of the part dedup. One thread. */
#include "bench.h"
#include "fingerprint.h"

/* A hash as good as that of an id, for a number: what is measured is not the hash. */
static inline struct fingerprint bench_dedup_hash(uint64_t number)
{
	uint64_t low = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
	low = (low ^ low >> 32) * UINT64_C(0xd6e8feb86659fd93);
	uint64_t high = (low ^ low >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return (struct fingerprint){low ^ low >> 32, high ^ high >> 31};
}

/* Nothing but reads of one cache line each at random places of the memory, in nanoseconds a read:
 * each place known only when the line before has come, or many at a time. */
double bench_dedup_bare(const void *memory, size_t bytes, int64_t reads);
double bench_dedup_bare_batched(const void *memory, size_t bytes, int64_t reads);

/* Memory of so many bytes with a page behind each; never NULL. To be munmap'ed. */
void *bench_dedup_memory(size_t bytes);

/* A folder of the bench's own below TMPDIR. */
bool bench_dedup_folder(char *ret_path, size_t size, struct err *err) MUST_CHECK;
void bench_dedup_remove(const char *path);

bool bench_dedup_filter(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_window(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_stores(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup_postgres(struct bench *bench, struct err *err) MUST_CHECK;
