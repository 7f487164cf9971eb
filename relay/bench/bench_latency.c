/*
 * latency: the time from the return of COMMIT in the writer to the moment when a consumer has the
 * record, both by this process's monotonic clock. For comparison, direct: the same writer inserts
 * into a plain table and produces the records itself once its COMMIT has returned, with the relay's
 * producer settings.
 */
#include "bench_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "partitioner.h"
#include "producer.h"
#include "sql_bench.h"
#include "text.h"

enum {
	CONNECTIONS = 16,
	WARM_US = 1000000,
	LAST_MS = 30000,
	REPORTS = 256,
	LEAST_MESSAGES = 300, /* without --seconds, a run has so many */
	QUIET_RATE = 100      /* below it such a run takes longer, and one counts */
};

/* The times of one run: when each message was committed and when it was seen. */
struct timing {
	struct bench *bench;
	struct bench_watch *watch;
	int64_t *committed_us; /* by number; 0: not committed */
	int64_t numbers;
	struct producer *producer; /* only for direct; NULL otherwise */
	struct producer_topic *topic;
	int64_t in_flight;
	int64_t unsent;           /* messages not sent because the queue was full; fatal */
	struct bench_child child; /* not started for direct */
};

/* --- the direct application --------------------------------------------------------------------
 */

static void produce_directly(struct timing *timing, int64_t number)
{
	struct text payload = {0};
	char key[32];
	struct err err;
	int length = snprintf(key, sizeof key, "customer-%lld", (long long)(number % BENCH_KEYS));

	bench_payload(&payload, number, BENCH_SMALL);

	const struct producer_record record = {.topic = timing->topic,
	    .partition = partitioner_of_key(key, (size_t)length, BENCH_PARTITIONS),
	    .key = key,
	    .key_length = (size_t)length,
	    .payload = payload.data,
	    .payload_length = payload.length,
	    .opaque = payload.data};

	if (producer_send(timing->producer, &record, &err)) {
		timing->in_flight++;
		return;
	}
	/* an unsent record would be missing from the latencies, just when they are worst */
	timing->unsent++;
	free(payload.data);
}

static bool take_direct_reports(void *context, struct err *err)
{
	struct timing *timing = context;
	struct producer_report reports[REPORTS];
	int count;

	do {
		count = producer_poll(timing->producer, reports, REPORTS);
		for (int i = 0; i < count; i++) {
			if (reports[i].error)
				timing->unsent++;
			free(reports[i].opaque);
		}
		timing->in_flight -= count;
	} while (count == REPORTS);
	return timing->unsent == 0 ||
	       err_set(err, ERR_FATAL, "the direct application's producer lost records");
}

static int producer_event(void *context)
{
	struct timing *timing = context;

	return producer_fd(timing->producer);
}

static void note_commit_times(void *context, int64_t first, int rows, int64_t now_us)
{
	struct timing *timing = context;

	for (int64_t n = first; n < first + rows && n < timing->numbers; n++) {
		timing->committed_us[n] = now_us;
		if (timing->producer)
			produce_directly(timing, n);
	}
}

/* --- a run -------------------------------------------------------------------------------------
 */

static int compare_int64(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

void bench_latency_of(const struct bench_watch *watch, const int64_t *since_us, int64_t numbers,
    struct bench_latency *ret_latency)
{
	int64_t *spans = xcalloc((size_t)numbers, sizeof *spans);
	int64_t count = 0, warm = since_us[1] + WARM_US;

	for (int64_t n = 1; n < numbers; n++) {
		int64_t seen = bench_watch_seen(watch, n);

		if (since_us[n] < warm || !seen)
			continue;
		/* seen before COMMIT returned to the writer */
		spans[count++] = seen > since_us[n] ? seen - since_us[n] : 0;
	}
	qsort(spans, (size_t)count, sizeof *spans, compare_int64);
	ret_latency->p50 = count ? (double)spans[count / 2] / 1000 : NAN;
	ret_latency->p99 = count ? (double)spans[count * 99 / 100] / 1000 : NAN;
	free(spans);
}

/* Sends number 0 ahead, so that everything is connected before the measured messages. */
static bool send_first(struct timing *timing, struct err *err)
{
	bool good = bench_fill(timing->bench, 0, 1, BENCH_SMALL, false, err);

	if (timing->producer)
		produce_directly(timing, 0);
	for (int64_t end = clock_ms() + LAST_MS; good && bench_watch_count(timing->watch) < 1;) {
		if (timing->producer && !take_direct_reports(timing, err))
			return false;
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY, "the first record did not come");
		good = bench_goes_on(err);
		usleep(1000);
	}
	return good;
}

static struct bench_cpu cpu_a_million(
    const struct bench_cpu *before, const struct bench_cpu *after, int64_t messages)
{
	double scale = 1e6 / (double)(messages ? messages : 1);

	return (struct bench_cpu){.relay = (after->relay - before->relay) * scale,
	    .backends = (after->backends - before->backends) * scale,
	    .broker = (after->broker - before->broker) * scale};
}

/* A percentile needs messages, so a run at a low rate is longer. */
static int64_t latency_seconds(const struct bench *bench, int64_t rate)
{
	int64_t least = LEAST_MESSAGES / rate + WARM_US / 1000000 + 1;
	bool is_short = bench->options.seconds_said > 0 || bench->options.seconds > least;

	return is_short ? bench->options.seconds : least;
}

static bool write_and_wait(struct timing *timing, int64_t rate, int rows,
    struct bench_latency *ret_latency, struct err *err)
{
	const struct bench_step steps[] = {
	    {timing->producer ? sql_bench_plain_many : sql_bench_publish_many, BENCH_TAKES_ROWS},
	    {NULL, BENCH_TAKES_NOTHING}};
	const struct bench_load load = {.steps = steps,
	    .connections = CONNECTIONS,
	    .rows = rows,
	    .first = 1,
	    .rate = (double)rate / rows,
	    .duration_us = latency_seconds(timing->bench, rate) * 1000000,
	    .committed = note_commit_times,
	    .turn = timing->producer ? take_direct_reports : NULL,
	    .fd = timing->producer ? producer_event : NULL,
	    .context = timing};
	struct bench_load_done done;
	struct bench_cpu before, after;

	if (!send_first(timing, err) ||
	    !bench_child_cpu(timing->bench, &timing->child, &before, err) ||
	    !bench_load_run(timing->bench, &load, &done, err))
		return false;
	for (int64_t end = clock_ms() + LAST_MS;
	     bench_watch_count(timing->watch) < 1 + done.transactions * rows;) {
		if (!bench_goes_on(err) || (timing->producer && !take_direct_reports(timing, err)))
			return false;
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY,
			    "records are missing %d s after the last commit", LAST_MS / 1000);
		usleep(1000);
	}
	if (!bench_child_cpu(timing->bench, &timing->child, &after, err))
		return false;
	ret_latency->held = done.held;
	ret_latency->cpu = cpu_a_million(&before, &after, done.transactions * rows);
	bench_latency_of(timing->watch, timing->committed_us, timing->numbers, ret_latency);
	return true;
}

static bool open_direct_producer(struct timing *timing, struct err *err)
{
	const struct publisher_settings *publisher = timing->bench->publisher;

	timing->producer = producer_create(publisher->kafka, NULL, publisher->memory,
	    publisher_settings_in_flight(publisher), 1, err);
	timing->topic =
	    timing->producer ? producer_topic(timing->producer, timing->bench->topic, err) : NULL;
	return timing->topic != NULL;
}

/* A consumer may have a record before its producer knows that it was written. */
static void close_producer(struct timing *timing)
{
	struct err err;

	for (int64_t end = clock_ms() + LAST_MS; timing->in_flight > 0 && clock_ms() < end;) {
		if (!take_direct_reports(timing, &err))
			break;
		usleep(1000);
	}
	producer_destroy(timing->producer, 1000);
}

static bool start_side(struct timing *timing, const struct bench_side *side, struct err *err)
{
	struct bench bench = *timing->bench;
	struct publisher_settings publisher = *bench.publisher;

	publisher.pace = side->pace;
	publisher.poll_busy_ms = publisher_paces[side->pace].poll_busy_ms;
	publisher.poll_idle_ms = publisher_paces[side->pace].poll_idle_ms;
	bench.publisher = &publisher;
	bench.relay = side->program;
	return bench_child_run(&bench, &timing->child, NULL, err);
}

bool bench_visit_latency(struct bench *bench, const struct bench_side *side, int64_t rate, int rows,
    struct bench_latency *ret_latency, bench_visit_times *visit, void *context, struct err *err)
{
	int64_t numbers = rate * latency_seconds(bench, rate) + rate + rows + 1;
	struct timing timing = {.bench = bench, .numbers = numbers};
	bool good = bench_empty_table(bench, err) && bench_fresh_topic(bench, err) &&
		    bench_rewind(bench, BENCH_BEGINNING, err);

	timing.committed_us = xcalloc((size_t)numbers, sizeof *timing.committed_us);
	good = good && (timing.watch = bench_watch_start(bench, numbers, err)) &&
	       (side->direct       ? open_direct_producer(&timing, err)
		   : side->program ? start_side(&timing, side, err)
				   : bench_child_run(bench, &timing.child, NULL, err)) &&
	       write_and_wait(&timing, rate, rows, ret_latency, err);
	close_producer(&timing);
	bench_child_stop(&timing.child);
	if (good && visit)
		visit(context, timing.watch, timing.committed_us, numbers);
	bench_watch_stop(timing.watch);
	free(timing.committed_us);
	if (good)
		bench_say("%s, %lld/s: p50 %.2f ms, p99 %.2f ms, the writer held %.3f", side->name,
		    (long long)rate, ret_latency->p50, ret_latency->p99, ret_latency->held);
	return good;
}

bool bench_measure_latency(struct bench *bench, const struct bench_side *side, int64_t rate,
    int rows, struct bench_latency *ret_latency, struct err *err)
{
	return bench_visit_latency(bench, side, rate, rows, ret_latency, NULL, NULL, err);
}

static const struct bench_side side_relay = {.name = "relay"},
			       side_direct = {.name = "direct", .direct = true};

bool bench_latency_of_relay(
    struct bench *bench, int64_t rate, struct bench_latency *ret_latency, struct err *err)
{
	return bench_measure_latency(bench, &side_relay, rate, 1, ret_latency, err);
}

/* --- the part ----------------------------------------------------------------------------------
 */

/* There is a bound for at-least-once only. */
static void judge_percentile(struct bench *bench, int64_t rate, const char *percentile,
    double relay, double direct, double most, bool saturated)
{
	bool once = bench->delivery == DELIVERY_EXACTLY_ONCE;
	char name[80];

	snprintf(name, sizeof name, "%scommit to consumer at %lld/s, %s",
	    once ? "exactly-once, " : "", (long long)rate, percentile);
	if (once)
		bench_tell_difference(bench, name, "ms", relay, direct);
	else
		bench_judge_difference(bench, name, "ms", relay, direct, most, saturated);
}

static void judge_latency(struct bench *bench, int64_t rate, const struct bench_latency *relay,
    const struct bench_latency *direct, int runs)
{
	double p50[2][BENCH_MOST_RUNS], p99[2][BENCH_MOST_RUNS], held = 1;

	for (int i = 0; i < runs; i++) {
		p50[0][i] = relay[i].p50;
		p99[0][i] = relay[i].p99;
		p50[1][i] = direct[i].p50;
		p99[1][i] = direct[i].p99;
		/* the worst of both: one saturated side makes the comparison meaningless */
		held = relay[i].held < held ? relay[i].held : held;
		held = direct[i].held < held ? direct[i].held : held;
	}
	judge_percentile(bench, rate, "p50", bench_median(p50[0], runs), bench_median(p50[1], runs),
	    3, held < 0.98);
	judge_percentile(bench, rate, "p99", bench_median(p99[0], runs), bench_median(p99[1], runs),
	    10, held < 0.98);
}

bool bench_latency_at(struct bench *bench, int64_t rate, struct err *err)
{
	struct bench_latency relay[BENCH_MOST_RUNS], direct[BENCH_MOST_RUNS];
	int rows = rate >= 20000 ? 4 : 1;
	int runs = (int)(rate < QUIET_RATE ? bench->options.few_runs : bench->options.runs);

	for (int run = 0; run < runs; run++)
		for (int turn = 0; turn < 2; turn++) {
			/* the side that comes first changes with each run */
			bool is_direct = turn != run % 2;

			if (!bench_measure_latency(bench, is_direct ? &side_direct : &side_relay,
				rate, rows, is_direct ? &direct[run] : &relay[run], err))
				return false;
		}
	judge_latency(bench, rate, relay, direct, runs);
	return true;
}

bool bench_latency(struct bench *bench, struct err *err)
{
	static const int64_t rates[] = {1, 4, 20, 100, 1000, 5000, 20000};

	if (bench->options.rate)
		return bench_latency_at(bench, bench->options.rate, err);
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
		if (!bench_latency_at(bench, rates[i], err))
			return false;
	return true;
}
