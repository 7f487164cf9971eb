/*
 * The time from a decision to a consumer of the business topic, at a rate of pairs. The commit
 * follows its prepare at once or, in every second pair, a second later. The decision counts from
 * the broker's acknowledgement of the record; the time since its sending, which the application's
 * producer delays, is shown as well. In turns with it, for comparison, the outbox: the time from
 * the return of COMMIT to the consumer.
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
	int64_t *sent_us, *acked_us;
};

static bool decide_pair(struct saying *saying, int64_t number, struct err *err)
{
	saying->sent_us[number] = clock_us();
	return bench_talk_commit(saying->look->talk, number, err);
}

/* One tick of the rate: sends a prepare, and its commit or that of the pair a second before. */
static bool say_tick(struct saying *saying, int64_t tick, struct err *err)
{
	int64_t late = tick - saying->rate;

	if (tick <= saying->count && (!bench_talk_prepare(saying->look->talk, tick, err) ||
					 (tick % 2 == 0 && !decide_pair(saying, tick, err))))
		return false;
	return late < 1 || late % 2 == 0 || decide_pair(saying, late, err);
}

/* A late tick starts at once, so that the rate is held. */
static bool wait_until_due(struct saying *saying, int64_t due_us, struct err *err)
{
	int64_t now;

	do {
		now = clock_us();
		if (!bench_goes_on(err) || !bench_talk_step(saying->look->talk, now < due_us, err))
			return false;
	} while (now < due_us);
	return true;
}

static bool say_all(struct saying *saying, double *ret_held, struct err *err)
{
	int64_t ticks = saying->count + saying->rate, began = clock_us(), spent;

	for (int64_t tick = 1; tick <= ticks; tick++)
		if (!wait_until_due(saying, began + tick * 1000000 / saying->rate, err) ||
		    !say_tick(saying, tick, err))
			return false;
	spent = clock_us() - began;
	*ret_held = (double)ticks / (double)saying->rate / ((double)spent / 1e6);
	return bench_talk_flush(saying->look->talk, err);
}

/* The latencies of one run: since the acknowledgement, and since the sending. */
struct spans {
	struct bench_latency acked, sent;
};

/* Sends number 0 ahead, as for the outbox. */
static bool measure_run(struct saying *saying, const struct bench_watch *watch,
    struct spans *ret_spans, struct err *err)
{
	bench_talk_note(saying->look->talk, saying->acked_us);
	if (!bench_talk_prepare(saying->look->talk, 0, err) ||
	    !bench_talk_commit(saying->look->talk, 0, err) ||
	    !bench_talk_flush(saying->look->talk, err) ||
	    !bench_watch_wait(watch, 1, LAST_MS, err) ||
	    !say_all(saying, &ret_spans->acked.held, err) ||
	    !bench_watch_wait(watch, saying->count + 1, LAST_MS, err))
		return false;
	bench_latency_of(watch, saying->acked_us, saying->count + 1, &ret_spans->acked);
	bench_latency_of(watch, saying->sent_us, saying->count + 1, &ret_spans->sent);
	return true;
}

static bool measure_spans(
    struct bench_lookback *look, int64_t rate, struct spans *ret_spans, struct err *err)
{
	struct bench *bench = look->bench;
	struct saying saying = {
	    .look = look, .rate = rate, .count = rate * (bench->options.seconds + 1)};
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	bool good;

	saying.acked_us = xcalloc((size_t)saying.count + 1, sizeof *saying.acked_us);
	saying.sent_us = xcalloc((size_t)saying.count + 1, sizeof *saying.sent_us);
	good = bench_lookback_fresh(look, err) && bench_lookback_empty(bench, err) &&
	       (watch = bench_watch_start(bench, saying.count + 1, err)) &&
	       bench_lookback_run(look, bench, NULL, &child, err) &&
	       measure_run(&saying, watch, ret_spans, err);
	bench_child_stop(&child);
	bench_watch_stop(watch);
	/* the talk outlives the array */
	bench_talk_note(look->talk, NULL);
	free(saying.acked_us);
	free(saying.sent_us);
	if (good)
		bench_say("look-back, %lld/s: p50 %.2f ms, p99 %.2f ms; from the sending (linger "
			  "%s ms) %.2f and %.2f; the application held %.3f",
		    (long long)rate, ret_spans->acked.p50, ret_spans->acked.p99, BENCH_LINGER,
		    ret_spans->sent.p50, ret_spans->sent.p99, ret_spans->acked.held);
	return good;
}

/* Runs the look-back, with the outbox's runs in between. */
struct runs {
	double p50[BENCH_MOST_RUNS], p99[BENCH_MOST_RUNS], sent[BENCH_MOST_RUNS];
	double outbox_p50[BENCH_MOST_RUNS], outbox_p99[BENCH_MOST_RUNS];
	double held; /* the lowest of all runs */
};

static bool measure_look(
    struct bench_lookback *look, int64_t rate, struct runs *runs, int run, struct err *err)
{
	struct spans spans;

	if (!measure_spans(look, rate, &spans, err))
		return false;
	runs->p50[run] = spans.acked.p50;
	runs->p99[run] = spans.acked.p99;
	runs->sent[run] = spans.sent.p50;
	runs->held = spans.acked.held < runs->held ? spans.acked.held : runs->held;
	return true;
}

static bool measure_outbox(
    struct bench *bench, int64_t rate, struct runs *runs, int run, struct err *err)
{
	struct bench_latency latency;

	if (!bench_latency_of_relay(bench, rate, &latency, err))
		return false;
	runs->outbox_p50[run] = latency.p50;
	runs->outbox_p99[run] = latency.p99;
	runs->held = latency.held < runs->held ? latency.held : runs->held;
	return true;
}

static void judge_spans(struct bench *bench, int64_t rate, struct runs *runs)
{
	int count = (int)bench->options.runs;
	char name[80];

	snprintf(name, sizeof name, "decision to consumer at %lld/s, p50", (long long)rate);
	bench_judge_difference(bench, name, "ms", bench_median(runs->p50, count),
	    bench_median(runs->outbox_p50, count), 10, runs->held < 0.98);
	snprintf(name, sizeof name, "decision to consumer at %lld/s, p99", (long long)rate);
	bench_tell_difference(bench, name, "ms", bench_median(runs->p99, count),
	    bench_median(runs->outbox_p99, count));
	bench_tell(bench, "from its sending, linger " BENCH_LINGER " ms, p50", "ms",
	    bench_median(runs->sent, count));
}

bool bench_lookback_latency(struct bench_lookback *look, struct err *err)
{
	struct bench *bench = look->bench;
	int64_t rate = bench->options.rate ? bench->options.rate : RATE;
	struct runs runs = {.held = 1};

	look->readers = 1; /* a second reader would have to wake up for each record as well */
	for (int run = 0; run < bench->options.runs; run++)
		for (int turn = 0; turn < 2; turn++)
			if (!(turn == run % 2 ? measure_outbox(bench, rate, &runs, run, err)
					      : measure_look(look, rate, &runs, run, err)))
				return false;
	judge_spans(bench, rate, &runs);
	return true;
}
