/*
 * drain: the relay as a child process publishes a table from its beginning, in turns with the limit
 * (bench_limit.c), another child, on the same rows. The rate is that of the broker: records by the
 * time from the first to the last append (LogAppendTime). CPU and memory are the child's
 * (getrusage).
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct drained {
	double rate, cpu, peak_kib;
};

/* From a slot that is behind `snapshot`, whose rows are `rows`. */
static bool drain_once(struct bench *bench, bool limit, const char *snapshot, int64_t rows,
    struct drained *ret_drained, struct err *err)
{
	const char *const relay[] = {"run", "--drain", NULL};
	const char *const bare[] = {"bench", "limit", "--topic", bench->topic, NULL};
	struct bench_child child = {0};
	struct rusage usage;
	struct bench_seen seen;

	if (!bench_fresh_topic(bench, err) || !bench_rewind(bench, snapshot, err) ||
	    !bench_child_start(bench, &child, limit ? bare : relay, err) ||
	    !bench_child_wait(&child, &usage, err) || !bench_read_topic(bench, &seen, err))
		return false;
	if (seen.records != rows)
		return err_set(err, ERR_FATAL, "%lld of %lld records are in the topic",
		    (long long)seen.records, (long long)rows);
	*ret_drained = (struct drained){
	    .rate = (double)seen.records * 1000 / (double)(seen.last_ms - seen.first_ms + 1),
	    .cpu = bench_cpu_of_usage(&usage),
	    .peak_kib = child.peak_kib};
	bench_say("%s: %.0f rows/s, %.2f s of CPU, %.1f MiB", limit ? "limit" : "relay",
	    ret_drained->rate, ret_drained->cpu, ret_drained->peak_kib / 1024);
	return true;
}

enum { MOST_RUNS = 99 };

struct medians {
	double rates[MOST_RUNS], cpus[MOST_RUNS], peak_kib;
	int count;
};

static void note(struct medians *medians, const struct drained *drained)
{
	medians->rates[medians->count] = drained->rate;
	medians->cpus[medians->count++] = drained->cpu;
	if (drained->peak_kib > medians->peak_kib)
		medians->peak_kib = drained->peak_kib;
}

static bool compare(struct bench *bench, int64_t rows, struct medians *relay, struct medians *limit,
    struct err *err)
{
	for (int run = 0; run < bench->options.runs; run++)
		for (int turn = 0; turn < 2; turn++) {
			bool is_limit = turn != run % 2;
			struct drained drained = {0};

			if (!drain_once(bench, is_limit, BENCH_BEGINNING, rows, &drained, err))
				return false;
			note(is_limit ? limit : relay, &drained);
		}
	return true;
}

static bool drain_size(struct bench *bench, int64_t rows, int64_t payload, struct err *err)
{
	struct medians relay = {0}, limit = {0};
	bool large = payload > BENCH_SMALL;
	double rate, limit_rate, cpu, limit_cpu;
	char name[80];

	if (!bench_empty_table(bench, err) || !bench_fill(bench, 0, rows, payload, false, err) ||
	    !bench_settle(bench, err) || !compare(bench, rows, &relay, &limit, err))
		return false;
	rate = bench_median(relay.rates, relay.count);
	cpu = bench_median(relay.cpus, relay.count) * 1e6 / (double)rows;
	limit_rate = bench_median(limit.rates, limit.count);
	limit_cpu = bench_median(limit.cpus, limit.count) * 1e6 / (double)rows;
	snprintf(
	    name, sizeof name, "drain of %lld rows of %lld B", (long long)rows, (long long)payload);
	bench_judge_ratio(bench, name, "rows/s", rate, limit_rate, '>', large ? 0.9 : 0.8);
	snprintf(name, sizeof name, "CPU of it, a million rows");
	if (large)
		bench_tell_beside(bench, name, "s", cpu, limit_cpu);
	else
		bench_judge_ratio(bench, name, "s", cpu, limit_cpu, '<', 1.4);
	bench->peak_kib[large] = relay.peak_kib;
	bench->drained[large] = rows;
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

/* --- memory ---------------------------------------------------------------------------------- */

static void judge_memory(struct bench *bench, const char *what, int64_t rows, double peak_kib)
{
	char name[80];

	snprintf(name, sizeof name, "peak memory, %s of %lld rows", what, (long long)rows);
	bench_judge(bench, name, "MiB", peak_kib / 1024, '<', 64);
}

/* Of drains that were measured already, or of one. */
static bool drain_memory(
    struct bench *bench, int64_t rows, int64_t payload, const char *what, struct err *err)
{
	bool large = payload > BENCH_SMALL;
	struct drained drained = {0};

	if (!bench->peak_kib[large]) {
		if (!bench_empty_table(bench, err) ||
		    !bench_fill(bench, 0, rows, payload, false, err) || !bench_settle(bench, err) ||
		    !drain_once(bench, false, BENCH_BEGINNING, rows, &drained, err))
			return false;
		bench->peak_kib[large] = drained.peak_kib;
		bench->drained[large] = rows;
	}
	judge_memory(bench, what, bench->drained[large], bench->peak_kib[large]);
	return true;
}

/* One transaction comes while the relay runs. */
static bool huge_transaction(struct bench *bench, int64_t rows, struct err *err)
{
	const char *const arguments[] = {"run", NULL};
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	bool good = bench_empty_table(bench, err) && bench_fresh_topic(bench, err) &&
		    bench_rewind(bench, BENCH_BEGINNING, err) &&
		    bench_child_start(bench, &child, arguments, err) &&
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

/* --- a table with published rows in front ------------------------------------------------------
 */

/* A table to drain: rows behind published ones. */
struct table {
	struct bench *bench;
	char *snapshot; /* behind the published ones */
	double rates[BENCH_PAIRS];
};

static bool fill(struct table *table, int64_t published, int64_t rows, struct err *err)
{
	struct bench *bench = table->bench;

	return bench_empty_table(bench, err) &&
	       bench_fill(bench, 0, published, BENCH_SMALL, false, err) &&
	       (table->snapshot = bench_snapshot(bench, err)) &&
	       bench_fill(bench, published, rows, BENCH_SMALL, false, err) &&
	       bench_settle(bench, err);
}

static bool drain_in_turns(struct table tables[2], int64_t rows, struct err *err)
{
	struct drained drained = {0};

	for (int pair = 0; pair < BENCH_PAIRS; pair++)
		for (int turn = 0; turn < 2; turn++) {
			struct table *table = &tables[(pair + turn) % 2];

			if (!drain_once(table->bench, false, table->snapshot, rows, &drained, err))
				return false;
			table->rates[pair] = drained.rate;
		}
	return true;
}

bool bench_table(struct bench *bench, struct err *err)
{
	int64_t rows = bench->options.rows < 1000000 ? bench->options.rows : 1000000;
	struct bench second;
	struct table tables[2] = {{.bench = bench}, {.bench = &second}};
	char name[80];
	bool good = bench_second_place(bench, &second, err) && fill(&tables[0], 0, rows, err) &&
		    fill(&tables[1], bench->options.published, rows, err) &&
		    drain_in_turns(tables, rows, err);

	free(tables[0].snapshot);
	free(tables[1].snapshot);
	bench_schema_drop(&second);
	if (!good)
		return false;
	snprintf(name, sizeof name, "drain behind %lld published rows, beside none",
	    (long long)bench->options.published);
	bench_judge_pairs(bench, name, "rows/s", tables[1].rates, tables[0].rates, 0.95);
	return true;
}
