#include "bench.h"

#include <stdlib.h>
#include "sql_bench.h"
#include "text.h"

enum { MOST_SESSIONS = 64 };

const struct bench_hold bench_hold_writers[] = {{sql_bench_hold_writer, BENCH_WRITERS}, {0}};
const struct bench_hold bench_hold_reader[] = {
    {sql_bench_hold_snapshot, 1}, {sql_bench_hold_writer, 1}, {0}};
const struct bench_hold bench_hold_bell[] = {{sql_bench_hold_bell, 1}, {0}};

struct bench_held {
	struct pg *sessions[MOST_SESSIONS];
	int count;
};

static bool open_held_sessions(
    struct bench_held *held, struct bench *bench, const struct bench_hold *hold, struct err *err)
{
	struct bench place = *bench;

	for (int i = 0; i < hold->sessions && held->count < MOST_SESSIONS; i++) {
		/* a session of its own: it is in a transaction as long as the measurement */
		place.pg = bench_connect(bench->postgres, err);
		if (!place.pg)
			return false;
		held->sessions[held->count++] = place.pg;
		if (!bench_goes_on(err) || !bench_script(&place, hold->sql, err))
			return false;
	}
	return true;
}

struct bench_held *bench_hold(struct bench *bench, const struct bench_hold *holds, struct err *err)
{
	struct bench_held *held = xcalloc(1, sizeof *held);
	struct err ignored;

	for (; holds && holds->sql; holds++)
		if (!open_held_sessions(held, bench, holds, err)) {
			(void)!bench_release(held, &ignored);
			return NULL;
		}
	return held;
}

bool bench_release(struct bench_held *held, struct err *err)
{
	bool good = true;

	if (!held)
		return true;
	for (int i = 0; i < held->count; i++) {
		/* fails if the server has ended the session meanwhile */
		if (good && !pg_script(held->sessions[i], "rollback", err))
			good = err_prefix(err, "a transaction was not left open");
		pg_destroy(held->sessions[i]);
	}
	free(held);
	return good;
}
