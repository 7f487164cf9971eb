#pragma once
/*
 * Writers: connections that run transactions, at a rate or as fast as they go, all driven by the
 * calling thread, so that the writer takes little from what is measured.
 */
#include "bench.h"

enum bench_takes {
	BENCH_TAKES_NOTHING,
	BENCH_TAKES_ROWS,  /* topic, numbers, payloads, keys: of all rows of the transaction */
	BENCH_TAKES_ROW,   /* topic, key, payload: of its first row */
	BENCH_TAKES_ORDER, /* the id of a row to change */
};

/* One statement of a transaction; each is a round trip. */
struct bench_step {
	const char *sql; /* of sql/queries, or plain; NULL ends the list */
	enum bench_takes takes;
};

struct bench_load {
	const struct bench_step *steps;
	int connections, rows; /* rows of a transaction */
	int64_t first;         /* the number of the first row; they count up */
	double rate;           /* transactions a second; 0: as fast as they go */
	int64_t duration_us;
	/* COMMIT has returned (rows first to first + rows - 1); NULL is fine */
	void (*committed)(void *context, int64_t first, int rows, int64_t now_us);
	/* in every turn, and when the fd is readable; NULL: none */
	bool (*turn)(void *context, struct err *err);
	int (*fd)(void *context);
	void *context;
};

struct bench_load_done {
	int64_t transactions;
	double rate; /* transactions a second */
	double held; /* of the rate that was wanted; 1 without one */
};

bool bench_load_run(struct bench *bench, const struct bench_load *load,
    struct bench_load_done *ret_done, struct err *err) MUST_CHECK;
