/*
 * From the sending of a commit to a consumer of the business topic, at a rate of pairs: the commit
 * follows its prepare at once or, of every second pair, a second later. Beside it, in turns, the
 * outbox: from the return of COMMIT to the consumer.
 */
#include "bench_lookback.h"

#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "text.h"

enum { RATE = 1000, LAST_MS = 60000 };

struct saying {
	struct bench_lookback *look;
	int64_t rate, count;
	/* by number; 0: not yet */
	int64_t *decided_us, *acked_us;
};

static bool decide(struct saying *saying, int64_t number, struct err *err)
{
	saying->decided_us[number] = clock_us();
	return bench_talk_commit(saying->look->talk, number, err);
}

/* One tick of the rate: a prepare, its commit or that of the pair a second before. */
static bool say(struct saying *saying, int64_t tick, struct err *err)
{
	int64_t late = tick - saying->rate;

	if (tick <= saying->count && (!bench_talk_prepare(saying->look->talk, tick, err) ||
					 (tick % 2 == 0 && !decide(saying, tick, err))))
		return false;
	return late < 1 || late % 2 == 0 || decide(saying, late, err);
}

static bool say_all(struct saying *saying, double *ret_held, struct err *err)
{
	int64_t ticks = saying->count + saying->rate, began = clock_us(), spent;

	for (int64_t tick = 1; tick <= ticks; tick++) {
		int64_t due = began + tick * 1000000 / saying->rate;

		do
			if (!bench_goes_on(err) || !bench_talk_step(saying->look->talk, 1, err))
				return false;
		while (clock_us() < due);
		if (!say(saying, tick, err))
			return false;
	}
	spent = clock_us() - began;
	*ret_held = (double)ticks / (double)saying->rate / ((double)spent / 1e6);
	return bench_talk_flush(saying->look->talk, err);
}

/* Number 0 goes ahead, as for the outbox. */
static bool measure_run(struct saying *saying, const struct bench_watch *watch,
    struct bench_latency *ret_latency, struct bench_latency *ret_acked, struct err *err)
{
	bench_talk_note(saying->look->talk, saying->acked_us);
	if (!bench_talk_prepare(saying->look->talk, 0, err) ||
	    !bench_talk_commit(saying->look->talk, 0, err) ||
	    !bench_talk_flush(saying->look->talk, err) ||
	    !bench_watch_wait(watch, 1, LAST_MS, err) ||
	    !say_all(saying, &ret_latency->held, err) ||
	    !bench_watch_wait(watch, saying->count + 1, LAST_MS, err))
		return false;
	bench_latency_of(watch, saying->decided_us, saying->count + 1, ret_latency);
	bench_latency_of(watch, saying->acked_us, saying->count + 1, ret_acked);
	return true;
}

static bool measure(
    struct bench_lookback *look, int64_t rate, struct bench_latency *ret_latency, struct err *err)
{
	struct bench *bench = look->bench;
	struct saying saying = {
	    .look = look, .rate = rate, .count = rate * (bench->options.seconds + 1)};
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	struct bench_latency acked;
	bool good;

	saying.acked_us = xcalloc((size_t)saying.count + 1, sizeof *saying.acked_us);
	saying.decided_us = xcalloc((size_t)saying.count + 1, sizeof *saying.decided_us);
	good = bench_lookback_fresh(look, err) && bench_lookback_empty(bench, err) &&
	       (watch = bench_watch_start(bench, saying.count + 1, err)) &&
	       bench_lookback_run(look, bench, NULL, &child, err) &&
	       measure_run(&saying, watch, ret_latency, &acked, err);
	bench_child_stop(&child);
	bench_watch_stop(watch);
	bench_talk_note(look->talk, NULL);
	free(saying.acked_us);
	free(saying.decided_us);
	if (good)
		bench_say("look-back, %lld/s: p50 %.2f ms, p99 %.2f ms; from the acknowledgement "
			  "%.2f and %.2f; the application held %.3f",
		    (long long)rate, ret_latency->p50, ret_latency->p99, acked.p50, acked.p99,
		    ret_latency->held);
	return good;
}

bool bench_lookback_latency(struct bench_lookback *look, struct err *err)
{
	struct bench *bench = look->bench;
	int64_t rate = bench->options.rate ? bench->options.rate : RATE;
	int runs = (int)bench->options.runs;
	double p50[2][BENCH_MOST_RUNS], p99[2][BENCH_MOST_RUNS], held = 1;
	char name[80];

	for (int run = 0; run < runs; run++)
		for (int turn = 0; turn < 2; turn++) {
			int which = turn == run % 2;
			struct bench_latency latency;

			if (!(which == 0 ? measure(look, rate, &latency, err)
					 : bench_latency_of_relay(bench, rate, &latency, err)))
				return false;
			p50[which][run] = latency.p50;
			p99[which][run] = latency.p99;
			held = latency.held < held ? latency.held : held;
		}
	snprintf(name, sizeof name, "decision to consumer at %lld/s, p50", (long long)rate);
	bench_judge_difference(bench, name, "ms", bench_median(p50[0], runs),
	    bench_median(p50[1], runs), 10, held < 0.98);
	snprintf(name, sizeof name, "decision to consumer at %lld/s, p99", (long long)rate);
	bench_tell_difference(
	    bench, name, "ms", bench_median(p99[0], runs), bench_median(p99[1], runs));
	return true;
}
