/*
 * growth: cost over each dimension that can grow. A dimension is a row of list_topics, list_drains,
 * list_requests or list_parked. Each dimension gets two schemas, one without it and one with
 * `count` of it, and the same figure is measured in both in turns.
 */
#include "bench_growth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum {
	DIMENSIONS = 11,
	FAR_FUTURE = 20000, /* scheduled rows with ids below those of the due ones */
	KEY_BYTES = 8192,   /* the longest key of a message */
	NOTED = 4,          /* log rows before a fold or a take-over */
	WIDE = 12,          /* partitions of a wide topic */
	SHORT_ROWS = 2000,  /* rows listed in a turn */
	LONG_ROWS = 500,    /* the same, with long keys */
	FIRST_MS = 120000   /* timeout for a relay's first message */
};

/* --- measuring ------------------------------------------------------------------------------- */

struct tick {
	const char *closed; /* windows that end with the tick */
	const char *destinations;
	bool lists, folds;
};

static struct pg_result *run_tick(
    struct bench *place, const struct tick *tick, const char *expected, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_growth_tick, place->schema);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {tick->closed},
	    {tick->lists ? "t" : "f"}, {tick->destinations}, {tick->folds ? "t" : "f"}};
	struct pg_result *rows = pg_query(place->pg, sql, params, 5, err);
	const char *verdict = rows ? pg_value(rows, pg_rows(rows) - 1, 0) : "";

	/* another verdict means that the tick did other work than the one measured */
	if (!rows || text_equal(verdict, expected))
		return rows;
	err_set(err, ERR_FATAL, "a tick returned '%s' instead of '%s'", verdict, expected);
	pg_result_destroy(rows);
	return NULL;
}

static double server_ms(const struct pg_result *rows)
{
	return (double)pg_int(rows, pg_rows(rows) - 1, 1) / 1000;
}

static bool measure_noting(
    struct bench *place, int times, bool folds, double *ret_ms, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *touched = pg_query(place->pg, sql_bench_growth_touched, NULL, 0, err);
	bool good = touched && bench_goes_on(err);

	for (int i = 0; good && i < times; i++) {
		const struct tick tick = {.closed = "0",
		    .destinations = pg_value(touched, 0, 0),
		    /* the ticks before it write the rows that it folds */
		    .folds = folds && i + 1 == times};
		struct pg_result *rows = run_tick(place, &tick, "noted", err);

		good = rows;
		if (good)
			*ret_ms = server_ms(rows);
		pg_result_destroy(rows);
	}
	return good;
}

static bool measure_tick(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_ms, struct err *err)
{
	(void)dimension;
	(void)count;
	return measure_noting(place, 1, false, ret_ms, err);
}

static bool measure_fold(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_ms, struct err *err)
{
	(void)dimension;
	(void)count;
	return measure_noting(place, NOTED, true, ret_ms, err);
}

static bool take_shard(struct bench *place, double *ret_ms, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_growth_take, place->schema);
	const struct pg_param params[] = {{BENCH_PUBLISHER}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *taken = pg_query(place->pg, sql, params, 1, err);

	if (!taken)
		return false;
	*ret_ms = server_ms(taken);
	return text_equal(pg_value(taken, 0, 0), "taken") ||
	       err_set(err, ERR_FATAL, "the shard is not taken but %s", pg_value(taken, 0, 0));
}

static bool measure_take(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_ms, struct err *err)
{
	(void)dimension;
	(void)count;
	return measure_noting(place, NOTED, false, ret_ms, err) && take_shard(place, ret_ms, err);
}

/* Two ticks for each list, as an owner makes them: one that lists and one that ends the window. */
static bool measure_drain(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_rate, struct err *err)
{
	const struct tick list = {.closed = "0", .destinations = "{}", .lists = true};
	const struct tick end = {.closed = "1", .destinations = "{}"};
	int64_t began = clock_us();
	int drained = 0;

	(void)count;
	while (drained < dimension->drained) {
		struct pg_result *rows = run_tick(place, &list, "listed", err);

		if (!rows)
			return false;
		drained += pg_rows(rows) - 1;
		pg_result_destroy(rows);
		rows = run_tick(place, &end, "noted", err);
		pg_result_destroy(rows);
		if (!rows || !bench_goes_on(err))
			return false;
	}
	*ret_rate = drained * 1e6 / (double)(clock_us() - began);
	return true;
}

bool bench_growth_put(
    struct bench *place, const char *query, int64_t count, int64_t rows, struct err *err)
{
	owned_text char *sql = schema_text(query, place->schema);
	owned_text char *counted = xformat("%lld", (long long)count);
	owned_text char *drained = xformat("%lld", (long long)rows);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {counted}, {drained}};

	return pg_execute(place->pg, sql, params, rows ? 3 : 2, err);
}

/*
 * Runs a relay from its start to its first message and a while longer, because it loads parked keys
 * after that. ret_first_ms and ret_peak_mib may be NULL.
 */
static bool start_relay(
    struct bench *place, double *ret_first_ms, double *ret_peak_mib, struct err *err)
{
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	int64_t began = 0, first = 0;
	bool good = bench_empty_table(place, err) && bench_fresh_topic(place, err) &&
		    bench_rewind(place, BENCH_BEGINNING, err) &&
		    bench_fill(place, 0, 1, BENCH_SMALL, false, err) &&
		    (watch = bench_watch_start(place, 1, err)) && (began = clock_us()) &&
		    bench_child_run(place, &child, NULL, err) &&
		    bench_watch_wait(watch, 1, FIRST_MS, err);

	if (good)
		first = bench_watch_seen(watch, 0);
	for (int64_t end = clock_us() + place->options.seconds * 1000000 / 2;
	     ret_peak_mib && good && clock_us() < end; usleep(50000))
		good = bench_goes_on(err);
	bench_child_stop(&child);
	bench_watch_stop(watch);
	if (ret_first_ms)
		*ret_first_ms = (double)(first - began) / 1000;
	if (ret_peak_mib)
		*ret_peak_mib = child.peak_kib / 1024;
	return good;
}

static bool measure_first(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_ms, struct err *err)
{
	(void)dimension;
	(void)count;
	return start_relay(place, ret_ms, NULL, err);
}

static bool measure_peak(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_mib, struct err *err)
{
	(void)dimension;
	(void)count;
	return start_relay(place, NULL, ret_mib, err);
}

/* --- the dimensions -------------------------------------------------------------------------- */

static void list_topics(const struct bench_options *options, struct bench_dimension dimensions[3])
{
	const struct bench_dimension topics = {.grows = "topics known",
	    .turns = (int)options->pairs,
	    .count = options->topics,
	    .put = sql_bench_growth_topics,
	    .unit = "ms",
	    .relation = '<',
	    .bound = 100,
	    .absolute = true};

	dimensions[0] = dimensions[1] = dimensions[2] = topics;
	dimensions[0].name = "take-over";
	dimensions[0].measure = measure_take;
	dimensions[1].name = "tick";
	dimensions[1].measure = measure_tick;
	dimensions[2].name = "tick that folds";
	dimensions[2].measure = measure_fold;
}

/* Long keys have no bound, because their rows are so much larger. */
static void list_drains(const struct bench_options *options, struct bench_dimension dimensions[2])
{
	dimensions[0] = (struct bench_dimension){.name = "due rows listed",
	    .grows = "rows of the far future",
	    .turns = (int)options->pairs,
	    .count = FAR_FUTURE,
	    .put = sql_bench_growth_scheduled,
	    .drained = SHORT_ROWS,
	    .measure = measure_drain,
	    .unit = "rows/s",
	    .relation = '>',
	    .bound = 0.9};

	dimensions[1] = (struct bench_dimension){.name = "parked rows listed",
	    .grows = "bytes of a key",
	    .turns = (int)options->pairs,
	    .count = KEY_BYTES,
	    .put = sql_bench_growth_keys,
	    .drained = LONG_ROWS,
	    .measure = measure_drain,
	    .unit = "rows/s"};
}

static void list_requests(const struct bench_options *options, struct bench_dimension dimensions[3])
{
	static const struct {
		const char *grows;
		bool (*measure)(struct bench *place, const struct bench_dimension *dimension,
		    int64_t count, double *ret_p99, struct err *err);
	} verbs[] = {{"skipped", bench_growth_skip}, {"retried", bench_growth_retry},
	    {"recovered", bench_growth_recover}};

	for (int i = 0; i < 3; i++)
		dimensions[i] = (struct bench_dimension){.name = "p99 of healthy messages",
		    .grows = verbs[i].grows,
		    .measure = verbs[i].measure,
		    .turns = (int)options->runs,
		    .count = options->skipped,
		    .unit = "ms",
		    .relation = '<',
		    .bound = 100,
		    .absolute = true};
}

static void list_parked(
    const struct bench_options *options, int64_t lease_ms, struct bench_dimension dimensions[3])
{
	const struct bench_dimension parked = {.grows = "messages parked",
	    .turns = (int)options->runs,
	    .count = options->skipped,
	    .put = sql_bench_park,
	    .unit = "ms",
	    .relation = '<',
	    .absolute = true};

	dimensions[0] = dimensions[1] = parked;
	dimensions[0].name = "start to first message";
	dimensions[0].measure = measure_first;
	dimensions[0].bound = 2.0 * (double)lease_ms;
	dimensions[1].name = "peak memory";
	dimensions[1].measure = measure_peak;
	dimensions[1].unit = "MiB";
	dimensions[1].bound = 64;
	dimensions[2] = (struct bench_dimension){.name = "messages parked",
	    .grows = "random bytes of a key",
	    .turns = (int)options->runs,
	    .count = KEY_BYTES,
	    .measure = bench_growth_park,
	    .unit = "rows/s"};
}

static bool set_up_dimension(
    struct bench *place, const struct bench_dimension *dimension, int64_t count, struct err *err)
{
	int64_t rows = (int64_t)dimension->turns * dimension->drained;
	double ignored;

	return bench_rewind(place, BENCH_BEGINNING, err) &&
	       (!dimension->put || bench_growth_put(place, dimension->put, count, rows, err)) &&
	       bench_script_alone(place, sql_bench_growth_vacuum, err) &&
	       take_shard(place, &ignored, err);
}

static void print_dimension(struct bench *bench, const struct bench_dimension *dimension,
    double values[2][BENCH_MOST_RUNS], int turns)
{
	char name[80];

	snprintf(name, sizeof name, "%s, %lld %s", dimension->name, (long long)dimension->count,
	    dimension->grows);
	if (dimension->absolute)
		bench_judge_beside(bench, name, dimension->unit, values[1], values[0], turns,
		    dimension->relation, dimension->bound);
	else
		bench_judge_pairs(bench, name, dimension->unit, values[1], values[0], turns,
		    dimension->relation, dimension->bound);
}

/* The schema measured first in a turn is the second in the next turn. */
static bool measure_in_turns(struct bench *bench, const struct bench_dimension *dimension,
    struct bench places[2], struct err *err)
{
	double values[2][BENCH_MOST_RUNS];
	int turns = dimension->turns;

	for (int side = 0; side < 2; side++)
		if (!bench_place_beside(bench, 2 + side, &places[side], err) ||
		    !set_up_dimension(&places[side], dimension, side ? dimension->count : 0, err))
			return false;
	for (int turn = 0; turn < turns; turn++)
		for (int i = 0; i < 2; i++) {
			int side = (turn + i) % 2;

			if (!dimension->measure(&places[side], dimension,
				side ? dimension->count : 0, &values[side][turn], err))
				return false;
		}
	print_dimension(bench, dimension, values, turns);
	return true;
}

static bool measure_open_topics(struct bench *bench, struct err *err)
{
	const struct bench_options *options = &bench->options;

	return bench_growth_open_topics(bench, options->open_topics, 1, err) &&
	       (!options->wide_topics ||
		   bench_growth_open_topics(bench, options->wide_topics, WIDE, err));
}

static bool measure_dimensions(struct bench *bench, struct err *err)
{
	struct bench_dimension dimensions[DIMENSIONS];
	bool good = true;

	list_topics(&bench->options, dimensions);
	list_drains(&bench->options, dimensions + 3);
	list_requests(&bench->options, dimensions + 5);
	list_parked(&bench->options, bench->publisher->lease_ms, dimensions + 8);
	for (int i = 0; good && i < DIMENSIONS; i++) {
		struct bench places[2] = {0};

		good = measure_in_turns(bench, &dimensions[i], places, err);
		for (int side = 0; side < 2; side++)
			/* set before the schema is made, so a half-made one is dropped as well */
			if (places[side].schema[0])
				bench_schema_drop(&places[side]);
	}
	return good;
}

bool bench_growth(struct bench *bench, struct err *err)
{
	bool good = bench_growth_make_topic(bench, err) && measure_dimensions(bench, err);

	bench_growth_drop_topic(bench);
	return good && measure_open_topics(bench, err);
}
