/*
 * The store postgres: ids taken in transactions, compared with the bare insert of the same ids into
 * a table with a unique index, in its own schema.
 */
#include "bench_dedup.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "dedup.h"
#include "pg_column.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "sql_files.h"
#include "text.h"

static const int batch_sizes[] = {1, 10, 100, 1000};
enum { BATCHES = sizeof batch_sizes / sizeof *batch_sizes, RUN_US = 1000000 };

struct taker {
	struct bench *place;
	struct pg_column ids, times;
	int64_t next; /* the next unused id */
};

static void name_taken_ids(struct taker *taker, int count)
{
	int64_t now_us = clock_wall_us();
	pg_column_clear(&taker->ids);
	pg_column_clear(&taker->times);
	for (int i = 0; i < count; i++) {
		char id[37];
		unsigned long long number = (unsigned long long)taker->next++;
		snprintf(id, sizeof id, "%08llx-d9cb-469f-a165-%012llx",
		    (unsigned long long)(uint32_t)(number * 2654435761U), number);
		pg_column_add_bytes(&taker->ids, id, strlen(id));
		pg_column_add_time(&taker->times, now_us);
	}
}

/* Repeats a transaction of one statement; returns ids per second. */
static bool measure_statement(struct taker *taker, const char *sql, int params_count, int batch,
    double *ret_rate, struct err *err)
{
	owned_text char *text = schema_text(sql, taker->place->schema);
	int64_t begin = clock_us(), count = 0;

	while (clock_us() - begin < RUN_US) {
		name_taken_ids(taker, batch);
		const struct pg_param params[] = {{"bench"}, pg_column_param(&taker->ids),
		    pg_column_param(&taker->times), {"86400000"}};
		if (!bench_goes_on(err) ||
		    !pg_execute(taker->place->pg, text, params, params_count, err))
			return false;
		count += batch;
	}
	*ret_rate = (double)count * 1e6 / (double)(clock_us() - begin);
	return true;
}

static bool measure_batch(struct taker *taker, int batch, struct err *err)
{
	struct bench *bench = taker->place;
	double taken[BENCH_MOST_RUNS], inserted[BENCH_MOST_RUNS];
	int runs = (int)bench->options.runs;
	char name[80];

	for (int i = 0; i < runs; i++)
		if (!measure_statement(
			taker, sql_bench_processed_insert, 3, batch, &inserted[i], err) ||
		    !measure_statement(taker, sql_processed_take, 4, batch, &taken[i], err))
			return false;
	snprintf(name, sizeof name, "postgres: %d taken in a transaction, beside an insert", batch);
	bench_judge_pairs(bench, name, "ids/s", taken, inserted, runs, '>', 0.2);
	return true;
}

static bool measure_all(struct bench *place, struct err *err)
{
	struct taker taker = {
	    .place = place, .ids.type = PG_COLUMN_BYTEA, .times.type = PG_COLUMN_TIMESTAMPTZ};
	bool good = bench_script(place, sql_bench_processed_objects, err);
	for (int i = 0; good && i < BATCHES; i++)
		good = measure_batch(&taker, batch_sizes[i], err);
	pg_column_finish(&taker.ids);
	pg_column_finish(&taker.times);
	return good;
}

bool bench_dedup_postgres(struct bench *bench, struct err *err)
{
	/* --dsn alone names the database: that of the configuration may be another one, or none */
	const struct postgres_settings postgres = {.dsn = (char *)bench->options.dsn};
	struct bench here = *bench, place = *bench;

	if (!bench->options.dsn) {
		bench_say("postgres is not measured: name a database with --dsn");
		return true;
	}
	here.postgres = &postgres;
	OWNED(owned_pg_destroy) struct pg *pg = here.pg = bench_connect(&postgres, err);
	bool good = pg && bench_place_beside(&here, 2, &place, err) && measure_all(&place, err);
	/* place has the schema from here on, even if making it has failed half way */
	if (pg)
		bench_schema_drop(&place);

	/* figures were added to the copy, and the array may have moved */
	bench->figures = place.figures;
	bench->figure_count = place.figure_count;
	return good;
}
