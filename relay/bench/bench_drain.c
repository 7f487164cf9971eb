/* drain, exactly-once, memory: the relay in turns with the limit (bench_limit.c) on the same rows.
 */
#include "bench.h"

#include <stdio.h>

/* --- drain, exactly-once --------------------------------------------------------------------- */

static void judge_rate(
    struct bench *bench, const struct bench_way ways[2], int64_t rows, int64_t payload)
{
	int runs = (int)bench->options.pairs;
	bool once = bench->delivery == DELIVERY_EXACTLY_ONCE;
	char name[80];

	snprintf(name, sizeof name, "%s of %lld rows of %lld B", once ? "exactly-once" : "drain",
	    (long long)rows, (long long)payload);
	bench_judge_pairs(
	    bench, name, "rows/s", ways[0].rates, ways[1].rates, runs, '>', once ? 0.75 : 0.9);
}

static void judge_cpu(struct bench *bench, const struct bench_way ways[2], int64_t rows, bool large)
{
	int runs = (int)bench->options.pairs;
	double relay = bench_way_cpu(&ways[0], runs, rows),
	       limit = bench_way_cpu(&ways[1], runs, rows);
	const char *name = "CPU of it, a million rows";

	if (large || bench->delivery == DELIVERY_EXACTLY_ONCE)
		bench_tell_ratio(bench, name, "s", relay, limit);
	else
		bench_judge_ratio(bench, name, "s", relay, limit, '<', 1.4);
}

static bool fill_and_settle(struct bench *bench, int64_t rows, int64_t payload, struct err *err)
{
	return bench_empty_table(bench, err) && bench_fill(bench, 0, rows, payload, false, err) &&
	       bench_settle(bench, err);
}

static bool drain_size(struct bench *bench, int64_t rows, int64_t payload, struct err *err)
{
	struct bench_way ways[] = {bench_way(bench, "relay"), bench_way(bench, "limit")};
	bool large = payload > BENCH_SMALL;

	ways[1].limit = true;
	if (!fill_and_settle(bench, rows, payload, err) ||
	    !bench_turns(ways, 2, (int)bench->options.pairs, rows, err))
		return false;
	judge_rate(bench, ways, rows, payload);
	judge_cpu(bench, ways, rows, large);
	/* `memory` uses these peaks, and its bound is for at-least-once */
	if (bench->delivery == DELIVERY_AT_LEAST_ONCE) {
		bench->peak_kib[large] = ways[0].peak_kib;
		bench->drained[large] = rows;
	}
	return true;
}

bool bench_drain(struct bench *bench, struct err *err)
{
	const struct bench_options *options = &bench->options;

	if (options->payload)
		return drain_size(bench, options->rows, options->payload, err);
	return drain_size(bench, options->rows, BENCH_SMALL, err) &&
	       drain_size(bench, options->large_rows, BENCH_LARGE, err);
}

bool bench_exactly_once(struct bench *bench, struct err *err)
{
	enum { RATE = 1000 };
	int64_t rate = bench->options.rate ? bench->options.rate : RATE;
	bool good;

	bench->delivery = DELIVERY_EXACTLY_ONCE;
	good = bench_drain(bench, err) && bench_latency_at(bench, rate, err);
	/* in any case, since later kinds use the same bench */
	bench->delivery = DELIVERY_AT_LEAST_ONCE;
	return good;
}

/* --- memory ---------------------------------------------------------------------------------- */

static void judge_memory(struct bench *bench, const char *what, int64_t rows, double peak_kib)
{
	char name[80];

	snprintf(name, sizeof name, "peak memory, %s of %lld rows", what, (long long)rows);
	bench_judge(bench, name, "MiB", peak_kib / 1024, '<', 64);
}

/* Uses the drains that were already measured, or runs one. */
static bool drain_memory(
    struct bench *bench, int64_t rows, int64_t payload, const char *what, struct err *err)
{
	bool large = payload > BENCH_SMALL;
	struct bench_way way = bench_way(bench, "relay");

	if (!bench->peak_kib[large]) {
		if (!fill_and_settle(bench, rows, payload, err) ||
		    !bench_turns(&way, 1, 1, rows, err))
			return false;
		bench->peak_kib[large] = way.peak_kib;
		bench->drained[large] = rows;
	}
	judge_memory(bench, what, bench->drained[large], bench->peak_kib[large]);
	return true;
}

/* Commits one transaction while the relay runs. */
static bool huge_transaction(struct bench *bench, int64_t rows, struct err *err)
{
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	bool good = bench_empty_table(bench, err) && bench_fresh_topic(bench, err) &&
		    bench_rewind(bench, BENCH_BEGINNING, err) &&
		    bench_child_run(bench, &child, NULL, err) &&
		    (watch = bench_watch_start(bench, rows, err)) &&
		    bench_fill(bench, 0, rows, BENCH_SMALL, true, err) &&
		    bench_watch_wait(watch, rows, 300000, err);

	bench_watch_stop(watch);
	bench_child_stop(&child);
	if (good)
		judge_memory(bench, "one transaction", rows, child.peak_kib);
	return good;
}

bool bench_memory(struct bench *bench, struct err *err)
{
	const struct bench_options *options = &bench->options;

	return drain_memory(bench, options->rows, BENCH_SMALL, "drain", err) &&
	       drain_memory(bench, options->large_rows, BENCH_LARGE, "drain, 4 KB", err) &&
	       huge_transaction(bench, options->rows < 1000000 ? options->rows : 1000000, err);
}
