/*
 * Drains of the same rows in several ways that take turns, so that changes on the machine affect
 * all of them. A drain is a child process that publishes the rows behind a snapshot and ends. The
 * rate is that of the broker: records by the time from the first to the last append
 * (LogAppendTime). CPU and memory are the child's (getrusage).
 */
#include "bench.h"

#include "clock.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "sql_files.h"
#include "text.h"

enum { GATHERED_MS = 120000 };

struct drained {
	double rate, wall, cpu, peak_kib, stored;
};

/* Makes the publisher wait, as for a split, until all of its shards have an owner. */
static bool gather_shards(struct bench *bench, struct err *err)
{
	owned_text char *owned = schema_text(sql_bench_owned, bench->schema);
	owned_text char *go_on = schema_text(sql_publisher_split_cancel, bench->schema);
	const struct pg_param params[] = {{BENCH_PUBLISHER}};

	for (int64_t end = clock_ms() + GATHERED_MS; bench_goes_on(err); usleep(20000)) {
		OWNED(owned_pg_result_destroy)
		struct pg_result *count = pg_query(bench->pg, owned, params, 1, err);

		if (!count)
			return false;
		if (pg_int(count, 0, 0) == bench->shards)
			return pg_execute(bench->pg, go_on, params, 1, err);
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY,
			    "after %d s only %lld of %d shards are taken", GATHERED_MS / 1000,
			    (long long)pg_int(count, 0, 0), bench->shards);
	}
	return false;
}

/* No window opens after a split has begun; this split is never bound, and gather cancels it. */
static bool hold_back(struct bench *bench, struct err *err)
{
	owned_text char *sql = schema_text(sql_publisher_split_begin, bench->schema);
	owned_text char *shards = xformat("%d", bench->shards + 1);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {shards}};

	return pg_execute(bench->pg, sql, params, 2, err);
}

static bool is_limit(const struct bench_way *way)
{
	return way->program == BENCH_LIMIT || way->program == BENCH_LIMIT_BARE;
}

/* The configuration of headers = none; without these headers no tail can be read. */
static char *headerless_sections(const struct bench_way *way)
{
	return way->program == BENCH_RELAY_HEADERLESS
		   ? xformat("[publisher \"" BENCH_PUBLISHER
			     "\"]\nresume = none\n[topic \"%s\"]\nheaders = none\n",
			 way->place.topic)
		   : NULL;
}

/* Drains into an empty topic. */
static bool drain_way(
    struct bench_way *way, int64_t rows, struct drained *ret_drained, struct err *err)
{
	struct bench *bench = &way->place;
	const char *const relay[] = {"run", "--drain", NULL};
	const char *const limit[] = {"limit", "--topic", bench->topic,
	    way->program == BENCH_LIMIT_BARE ? "--bare" : NULL, NULL};
	owned_text char *sections = headerless_sections(way);
	struct bench_child child = {.is_bench = is_limit(way), .sections = sections};
	struct rusage usage;
	struct bench_seen seen;
	int64_t begin_us, end_us;

	if (!bench_rewind(bench, way->snapshot, err) || (way->gathers && !hold_back(bench, err)))
		return false;
	begin_us = clock_us();
	if (!bench_child_start(bench, &child, is_limit(way) ? limit : relay, err))
		return false;

	/* taking many shards takes time, which is no part of the drain */
	if (way->gathers && !gather_shards(bench, err)) {
		bench_child_stop(&child);
		return false;
	}
	if (!bench_child_wait(&child, &usage, err))
		return false;
	end_us = clock_us();
	if (!bench_read_topic(bench, rows, &seen, err))
		return false;
	*ret_drained = (struct drained){
	    .rate = (double)seen.records * 1000 / (double)(seen.last_ms - seen.first_ms + 1),
	    .wall = (double)seen.records * 1e6 / (double)(end_us - begin_us),
	    .cpu = bench_cpu_of_usage(&usage),
	    .peak_kib = child.peak_kib,
	    .stored = (double)seen.stored / (double)seen.records};
	return true;
}

static bool write_rows(struct bench *bench, int64_t rows, struct err *err)
{
	return bench_fill(bench, 0, rows, BENCH_SMALL, false, err) && bench_settle(bench, err);
}

/* Empties the table first, because truncating would wait for the sessions. */
static bool drain_beside_sessions(
    struct bench_way *way, int64_t rows, struct drained *ret_drained, struct err *err)
{
	struct bench *bench = &way->place;
	struct bench_held *held = NULL;
	struct err ignored;
	bool good = bench_fresh_topic(bench, err) &&
		    (!way->writes || bench_empty_table(bench, err)) &&
		    (held = bench_hold(bench, way->holds, err)) &&
		    (!way->writes || write_rows(bench, rows, err)) &&
		    drain_way(way, rows, ret_drained, err);

	return bench_release(held, good ? err : &ignored) && good;
}

static bool run_way(struct bench_way *way, int run, int64_t rows, struct err *err)
{
	struct drained drained;

	if (!drain_beside_sessions(way, rows, &drained, err))
		return false;
	way->rates[run] = drained.rate;
	way->walls[run] = drained.wall;
	way->cpus[run] = drained.cpu;
	way->stored[run] = drained.stored;
	if (drained.peak_kib > way->peak_kib)
		way->peak_kib = drained.peak_kib;
	bench_say("%s: %.0f rows/s, %.2f s of CPU, %.1f MiB", way->name, drained.rate, drained.cpu,
	    drained.peak_kib / 1024);
	return true;
}

/* Every second pass runs backwards, so that no way always follows the same other one. */
bool bench_turns(struct bench_way *ways, int count, int runs, int64_t rows, struct err *err)
{
	for (int pass = 0; pass < runs; pass++)
		for (int turn = 0; turn < count; turn++) {
			int way = (pass + turn) % count;

			if (!run_way(&ways[pass % 2 ? count - 1 - way : way], pass, rows, err))
				return false;
		}
	return true;
}

struct bench_way bench_way(const struct bench *bench, const char *name)
{
	struct bench_way way = {.place = *bench, .snapshot = BENCH_BEGINNING};

	text_copy(way.name, sizeof way.name, name);
	return way;
}

double bench_way_cpu(const struct bench_way *way, int runs, int64_t rows)
{
	return bench_median_of(way->cpus, runs) * 1e6 / (double)rows;
}
