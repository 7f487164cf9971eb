/*
 * table, held: the drain with an obstacle, in turns with the same drain without it, and the cost of
 * a search that finds nothing. An obstacle is a row of list_loads; each gets its own schema, with
 * the same rows to drain behind it.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum { MOST_LOADS = 8, FEW_PARTITIONS = 4, MANY_PARTITIONS = 12 };

struct load {
	const char *where, *what; /* "behind", "published rows" */
	int64_t count;
	int64_t published; /* how many rows of the count come in front */
	int partitions;    /* partitions of the message table, with the default one */
	/* queries with the parameters publisher and count: one inserts it, one counts how much of
	 * it is left */
	const char *put, *counted;
	const struct bench_hold *holds; /* sessions that exist during the measurement */
	bool lists;                     /* a search may list due rows */
	double most; /* maximum ratio of the cost of a search with it to one without */
};

/* The first row is the baseline of the others. */
static int list_loads(const struct bench_options *options, struct load loads[MOST_LOADS])
{
	const struct load list[] = {
	    {.where = "beside", .what = "nothing", .partitions = FEW_PARTITIONS},
	    {.where = "behind",
		.what = "published rows",
		.count = options->published,
		.published = options->published,
		.partitions = FEW_PARTITIONS,
		.most = 1.5},
	    {.where = "beside",
		.what = "parked messages",
		.count = options->parked,
		.partitions = FEW_PARTITIONS,
		.put = sql_bench_park,
		.counted = sql_bench_parked,
		.lists = true,
		.most = 1.5},
	    {.where = "beside",
		.what = "scheduled messages",
		.count = options->scheduled,
		.partitions = FEW_PARTITIONS,
		.put = sql_bench_schedule,
		.counted = sql_bench_scheduled,
		.lists = true,
		.most = 1.5},
	    {.where = "beside",
		.what = "open transactions",
		.count = BENCH_WRITERS,
		.holds = bench_hold_writers,
		.most = 1.5},
	    {.where = "in",
		.what = "partitions, not 4",
		.count = MANY_PARTITIONS,
		.partitions = MANY_PARTITIONS,
		.most = 3},
	};

	memcpy(loads, list, sizeof list);
	return sizeof list / sizeof *list;
}

/* --- obstacles ------------------------------------------------------------------------------ */

struct obstacle {
	struct load load;
	struct bench place; /* schema "": the first one's */
	char *snapshot;     /* taken after the obstacle was inserted */
};

static bool put_obstacle(struct obstacle *obstacle, struct err *err)
{
	struct bench *place = &obstacle->place;
	owned_text char *sql =
	    obstacle->load.put ? schema_text(obstacle->load.put, place->schema) : NULL;
	owned_text char *count = xformat("%lld", (long long)obstacle->load.count);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {count}};

	return (!sql || pg_execute(place->pg, sql, params, 2, err)) &&
	       bench_fill(place, 0, obstacle->load.published, BENCH_SMALL, false, err);
}

/* Checks that the relay has not removed the obstacle. */
static bool is_obstacle_there(struct obstacle *obstacle, struct err *err)
{
	OWNED(owned_pg_result_destroy) struct pg_result *count = NULL;
	owned_text char *sql = NULL;

	/* published rows and sessions cannot be removed by the relay */
	if (!obstacle->load.counted)
		return true;
	sql = schema_text(obstacle->load.counted, obstacle->place.schema);
	count = pg_query(obstacle->place.pg, sql, NULL, 0, err);
	if (!count)
		return false;
	return pg_int(count, 0, 0) == obstacle->load.count ||
	       err_set(err, ERR_FATAL, "of %lld %s only %lld were left",
		   (long long)obstacle->load.count, obstacle->load.what,
		   (long long)pg_int(count, 0, 0));
}

static bool set_up_obstacle(
    struct bench *bench, struct obstacle *obstacle, int number, int64_t rows, struct err *err)
{
	struct bench *place = &obstacle->place;

	return bench_place_beside(bench, number, place, err) &&
	       bench_partition(place, obstacle->load.partitions, err) &&
	       put_obstacle(obstacle, err) && (obstacle->snapshot = bench_snapshot(place, err)) &&
	       bench_fill(place, obstacle->load.published, rows, BENCH_SMALL, false, err) &&
	       bench_settle(place, err);
}

/* An obstacle that consists of sessions alone uses the rows of the first one. */
static struct obstacle *owner_of_rows(struct obstacle *obstacles, int which)
{
	return &obstacles[obstacles[which].load.partitions ? which : 0];
}

static bool set_up_all(
    struct bench *bench, struct obstacle *obstacles, int count, int64_t rows, struct err *err)
{
	for (int i = 0; i < count; i++)
		/* sessions alone need no rows of their own */
		if (owner_of_rows(obstacles, i) == &obstacles[i] &&
		    !set_up_obstacle(bench, &obstacles[i], i + 2, rows, err))
			return false;
	return true;
}

static void drop_all(struct obstacle *obstacles, int count)
{
	for (int i = 0; i < count; i++) {
		if (obstacles[i].place.schema[0])
			bench_schema_drop(&obstacles[i].place);
		free(obstacles[i].snapshot);
	}
}

/* --- the drain ------------------------------------------------------------------------------- */

static void write_load_name(const struct load *load, const char *measured, char name[80])
{
	snprintf(
	    name, 80, "%s %s %lld %s", measured, load->where, (long long)load->count, load->what);
}

static bool drain_all(
    struct bench *bench, struct obstacle *obstacles, int count, int64_t rows, struct err *err)
{
	int runs = (int)bench->options.turns;
	struct bench_way ways[MOST_LOADS];
	char name[80];

	for (int i = 0; i < count; i++) {
		struct obstacle *rows_of = owner_of_rows(obstacles, i);

		ways[i] = bench_way(&rows_of->place, obstacles[i].load.what);
		ways[i].snapshot = rows_of->snapshot;
		ways[i].holds = obstacles[i].load.holds;
	}
	if (!bench_turns(ways, count, runs, rows, err))
		return false;
	for (int i = 1; i < count; i++) {
		/* an obstacle that the relay has worked off would not have been in the way */
		if (!is_obstacle_there(&obstacles[i], err))
			return false;
		write_load_name(&obstacles[i].load, "drain", name);
		bench_judge_pairs(
		    bench, name, "rows/s", ways[i].rates, ways[0].rates, runs, '>', 0.95);
	}
	return true;
}

/* --- looks ----------------------------------------------------------------------------------- */

struct side {
	struct bench *place;
	const struct bench_hold *holds;
};

static bool look_once(const struct side *side, bool lists, double *ret_us, struct err *err)
{
	struct bench_held *held = bench_hold(side->place, side->holds, err);
	struct err ignored;
	bool good = held && bench_look(side->place, lists, ret_us, err);

	return bench_release(held, good ? err : &ignored) && good;
}

static bool look_in_pairs(
    struct bench *bench, struct obstacle *obstacles, int which, bool lists, struct err *err)
{
	const struct load *load = &obstacles[which].load;
	const struct side sides[] = {{.place = &obstacles[0].place},
	    {.place = &owner_of_rows(obstacles, which)->place, .holds = load->holds}};
	double us[2][BENCH_MOST_RUNS];
	int pairs = (int)bench->options.turns;
	char name[80];

	for (int pair = 0; pair < pairs; pair++)
		for (int turn = 0; turn < 2; turn++) {
			int side = (pair + turn) % 2;

			if (!look_once(&sides[side], lists, &us[side][pair], err))
				return false;
		}
	write_load_name(load, lists ? "look for what is due" : "empty look", name);
	bench_judge_pairs(bench, name, "us", us[1], us[0], pairs, '<', load->most);
	return true;
}

static bool look_at_all(struct bench *bench, struct obstacle *obstacles, int count, struct err *err)
{
	for (int i = 1; i < count; i++)
		if (!look_in_pairs(bench, obstacles, i, false, err) ||
		    (obstacles[i].load.lists && !look_in_pairs(bench, obstacles, i, true, err)))
			return false;
	return true;
}

bool bench_table(struct bench *bench, struct err *err)
{
	int64_t rows = bench_short_rows(bench);
	struct obstacle obstacles[MOST_LOADS] = {0};
	struct load loads[MOST_LOADS];
	int count = list_loads(&bench->options, loads);
	bool good;

	for (int i = 0; i < count; i++)
		obstacles[i].load = loads[i];
	good = set_up_all(bench, obstacles, count, rows, err) &&
	       drain_all(bench, obstacles, count, rows, err) &&
	       look_at_all(bench, obstacles, count, err);
	drop_all(obstacles, count);
	return good;
}

/* --- held ------------------------------------------------------------------------------------ */

/*
 * The rows are written again for each run, because in such a snapshot only newer rows are in doubt.
 */
bool bench_held(struct bench *bench, struct err *err)
{
	int64_t rows = bench_short_rows(bench);
	int runs = (int)bench->options.runs;
	struct bench_way ways[] = {bench_way(bench, "without"), bench_way(bench, "held")};

	ways[0].writes = ways[1].writes = true;
	ways[1].holds = bench_hold_reader;
	if (!bench_turns(ways, 2, runs, rows, err))
		return false;
	bench_judge_pairs(bench, "drain beside a held snapshot and an open write", "rows/s",
	    ways[1].rates, ways[0].rates, runs, '>', 0.95);
	bench_tell_ratio(bench, "CPU of it, a million rows", "s",
	    bench_way_cpu(&ways[1], runs, rows), bench_way_cpu(&ways[0], runs, rows));
	return true;
}
