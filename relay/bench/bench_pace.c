/*
 * pace: each value of [publisher] pace, compared with the application that produces itself: the
 * latency, and the CPU time of everything that the messages pass through. All sides take turns, so
 * that a slow minute of the machine meets each of them.
 */
#include "bench.h"

#include <stdio.h>

enum { DIRECT, LATENCY, BALANCED, ECONOMY, BEFORE, SIDES };

/* One line of the table of a rate. */
struct pace_row {
	struct bench_side side;
	struct bench_latency runs[BENCH_MOST_RUNS];
};

static double median_of_runs(
    const struct pace_row *row, int runs, double (*value)(const struct bench_latency *run))
{
	double values[BENCH_MOST_RUNS];

	for (int run = 0; run < runs; run++)
		values[run] = value(&row->runs[run]);
	return bench_median(values, runs);
}

static double p50_of(const struct bench_latency *run)
{
	return run->p50;
}

static double p99_of(const struct bench_latency *run)
{
	return run->p99;
}

static double relay_of(const struct bench_latency *run)
{
	return run->cpu.relay;
}

static double sessions_of(const struct bench_latency *run)
{
	return run->cpu.backends;
}

static double broker_of(const struct bench_latency *run)
{
	return run->cpu.broker;
}

static double sum_of(const struct bench_latency *run)
{
	return run->cpu.relay + run->cpu.backends + run->cpu.broker;
}

static void tell_cpu(struct bench *bench, const struct pace_row *rows, int side, int64_t rate)
{
	static const struct {
		const char *name;
		double (*value)(const struct bench_latency *run);
	} parts[] = {{"relay", relay_of}, {"sessions", sessions_of}, {"broker", broker_of}};
	int runs = (int)bench->options.runs;
	bool has_before = rows[BEFORE].side.program;
	char name[80];

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		snprintf(name, sizeof name, "%s at %lld/s, CPU a million, %s", rows[side].side.name,
		    (long long)rate, parts[i].name);
		bench_tell(bench, name, "s", median_of_runs(&rows[side], runs, parts[i].value));
	}
	snprintf(name, sizeof name, "%s at %lld/s, CPU a million, together", rows[side].side.name,
	    (long long)rate);

	double sum = median_of_runs(&rows[side], runs, sum_of);

	if (has_before && side == BALANCED)
		bench_judge_ratio(
		    bench, name, "s", sum, median_of_runs(&rows[BEFORE], runs, sum_of), '<', 1);
	else
		bench_tell(bench, name, "s", sum);
}

static void judge_side(struct bench *bench, const struct pace_row *rows, int side, int64_t rate)
{
	static const double most_p50[SIDES] = {[LATENCY] = 1.5, [BALANCED] = 2.5};
	static const double most_p99[SIDES] = {[LATENCY] = 5};
	int runs = (int)bench->options.runs;
	double held = 1, direct = median_of_runs(&rows[DIRECT], runs, p50_of),
	       direct99 = median_of_runs(&rows[DIRECT], runs, p99_of),
	       p50 = median_of_runs(&rows[side], runs, p50_of),
	       p99 = median_of_runs(&rows[side], runs, p99_of);
	char name[80];

	for (int run = 0; run < runs; run++)
		held = rows[side].runs[run].held < held ? rows[side].runs[run].held : held;

	snprintf(name, sizeof name, "%s at %lld/s, p50", rows[side].side.name, (long long)rate);
	if (most_p50[side] > 0)
		bench_judge_difference(bench, name, "ms", p50, direct, most_p50[side], held < 0.98);
	else if (side == ECONOMY)
		bench_judge(bench, name, "ms", p50, '<', 30);
	else
		bench_tell_difference(bench, name, "ms", p50, direct);

	snprintf(name, sizeof name, "%s at %lld/s, p99", rows[side].side.name, (long long)rate);
	if (most_p99[side] > 0)
		bench_judge_difference(
		    bench, name, "ms", p99, direct99, most_p99[side], held < 0.98);
	else
		bench_tell_difference(bench, name, "ms", p99, direct99);
	tell_cpu(bench, rows, side, rate);
}

static void tell_direct(struct bench *bench, const struct pace_row *row, int64_t rate)
{
	int runs = (int)bench->options.runs;
	char name[80];

	snprintf(name, sizeof name, "direct at %lld/s, p50", (long long)rate);
	bench_tell(bench, name, "ms", median_of_runs(row, runs, p50_of));
	snprintf(name, sizeof name, "direct at %lld/s, CPU a million, broker", (long long)rate);
	bench_tell(bench, name, "s", median_of_runs(row, runs, broker_of));
}

static bool measure_paces(struct bench *bench, int64_t rate, struct err *err)
{
	struct pace_row rows[SIDES] = {
	    [DIRECT] = {.side = {.name = "direct", .direct = true}},
	    [LATENCY] = {.side = {"latency", .program = bench->relay, .pace = PACE_LATENCY}},
	    [BALANCED] = {.side = {"balanced", .program = bench->relay, .pace = PACE_BALANCED}},
	    [ECONOMY] = {.side = {"economy", .program = bench->relay, .pace = PACE_ECONOMY}},
	    [BEFORE] = {.side = {"before", .program = bench->options.before,
			    .pace = PACE_BALANCED}},
	};
	int sides = bench->options.before ? SIDES : BEFORE;

	for (int run = 0; run < bench->options.runs; run++)
		for (int side = 0; side < sides; side++) {
			/* the side that comes first changes with each run */
			struct pace_row *row = &rows[(side + run) % sides];

			if (!bench_measure_latency(
				bench, &row->side, rate, 1, &row->runs[run], err))
				return false;
		}
	tell_direct(bench, &rows[DIRECT], rate);
	for (int side = LATENCY; side < sides; side++)
		judge_side(bench, rows, side, rate);
	return true;
}

bool bench_pace(struct bench *bench, struct err *err)
{
	static const int64_t rates[] = {20, 100, 500, 1000, 2000};

	if (bench->options.rate)
		return measure_paces(bench, bench->options.rate, err);
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
		if (!measure_paces(bench, rates[i], err))
			return false;
	return true;
}
