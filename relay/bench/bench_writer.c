/*
 * writer: a transaction that changes a row and calls outbox.publish, compared with the same
 * transaction that inserts into a plain table, as fast as 4 connections go, in short runs that take
 * turns.
 */
#include "bench_load.h"

#include <stdio.h>
#include "sql_bench.h"

enum { CONNECTIONS = 4, SHORT_US = 1000000 };

static bool run_once(
    struct bench *bench, bool publishes, int64_t first, double *ret_rate, struct err *err)
{
	const struct bench_step steps[] = {{"begin", BENCH_TAKES_NOTHING},
	    {sql_bench_order, BENCH_TAKES_ORDER},
	    {publishes ? sql_bench_publish : sql_bench_plain, BENCH_TAKES_ROW},
	    {"commit", BENCH_TAKES_NOTHING}, {NULL, BENCH_TAKES_NOTHING}};
	const struct bench_load load = {.steps = steps,
	    .connections = CONNECTIONS,
	    .rows = 1,
	    .first = first,
	    .duration_us = SHORT_US};
	struct bench_load_done done;

	if (!bench_load_run(bench, &load, &done, err))
		return false;
	*ret_rate = done.rate;
	return true;
}

bool bench_writer(struct bench *bench, struct err *err)
{
	double publish[BENCH_PAIRS], plain[BENCH_PAIRS], warm;

	/* one run of each ahead, which does not count, so that both begin with warm caches */
	if (!bench_empty_table(bench, err) || !run_once(bench, true, 0, &warm, err) ||
	    !run_once(bench, false, 0, &warm, err))
		return false;
	for (int pair = 0; pair < BENCH_PAIRS; pair++) {
		for (int turn = 0; turn < 2; turn++) {
			bool publishes = turn == pair % 2;

			if (!run_once(bench, publishes, pair * 1000,
				publishes ? &publish[pair] : &plain[pair], err))
				return false;
		}
		bench_say("outbox.publish %.0f, plain table %.0f transactions/s", publish[pair],
		    plain[pair]);
	}
	bench_judge_pairs(bench, "writer with outbox.publish, beside a plain table", "tx/s",
	    publish, plain, BENCH_PAIRS, '>', 0.8);
	return true;
}
