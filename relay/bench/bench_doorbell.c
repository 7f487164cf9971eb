/*
 * doorbell, burst: cost of the trigger that wakes a sleeping relay, for writers. [writers] compares
 * the same transactions with and without the trigger; [burst] has many connections write at the
 * same moment while a relay sleeps.
 */
#include "bench_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum { ASLEEP_MS = 20000, QUIET_MS = 500, LAST_MS = 30000 };

/* --- writers --------------------------------------------------------------------------------- */

/* One run; a relay that sleeps, if `sleeps`, is never woken up, which costs most. */
static bool write_once(struct bench *bench, const char *trigger, bool sleeps, int connections,
    double *ret_rate, struct err *err)
{
	struct bench_held *held;
	struct err ignored;
	bool good = bench_empty_table(bench, err) && bench_script(bench, trigger, err);

	if (!good)
		return false;
	held = bench_hold(bench, sleeps ? bench_hold_bell : NULL, err);
	good = held && bench_writer_rate(bench, sql_bench_publish, connections, 0, ret_rate, err);
	return bench_release(held, good ? err : &ignored) && good;
}

static bool compare_triggers(struct bench *bench, bool sleeps, int connections, struct err *err)
{
	const char *triggers[] = {sql_bench_bell_off, sql_bench_bell_on};
	double rates[2][BENCH_MOST_RUNS];
	int pairs = (int)(sleeps ? bench->options.pairs : bench->options.turns);
	char name[80];

	for (int pair = 0; pair < pairs; pair++)
		for (int turn = 0; turn < 2; turn++) {
			int rings = (pair + turn) % 2;

			if (!write_once(bench, triggers[rings], rings && sleeps, connections,
				&rates[rings][pair], err))
				return false;
		}
	snprintf(name, sizeof name, "writer, %d connection%s, relay %s", connections,
	    connections == 1 ? "" : "s", sleeps ? "asleep" : "awake");
	/* A relay that is never woken up is no case of production: then each transaction rings, and
	 * wakes the session that listens. */
	bench_judge_pairs(
	    bench, name, "tx/s", rates[1], rates[0], pairs, sleeps ? 0 : '>', sleeps ? NAN : 0.97);
	return true;
}

bool bench_doorbell(struct bench *bench, struct err *err)
{
	static const int connections[] = {1, 8, 64};

	for (size_t i = 0; i < sizeof connections / sizeof *connections; i++)
		for (int sleeps = 0; sleeps < 2; sleeps++)
			if (!compare_triggers(bench, sleeps, connections[i], err))
				return false;
	return true;
}

/* --- burst ----------------------------------------------------------------------------------- */

/* The times of the writers of one run, in microseconds of the clock. */
struct burst {
	int64_t *times, count;
};

static void note_burst_time(void *context, int64_t first, int rows, int64_t now_us)
{
	struct burst *burst = context;

	(void)first;
	(void)rows;
	burst->times[burst->count++] = now_us;
}

static bool wait_for_sleep(struct bench *bench, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_asleep, bench->schema);

	for (int64_t end = clock_ms() + ASLEEP_MS; bench_goes_on(err); usleep(20000)) {
		OWNED(owned_pg_result_destroy)
		struct pg_result *row = pg_query(bench->pg, sql, NULL, 0, err);

		if (!row || text_equal(pg_value(row, 0, 0), "t"))
			return row != NULL;
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY,
			    "the relay did not fall asleep within %d s; its log says why",
			    ASLEEP_MS / 1000);
	}
	return false;
}

static int compare_burst_times(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* Percentiles over all writers, in milliseconds. */
struct burst_times {
	double p50, p999;
};

/* Each connection writes one message; all of them begin in the same microsecond. */
static bool write_burst(struct bench *bench, struct burst_times *ret_times, struct err *err)
{
	static const struct bench_step steps[] = {
	    {sql_bench_publish, BENCH_TAKES_ROW}, {NULL, BENCH_TAKES_NOTHING}};
	int connections = (int)bench->options.connections;
	int64_t times[BENCH_CONNECTIONS];
	struct burst burst = {.times = times};
	const struct bench_load load = {.steps = steps,
	    .warm = sql_bench_warm,
	    .connections = connections,
	    .rows = 1,
	    .first = 1,
	    .rate = connections * 1e6,
	    .duration_us = 1,
	    .committed = note_burst_time,
	    .context = &burst};
	struct bench_load_done done;

	if (!bench_load_run(bench, &load, &done, err))
		return false;
	qsort(times, (size_t)burst.count, sizeof *times, compare_burst_times);
	ret_times->p50 = (double)(times[burst.count / 2] - done.began_us) / 1000;
	ret_times->p999 = (double)(times[(burst.count - 1) * 999 / 1000] - done.began_us) / 1000;
	return true;
}

/* One run: a relay that has published and sleeps again, and then the burst. */
static bool burst_once(
    struct bench *bench, struct burst_times *ret_times, bool rings, struct err *err)
{
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	bool good;

	bench->doorbell = rings ? "on" : "off";
	good = bench_empty_table(bench, err) && bench_fresh_topic(bench, err) &&
	       bench_rewind(bench, BENCH_BEGINNING, err) &&
	       (watch = bench_watch_start(bench, bench->options.connections + 1, err)) &&
	       bench_child_run(bench, &child, NULL, err) &&
	       bench_fill(bench, 0, 1, BENCH_SMALL, false, err) &&
	       bench_watch_wait(watch, 1, LAST_MS, err) &&
	       (rings ? wait_for_sleep(bench, err) : usleep(QUIET_MS * 1000) == 0) &&
	       write_burst(bench, ret_times, err) &&
	       bench_watch_wait(watch, 1 + bench->options.connections, LAST_MS, err);
	bench_child_stop(&child);
	bench_watch_stop(watch);
	bench->doorbell = NULL;
	return good;
}

static void judge_bursts(
    struct bench *bench, struct burst_times (*times)[BENCH_MOST_RUNS], int pairs)
{
	double p50[2][BENCH_MOST_RUNS], p999[2][BENCH_MOST_RUNS];
	char name[80];

	for (int rings = 0; rings < 2; rings++)
		for (int pair = 0; pair < pairs; pair++) {
			p50[rings][pair] = times[rings][pair].p50;
			p999[rings][pair] = times[rings][pair].p999;
		}

	snprintf(name, sizeof name, "burst of %lld connections, a writer's p50",
	    (long long)bench->options.connections);
	bench_tell_difference(
	    bench, name, "ms", bench_median_of(p50[1], pairs), bench_median_of(p50[0], pairs));
	snprintf(name, sizeof name, "burst of %lld connections, a writer's p99.9",
	    (long long)bench->options.connections);
	bench_judge_difference(bench, name, "ms", bench_median_of(p999[1], pairs),
	    bench_median_of(p999[0], pairs), 50, false);
}

bool bench_burst(struct bench *bench, struct err *err)
{
	struct burst_times times[2][BENCH_MOST_RUNS];
	int pairs = (int)bench->options.pairs;

	if (!bench_script(bench, sql_bench_bell_on, err))
		return false;
	for (int pair = 0; pair < pairs; pair++)
		for (int turn = 0; turn < 2; turn++) {
			int rings = (pair + turn) % 2;

			if (!burst_once(bench, &times[rings][pair], rings, err))
				return false;
			bench_say("%s the doorbell: p50 %.1f ms, p99.9 %.1f ms",
			    rings ? "with" : "without", times[rings][pair].p50,
			    times[rings][pair].p999);
		}
	judge_bursts(bench, times, pairs);
	return true;
}
