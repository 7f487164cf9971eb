#pragma once
/* Shared by the files of the part inbox. One thread. */
#include "bench.h"

enum { BENCH_SLOW_US = 5000, BENCH_SLOW_AT_ONCE = 256 };

/* Fills the topic with that many messages, each with an id and a position like the relay's. */
bool bench_inbox_fill(struct bench *bench, int64_t count, struct err *err) MUST_CHECK;
/* bench_inbox_claims.c */
bool bench_inbox_claims(struct bench *bench, struct err *err) MUST_CHECK;
/* bench_inbox_sidecar.c */
bool bench_inbox_sidecar(struct bench *bench, struct err *err) MUST_CHECK;
