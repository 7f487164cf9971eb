/*
 * A running relay resolves overdue prepares by asking a business of the bench. Measures the number
 * per second, by the database's clock, and the CPU time over HTTP and over gRPC. For the rate the
 * business answers commit, so that a message is written and published for each prepare; for the CPU
 * time it answers rollback, so that all CPU time is for look-backs.
 */
#include "bench_lookback.h"

#include <stdio.h>
#include "clock.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum { LOOK_US = 50000, FIRST_MS = 60000, EACH_MS = 100 };

struct resolved {
	double rate, cpu; /* look-backs/s; seconds */
};

/* Inserts all prepares at once. */
static bool add_overdue(struct bench *bench, int64_t first, int64_t count, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_lookback_overdue, bench->schema);
	owned_text char *from = xformat("%lld", (long long)first);
	owned_text char *number = xformat("%lld", (long long)count);
	const struct pg_param params[] = {
	    {"bench"}, {BENCH_OVERDUE}, {bench->topic}, {from}, {number}};

	return pg_execute(bench->pg, sql, params, 5, err);
}

/* Waits until none is overdue; returns the relay's CPU time by then. */
static bool wait_until_resolved(struct bench *bench, const struct bench_child *child, int64_t count,
    struct bench_cpu *ret_cpu, struct err *err)
{
	int64_t open = 1, until = clock_ms() + FIRST_MS + count * EACH_MS;

	while (open) {
		usleep(LOOK_US);
		/* the CPU time is read before the count, so it does not include work after the
		 * last one */
		if (!bench_goes_on(err) || !bench_child_cpu(bench, child, ret_cpu, err) ||
		    !bench_lookback_ask(bench, sql_bench_lookback_open, NULL, 0, &open, err))
			return false;
		if (clock_ms() > until)
			return err_set(err, ERR_RETRY, "what is overdue stays so");
	}
	return true;
}

/* Resolves one ahead, so that everything is connected. */
static bool resolve_all(struct bench *bench, const struct bench_child *child, int64_t count,
    struct resolved *ret_resolved, struct err *err)
{
	owned_text char *number = xformat("%lld", (long long)count);
	const struct pg_param params[] = {{BENCH_OVERDUE}, {number}};
	struct bench_cpu before, after;
	int64_t span_us;

	if (!add_overdue(bench, 0, 1, err) || !wait_until_resolved(bench, child, 1, &before, err) ||
	    !add_overdue(bench, 1, count, err) ||
	    !wait_until_resolved(bench, child, count, &after, err) ||
	    !bench_lookback_ask(bench, sql_bench_lookback_resolved, params, 2, &span_us, err))
		return false;
	ret_resolved->rate = (double)count * 1e6 / (double)(span_us + 1);
	ret_resolved->cpu = after.relay - before.relay;
	return true;
}

static bool resolve_overdue(struct bench_lookback *look, bool grpc, int batch, bool commits,
    struct resolved *ret_resolved, struct err *err)
{
	struct bench *bench = look->bench;
	int64_t count = bench->options.overdue;
	struct bench_child child = {0};
	struct bench_asks asks = {.grpc = grpc, .batch = batch};
	bool good = bench_lookback_empty(bench, err) &&
		    (asks.business = bench_business_start(
			 grpc ? &bench_business_grpc : &bench_business_http, commits, err)) &&
		    bench_lookback_run(look, bench, &asks, &child, err) &&
		    resolve_all(bench, &child, count, ret_resolved, err);

	bench_child_stop(&child);
	bench_business_stop((struct bench_business *)asks.business);
	if (good)
		bench_say("%s, %d in a request: %.0f look-backs/s, %.2f s of CPU, %.1f MiB",
		    grpc ? "gRPC" : "HTTP", batch, ret_resolved->rate, ret_resolved->cpu,
		    child.peak_kib / 1024);
	return good;
}

/* Reports the median of several runs. */
static bool measure_rate(
    struct bench_lookback *look, int batch, const char *name, double bound, struct err *err)
{
	double rates[BENCH_MOST_RUNS];
	int runs = (int)look->bench->options.runs;

	for (int run = 0; run < runs; run++) {
		struct resolved resolved;

		if (!resolve_overdue(look, false, batch, true, &resolved, err))
			return false;
		rates[run] = resolved.rate;
	}
	bench_judge(look->bench, name, "ids/s", bench_median(rates, runs), '>', bound);
	return true;
}

static bool measure_cpu(struct bench_lookback *look, struct err *err)
{
	struct bench *bench = look->bench;
	double cpus[2][BENCH_MOST_RUNS];
	int runs = (int)bench->options.runs;

	for (int run = 0; run < runs; run++)
		for (int turn = 0; turn < 2; turn++) {
			/* the side that comes first changes with each run */
			int grpc = turn == run % 2;
			struct resolved resolved;

			if (!resolve_overdue(look, grpc, 1, false, &resolved, err))
				return false;
			cpus[grpc][run] = resolved.cpu * 1e6 / (double)bench->options.overdue;
		}
	bench_judge_pairs(bench, "CPU of a million look-backs, gRPC beside HTTP", "s", cpus[1],
	    cpus[0], runs, '<', 1.2);
	return true;
}

bool bench_lookback_checks(struct bench_lookback *look, struct err *err)
{
	return measure_rate(look, 1, "overdue ones resolved singly", 3000, err) &&
	       measure_rate(look, 100, "overdue ones resolved 100 in a request", 10000, err) &&
	       measure_cpu(look, err);
}
