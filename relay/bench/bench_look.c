/*
 * The cost of a search for new rows that finds none, after another transaction has changed the
 * database: the relay's own statement, prepared as in the relay, in a session of the bench. The
 * publisher is behind all rows of the table, like an owner that has published everything.
 */
#include "bench.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include "clock.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "sql_files.h"
#include "text.h"

enum { LOOKS = 5000, FEWEST = 20, ENOUGH_US = 300000, LONGEST_MS = 30000 };
#define LOOK "bench_look"

static bool receive_look_result(struct pg *pg, struct pg_result **ret_result, struct err *err)
{
	bool done = false;

	while (!done) {
		struct pollfd fd = {.fd = pg_fd(pg), .events = pg_events(pg)};

		if (poll(&fd, 1, LONGEST_MS) == 0)
			return err_set(
			    err, ERR_RETRY, "a look took longer than %d s", LONGEST_MS / 1000);
		if (!bench_goes_on(err) || !pg_step(pg, err) ||
		    !pg_receive(pg, &done, ret_result, err))
			return false;
	}
	return true;
}

static bool prepare_look(struct bench *place, struct pg *pg, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_look, place->schema);
	OWNED(owned_pg_result_destroy) struct pg_result *none = NULL;

	return pg_send_prepare(pg, LOOK, sql, err) && receive_look_result(pg, &none, err);
}

/* A long search writes a log row, as in the relay, and the next search continues from it. */
static bool look_timed(struct pg *pg, bool lists, int64_t *n, double *ret_us, struct err *err)
{
	owned_text char *number = xformat("%lld", (long long)*n);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {number}, {lists ? "t" : "f"}};
	OWNED(owned_pg_result_destroy) struct pg_result *answer = NULL;
	int64_t began = clock_us();

	if (!pg_send_prepared(pg, LOOK, params, 3, err) || !receive_look_result(pg, &answer, err))
		return false;
	*ret_us = (double)(clock_us() - began);

	const char *verdict = pg_rows(answer) == 1 ? pg_value(answer, 0, 0) : "rows that are there";

	/* the tick has written a log row: the next one must name the number behind it */
	if (text_equal(verdict, "rows"))
		++*n;
	else if (!text_equal(verdict, "idle"))
		return err_set(err, ERR_FATAL, "a look that was to find nothing said: %s", verdict);
	return true;
}

/* Puts the publisher behind all rows, at rest. */
static bool rest_behind_rows(struct bench *place, int64_t *ret_n, struct err *err)
{
	owned_text char *sql = schema_text(sql_newest, place->schema);
	owned_text char *snapshot = bench_snapshot(place, err);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {"0"}};
	OWNED(owned_pg_result_destroy) struct pg_result *newest = NULL;

	if (!snapshot || !bench_rewind(place, snapshot, err) ||
	    !(newest = pg_query(place->pg, sql, params, 2, err)))
		return false;
	*ret_n = pg_int(newest, 0, 0);
	return true;
}

bool bench_look(struct bench *place, bool lists, double *ret_us, struct err *err)
{
	OWNED(owned_pg_destroy) struct pg *pg = bench_connect(place->postgres, err);
	double spans[LOOKS];
	int64_t n, began;
	int looks = 0;

	if (!pg || !rest_behind_rows(place, &n, err) || !prepare_look(place, pg, err))
		return false;
	began = clock_us();
	/* slow looks get enough samples for a median, and fast ones end in time */
	while (looks < FEWEST || (looks < LOOKS && clock_us() < began + ENOUGH_US))
		if (!look_timed(pg, lists, &n, &spans[looks++], err))
			return false;
	*ret_us = bench_median(spans, looks);
	return true;
}
