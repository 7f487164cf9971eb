/*
 * drain, exactly-once, memory: the relay in turns with the limits (bench_limit.c) on the same rows.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>

/* --- drain, exactly-once --------------------------------------------------------------------- */

/* Rows of one kind, and the ways in which they are drained. */
struct drained_rows {
	int64_t rows, payload;
	bool has_headers;
	const struct bench_way *relay, *headerless, *limit, *bare;
};

static void name_rows(const struct bench *bench, const struct drained_rows *drained, char name[80])
{
	snprintf(name, 80, "%s of %lld rows of %lld B%s",
	    bench->delivery == DELIVERY_EXACTLY_ONCE ? "exactly-once" : "drain",
	    (long long)drained->rows, (long long)drained->payload,
	    drained->has_headers ? ", 2 headers" : "");
}

static void judge_rate(struct bench *bench, const struct drained_rows *drained)
{
	int runs = (int)bench->options.pairs;
	bool once = bench->delivery == DELIVERY_EXACTLY_ONCE;
	char name[80];

	name_rows(bench, drained, name);
	bench_judge_pairs(bench, name, "rows/s", drained->relay->rates, drained->limit->rates, runs,
	    '>', once ? 0.75 : 0.95);
	if (!once)
		bench_judge_pairs(bench, "whole process", "rows/s", drained->relay->walls,
		    drained->limit->walls, runs, 0, NAN);
}

static void judge_cpu(struct bench *bench, const struct drained_rows *drained)
{
	int runs = (int)bench->options.pairs;
	double relay = bench_way_cpu(drained->relay, runs, drained->rows),
	       limit = bench_way_cpu(drained->limit, runs, drained->rows);
	const char *name = "CPU of it, a million rows";

	if (drained->payload > BENCH_SMALL || bench->delivery == DELIVERY_EXACTLY_ONCE)
		bench_tell_ratio(bench, name, "s", relay, limit);
	else
		bench_judge_ratio(bench, name, "s", relay, limit, '<', 1.4);
}

/* what: "" or how the way differs from the usual one. */
static void judge_beside_bare(struct bench *bench, const struct drained_rows *drained,
    const struct bench_way *way, const char *what, double least, double most_cpu)
{
	int runs = (int)bench->options.pairs;
	const struct bench_way *bare = drained->bare;
	bool judges_cpu = drained->payload <= BENCH_SMALL;
	char name[80];

	snprintf(name, sizeof name, "%sbeside bare records", what);
	bench_judge_pairs(bench, name, "rows/s", way->rates, bare->rates, runs, '>', least);
	snprintf(name, sizeof name, "%sbeside bare records, whole process", what);
	bench_judge_pairs(bench, name, "rows/s", way->walls, bare->walls, runs, 0, NAN);
	snprintf(name, sizeof name, "CPU %sbeside bare records, a million rows", what);
	bench_judge_ratio(bench, name, "s", bench_way_cpu(way, runs, drained->rows),
	    bench_way_cpu(bare, runs, drained->rows), judges_cpu ? '<' : 0, most_cpu);
}

static bool fill_and_settle(struct bench *bench, int64_t rows, int64_t payload, struct err *err)
{
	return bench_empty_table(bench, err) && bench_fill(bench, 0, rows, payload, false, err) &&
	       bench_settle(bench, err);
}

static bool drain_exactly_once(struct bench *bench, int64_t rows, int64_t payload, struct err *err)
{
	struct bench_way ways[] = {bench_way(bench, "relay"), bench_way(bench, "limit")};
	const struct drained_rows drained = {
	    .rows = rows, .payload = payload, .relay = &ways[0], .limit = &ways[1]};

	ways[1].program = BENCH_LIMIT;
	if (!fill_and_settle(bench, rows, payload, err) ||
	    !bench_turns(ways, 2, (int)bench->options.pairs, rows, err))
		return false;
	judge_rate(bench, &drained);
	judge_cpu(bench, &drained);
	return true;
}

static bool drain_rows(
    struct bench *bench, int64_t rows, int64_t payload, bool has_headers, struct err *err)
{
	enum { RELAY, HEADERLESS, LIMIT, BARE, WAYS };
	struct bench_way ways[WAYS] = {
	    bench_way(bench, "relay"),
	    bench_way(bench, "relay, headers = none"),
	    bench_way(bench, "limit"),
	    bench_way(bench, "limit, bare"),
	};
	const struct drained_rows drained = {
	    rows, payload, has_headers, &ways[RELAY], &ways[HEADERLESS], &ways[LIMIT], &ways[BARE]};
	bool large = payload > BENCH_SMALL;

	ways[HEADERLESS].program = BENCH_RELAY_HEADERLESS;
	ways[LIMIT].program = BENCH_LIMIT;
	ways[BARE].program = BENCH_LIMIT_BARE;
	bench->has_headers = has_headers;
	bool filled = fill_and_settle(bench, rows, payload, err);
	bench->has_headers = false;
	if (!filled || !bench_turns(ways, WAYS, (int)bench->options.pairs, rows, err))
		return false;

	judge_rate(bench, &drained);
	judge_cpu(bench, &drained);
	judge_beside_bare(bench, &drained, &ways[RELAY], "", 0.8, 1.3);
	judge_beside_bare(bench, &drained, &ways[HEADERLESS], "headers = none, ", 0.9, 1.3);
	/* `memory` uses these peaks, and its bound is for rows without headers */
	if (!has_headers) {
		bench->peak_kib[large] = ways[RELAY].peak_kib;
		bench->drained[large] = rows;
	}
	return true;
}

static bool drain_size(struct bench *bench, int64_t rows, int64_t payload, struct err *err)
{
	if (bench->delivery == DELIVERY_EXACTLY_ONCE)
		return drain_exactly_once(bench, rows, payload, err);
	return drain_rows(bench, rows, payload, false, err) &&
	       (payload > BENCH_SMALL || drain_rows(bench, rows, payload, true, err));
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
