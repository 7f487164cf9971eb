/*
 * spread: the drain to more or fewer partitions of the topic and in more shards, in turns. A
 * process takes its shards one after another; the rate excludes the time for that.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>

static const struct {
	int destinations, shards;
} spreads[] = {
    {BENCH_PARTITIONS, 1}, /* the baseline */
    {1, 1},
    {48, 1},
    {BENCH_PARTITIONS, 4},
    {BENCH_PARTITIONS, 16},
};
enum { SPREADS = sizeof spreads / sizeof *spreads };

static void make_ways(struct bench *bench, struct bench_way ways[SPREADS])
{
	for (int i = 0; i < SPREADS; i++) {
		char name[40];

		snprintf(name, sizeof name, "%d partition%s, %d shard%s", spreads[i].destinations,
		    spreads[i].destinations == 1 ? "" : "s", spreads[i].shards,
		    spreads[i].shards == 1 ? "" : "s");
		ways[i] = bench_way(bench, name);
		ways[i].place.destinations = spreads[i].destinations;
		ways[i].place.shards = spreads[i].shards;
		ways[i].gathers = true;
	}
}

static void tell_way(
    struct bench *bench, const struct bench_way *way, const struct bench_way *usual, int64_t rows)
{
	int runs = (int)bench->options.runs;
	char name[80];

	snprintf(name, sizeof name, "drain to %s", way->name);
	bench_judge_pairs(bench, name, "rows/s", way->rates, usual->rates, runs, 0, NAN);
	bench_tell_ratio(bench, "CPU of it, a million rows", "s", bench_way_cpu(way, runs, rows),
	    bench_way_cpu(usual, runs, rows));
}

bool bench_spread(struct bench *bench, struct err *err)
{
	int64_t rows = bench_short_rows(bench);
	struct bench_way ways[SPREADS];

	make_ways(bench, ways);
	if (!bench_empty_table(bench, err) ||
	    !bench_fill(bench, 0, rows, BENCH_SMALL, false, err) || !bench_settle(bench, err) ||
	    !bench_turns(ways, SPREADS, (int)bench->options.runs, rows, err))
		return false;
	for (int i = 1; i < SPREADS; i++)
		tell_way(bench, &ways[i], &ways[0], rows);
	return true;
}
