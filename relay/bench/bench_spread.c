/*
 * spread, shards: the drain to more or fewer partitions of the topic, and in more shards, in turns
 * with the usual one. A process takes its shards one after another; the rate excludes the time for
 * that.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>

enum { SPREADS = 3 };

struct spread {
	int destinations, shards;
	double bound; /* smallest ratio of the rates; NAN: only shown */
};

static void name_spread(const struct spread *spread, char *name, size_t size)
{
	snprintf(name, size, "%d partition%s, %d shard%s", spread->destinations,
	    spread->destinations == 1 ? "" : "s", spread->shards, spread->shards == 1 ? "" : "s");
}

static void tell_spread(struct bench *bench, const struct spread *spread,
    const struct bench_way *way, const struct bench_way *usual, int runs, int64_t rows)
{
	char name[80];

	snprintf(name, sizeof name, "drain to %s", way->name);
	bench_judge_pairs(bench, name, "rows/s", way->rates, usual->rates, runs,
	    isnan(spread->bound) ? 0 : '>', spread->bound);
	bench_tell_ratio(bench, "CPU of it, a million rows", "s", bench_way_cpu(way, runs, rows),
	    bench_way_cpu(usual, runs, rows));
}

/* The first of the spreads is the one that the others are compared with. */
static bool run_spreads(
    struct bench *bench, const struct spread spreads[SPREADS], int runs, struct err *err)
{
	int64_t rows = bench_short_rows(bench);
	struct bench_way ways[SPREADS];

	for (int i = 0; i < SPREADS; i++) {
		char name[40];

		name_spread(&spreads[i], name, sizeof name);
		ways[i] = bench_way(bench, name);
		ways[i].place.destinations = spreads[i].destinations;
		ways[i].place.shards = spreads[i].shards;
		ways[i].gathers = true;
	}

	if (!bench_empty_table(bench, err) ||
	    !bench_fill(bench, 0, rows, BENCH_SMALL, false, err) || !bench_settle(bench, err) ||
	    !bench_turns(ways, SPREADS, runs, rows, err))
		return false;
	for (int i = 1; i < SPREADS; i++)
		tell_spread(bench, &spreads[i], &ways[i], &ways[0], runs, rows);
	return true;
}

bool bench_spread(struct bench *bench, struct err *err)
{
	static const struct spread spreads[SPREADS] = {
	    {BENCH_PARTITIONS, 1, NAN}, {1, 1, NAN}, {48, 1, NAN}};

	return run_spreads(bench, spreads, (int)bench->options.runs, err);
}

bool bench_shards(struct bench *bench, struct err *err)
{
	static const struct spread spreads[SPREADS] = {
	    {BENCH_PARTITIONS, 1, NAN}, {BENCH_PARTITIONS, 4, 0.9}, {BENCH_PARTITIONS, 16, 0.7}};

	return run_spreads(bench, spreads, (int)bench->options.pairs, err);
}
