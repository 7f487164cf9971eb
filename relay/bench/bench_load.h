#pragma once
/*
 * Writers: connections that run transactions, at a rate or as fast as possible. The calling thread
 * drives all of them, so that they take little CPU from the measured program.
 */
#include "bench.h"

enum { BENCH_CONNECTIONS = 512 }; /* at most */

enum bench_takes {
	BENCH_TAKES_NOTHING,
	BENCH_TAKES_ROWS,  /* topic, numbers, payloads, keys: for all rows of the transaction */
	BENCH_TAKES_ROW,   /* topic, key, payload: for its first row */
	BENCH_TAKES_ORDER, /* id of a row to change */
};

/* One statement of a transaction; each is a round trip. */
struct bench_step {
	const char *sql; /* a script of sql/queries, or plain SQL; NULL ends the list */
	enum bench_takes takes;
};

struct bench_load {
	const struct bench_step *steps;
	const char *warm;      /* a script that each connection runs before the load; NULL: none */
	int connections, rows; /* rows of a transaction */
	int64_t first;         /* number of the first row; numbers count up */
	double rate;           /* transactions per second; 0: as fast as possible */
	int64_t duration_us;
	/* COMMIT has returned (rows first to first + rows - 1); NULL is fine */
	void (*committed)(void *context, int64_t first, int rows, int64_t now_us);
	/* called in every turn, and if the fd is readable; NULL: none */
	bool (*turn)(void *context, struct err *err);
	int (*fd)(void *context);
	void *context;
};

struct bench_load_done {
	int64_t transactions;
	int64_t began_us; /* all connections were open (clock_us) */
	double rate;      /* transactions a second */
	double held;      /* part of the wanted rate; 1 without a rate */
};

/* bench_writer.c: transactions a second that change a row and write a message with this statement,
 * as fast as the connections go. */
bool bench_writer_rate(struct bench *bench, const char *sql, int connections, int64_t first,
    double *ret_rate, struct err *err) MUST_CHECK;

bool bench_load_run(struct bench *bench, const struct bench_load *load,
    struct bench_load_done *ret_done, struct err *err) MUST_CHECK;
