/*
 * writer: a transaction that changes a row and writes a message, as fast as 4 connections go. Each
 * comparison is two ways to write the message, in short runs that take turns.
 */
#include "bench_load.h"

#include <stdio.h>
#include "sql_bench.h"

enum { CONNECTIONS = 4 };

struct comparison {
	const char *name;
	const char *what, *sql; /* the way that is judged */
	const char *beside, *beside_sql;
	double bound; /* smallest ratio of the rates */
};

bool bench_writer_rate(struct bench *bench, const char *sql, int connections, int64_t first,
    double *ret_rate, struct err *err)
{
	int64_t seconds = bench->options.seconds_said ? bench->options.seconds_said : 1;
	const struct bench_step steps[] = {{"begin", BENCH_TAKES_NOTHING},
	    {sql_bench_order, BENCH_TAKES_ORDER}, {sql, BENCH_TAKES_ROW},
	    {"commit", BENCH_TAKES_NOTHING}, {NULL, BENCH_TAKES_NOTHING}};
	const struct bench_load load = {.steps = steps,
	    .connections = connections,
	    .rows = 1,
	    .first = first,
	    .duration_us = seconds * 1000000};
	struct bench_load_done done;

	if (!bench_load_run(bench, &load, &done, err))
		return false;
	*ret_rate = done.rate;
	return true;
}

static bool compare_writers(
    struct bench *bench, const struct comparison *comparison, struct err *err)
{
	double rates[BENCH_MOST_RUNS], beside[BENCH_MOST_RUNS], warm;
	int pairs = (int)bench->options.pairs;

	/* one run of each ahead, which does not count, so that both begin with warm caches */
	if (!bench_empty_table(bench, err) ||
	    !bench_writer_rate(bench, comparison->sql, CONNECTIONS, 0, &warm, err) ||
	    !bench_writer_rate(bench, comparison->beside_sql, CONNECTIONS, 0, &warm, err))
		return false;

	for (int pair = 0; pair < pairs; pair++) {
		for (int turn = 0; turn < 2; turn++) {
			bool judged = turn == pair % 2;

			if (!bench_writer_rate(bench,
				judged ? comparison->sql : comparison->beside_sql, CONNECTIONS,
				pair * 1000, judged ? &rates[pair] : &beside[pair], err))
				return false;
		}
		bench_say("%s %.0f, %s %.0f transactions/s", comparison->what, rates[pair],
		    comparison->beside, beside[pair]);
	}
	bench_judge_pairs(
	    bench, comparison->name, "tx/s", rates, beside, pairs, '>', comparison->bound);
	return true;
}

bool bench_writer(struct bench *bench, struct err *err)
{
	const struct comparison comparisons[] = {
	    {"writer with outbox.publish, beside a plain table", "outbox.publish",
		sql_bench_publish, "plain table", sql_bench_plain, 0.8},
	    {"writer without a unique key, beside a function that takes none", "outbox.publish",
		sql_bench_publish, "function without unique keys", sql_bench_publish_bare, 0.98},
	    {"writer with a unique key, beside one without", "unique key", sql_bench_publish_unique,
		"none", sql_bench_publish, 0.5},
	};

	for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
		if (!compare_writers(bench, &comparisons[i], err))
			return false;
	return true;
}
