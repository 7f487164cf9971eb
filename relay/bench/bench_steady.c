/*
 * steady, idle: CPU time, from /proc, of the relay and, if Postgres runs on this machine, of the
 * relay's sessions in it.
 */
#include "bench_load.h"

#include <stdio.h>
#include "clock.h"
#include "sql_bench.h"

enum { RATE = 1000, CONNECTIONS = 4, WARM_S = 2, SETTLE_S = 3, LAST_MS = 30000 };

/* Starts a relay on an empty table, with a consumer that has seen its first message. */
struct rest {
	struct bench_child child;
	struct bench_watch *watch;
};

static bool begin_rest(struct bench *bench, struct rest *rest, int64_t numbers, struct err *err)
{
	return bench_empty_table(bench, err) && bench_fresh_topic(bench, err) &&
	       bench_rewind(bench, BENCH_BEGINNING, err) &&
	       (rest->watch = bench_watch_start(bench, numbers, err)) &&
	       bench_child_run(bench, &rest->child, NULL, err) &&
	       bench_fill(bench, 0, 1, BENCH_SMALL, false, err) &&
	       bench_watch_wait(rest->watch, 1, LAST_MS, err);
}

static void end_rest(struct rest *rest)
{
	bench_child_stop(&rest->child);
	bench_watch_stop(rest->watch);
}

static bool load_steadily(struct bench *bench, int64_t first, int64_t seconds,
    struct bench_load_done *ret_done, struct err *err)
{
	static const struct bench_step steps[] = {
	    {sql_bench_publish_many, BENCH_TAKES_ROWS}, {NULL, BENCH_TAKES_NOTHING}};
	const struct bench_load load = {.steps = steps,
	    .connections = CONNECTIONS,
	    .rows = 1,
	    .first = first,
	    .rate = RATE,
	    .duration_us = seconds * 1000000};

	return bench_load_run(bench, &load, ret_done, err);
}

/* Measures CPU seconds per million messages. */
static bool steady_once(struct bench *bench, struct bench_cpu *ret_cpu, struct err *err)
{
	int64_t seconds = bench->options.seconds * 2;
	struct rest rest = {0};
	struct bench_cpu before, after;
	struct bench_load_done warm, done;
	bool good =
	    begin_rest(bench, &rest, (seconds + WARM_S + 1) * RATE, err) &&
	    load_steadily(bench, 1, WARM_S, &warm, err) &&
	    bench_child_cpu(bench, &rest.child, &before, err) &&
	    load_steadily(bench, 1 + warm.transactions, seconds, &done, err) &&
	    bench_watch_wait(rest.watch, 1 + warm.transactions + done.transactions, LAST_MS, err) &&
	    bench_child_cpu(bench, &rest.child, &after, err);

	end_rest(&rest);
	if (!good)
		return false;
	ret_cpu->relay = (after.relay - before.relay) * 1e6 / (double)done.transactions;
	ret_cpu->backends = (after.backends - before.backends) * 1e6 / (double)done.transactions;
	return true;
}

bool bench_steady(struct bench *bench, struct err *err)
{
	double relay[BENCH_MOST_RUNS], backends[BENCH_MOST_RUNS];
	int runs = (int)bench->options.runs;

	for (int run = 0; run < runs; run++) {
		struct bench_cpu cpu;

		if (!steady_once(bench, &cpu, err))
			return false;
		relay[run] = cpu.relay;
		backends[run] = cpu.backends;
		bench_say("CPU s a million messages: relay %.1f, its sessions %.1f", cpu.relay,
		    cpu.backends);
	}

	double relay_median = bench_median(relay, runs),
	       backends_median = bench_median(backends, runs);

	bench_tell(bench, "CPU at 1000/s, a million messages, relay", "s", relay_median);
	bench_tell(bench, "CPU at 1000/s, a million messages, sessions", "s", backends_median);
	bench_judge(bench, "CPU at 1000/s, a million messages, together", "s",
	    relay_median + backends_median, '<', 240);
	return true;
}

static bool sleep_idle(int64_t seconds, struct err *err)
{
	int64_t until = clock_ms() + seconds * 1000;

	while (clock_ms() < until) {
		if (!bench_goes_on(err))
			return false;
		usleep(50000);
	}
	return true;
}

/* CPU of a relay at rest, in percent of a core, and the latency of the next message. */
struct idleness {
	double relay, sessions, first_ms;
};

static bool rest_once(
    struct bench *bench, const char *doorbell, struct idleness *ret_idleness, struct err *err)
{
	int64_t began = 0, committed = 0;
	struct rest rest = {0};
	struct bench_cpu before, after;
	bool good;

	bench->doorbell = doorbell;
	good = begin_rest(bench, &rest, 2, err) && sleep_idle(SETTLE_S, err) &&
	       bench_child_cpu(bench, &rest.child, &before, err) && (began = clock_us()) &&
	       sleep_idle(bench->options.idle_seconds, err) &&
	       bench_child_cpu(bench, &rest.child, &after, err);

	double spent = (double)(clock_us() - began) / 1e6;

	good = good && bench_fill(bench, 1, 1, BENCH_SMALL, false, err) &&
	       (committed = clock_us()) && bench_watch_wait(rest.watch, 2, LAST_MS, err);
	if (good)
		*ret_idleness =
		    (struct idleness){.relay = (after.relay - before.relay) / spent * 100,
			.sessions = (after.backends - before.backends) / spent * 100,
			.first_ms = (double)(bench_watch_seen(rest.watch, 1) - committed) / 1000};
	end_rest(&rest);
	bench->doorbell = NULL;
	return good;
}

bool bench_idle(struct bench *bench, struct err *err)
{
	struct idleness off, on;

	if (!rest_once(bench, "off", &off, err) || !rest_once(bench, "on", &on, err))
		return false;
	bench_tell(bench, "idle without the doorbell, its sessions", "% core", off.sessions);
	bench_judge(bench, "idle without the doorbell, with its sessions", "% core",
	    off.relay + off.sessions, '<', 1);
	bench_judge(bench, "first message after idleness, without", "ms", off.first_ms, '<', 100);
	bench_tell(bench, "idle, its sessions", "% core", on.sessions);
	bench_judge_ratio(bench, "idle, relay and its sessions", "% core", on.relay + on.sessions,
	    off.relay + off.sessions, '<', 0.2);
	bench_judge(bench, "first message after idleness", "ms", on.first_ms, '<', 50);
	return true;
}
