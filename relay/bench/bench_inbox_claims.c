/*
 * The part inbox with servers: handlers of 5 ms whose ids are claimed, or whose messages are
 * reported as done, in turns with the same handlers without that. Redis and PostgreSQL are measured
 * if the options name them.
 */
#include "bench_inbox.h"

#include <stdlib.h>
#include <unistd.h>
#include "cleanup.h"
#include "text.h"

enum { SECONDS = 5, KINDS = 2 };

/* Kinds of `consume`, and how many messages are handled at once: as many as an inbox handles by
 * default, and so many that the server is the limit, which has no bound. */
static const struct {
	const char *kind;
	int at_once;
	char relation;
} slow_kinds[KINDS] = {{"slow-16", 16, '>'}, {"slow", BENCH_SLOW_AT_ONCE, 0}};

/* Work of an inbox in addition to its handlers. */
struct beside {
	const char *name, *option, *line;
	double bound; /* least rate, compared with the handlers alone */
};

/* beside NULL: nothing. */
static bool consume_beside(struct bench *bench, const char *kind, const struct beside *beside,
    int64_t count, double *ret_rate, struct err *err)
{
	owned_text char *messages = xformat("%lld", (long long)count);
	const char *const arguments[] = {"consume", kind, "--topic", bench->topic, "--messages",
	    messages, beside ? beside->option : NULL, beside ? beside->line : NULL, NULL};
	struct bench_child child = {0};
	struct rusage usage;
	double span_us;

	if (!bench_child_tells(bench, &child, arguments, &usage, &span_us, err))
		return false;
	*ret_rate = (double)count * 1e6 / span_us;
	bench_say("%s%s%s: %.0f messages/s, CPU %.2f s", kind, beside ? ", " : "",
	    beside ? beside->name : "", *ret_rate, bench_cpu_of_usage(&usage));
	return true;
}

static bool measure_kind(
    struct bench *bench, int number, const struct beside *beside, struct err *err)
{
	const char *kind = slow_kinds[number].kind;
	double with[BENCH_MOST_RUNS], without[BENCH_MOST_RUNS];
	int64_t possible = SECONDS * slow_kinds[number].at_once * 1000000LL / BENCH_SLOW_US;
	int64_t all = bench->options.messages, count = possible < all ? possible : all;
	int runs = (int)bench->options.runs;
	owned_text char *name =
	    xformat("handlers of 5 ms, %d at once, %s", slow_kinds[number].at_once, beside->name);

	for (int run = 0; run < runs; run++)
		if (!consume_beside(bench, kind, NULL, count, &without[run], err) ||
		    !consume_beside(bench, kind, beside, count, &with[run], err))
			return false;
	bench_judge_pairs(bench, name, "messages/s", with, without, runs,
	    slow_kinds[number].relation, beside->bound);
	return true;
}

static bool measure_beside(struct bench *bench, const struct beside *beside, struct err *err)
{
	for (int i = 0; i < KINDS; i++)
		if (!measure_kind(bench, i, beside, err))
			return false;
	return true;
}

static bool measure_redis(struct bench *bench, struct err *err)
{
	owned_text char *claims =
	    xformat("redis url=%s name=b%d lease=30s", bench->options.redis, (int)getpid());
	return measure_beside(
	    bench, &(struct beside){"with claims in Redis", "--claims", claims, 0.5}, err);
}

static bool measure_postgres(struct bench *bench, struct err *err)
{
	const struct postgres_settings postgres = {.dsn = (char *)bench->options.dsn};
	struct bench here = *bench, schema = *bench;

	here.postgres = &postgres;
	OWNED(owned_pg_destroy) struct pg *pg = here.pg = bench_connect(&postgres, err);
	bool good = pg && bench_place_beside(&here, 2, &schema, err);
	if (good) {
		owned_text char *claims =
		    xformat("postgres dsn=\"%s\" schema=%s name=bench lease=30s", postgres.dsn,
			schema.schema);
		owned_text char *report =
		    xformat("postgres dsn=\"%s\" schema=%s", postgres.dsn, schema.schema);
		good =
		    measure_beside(bench,
			&(struct beside){"with claims in PostgreSQL", "--claims", claims, 0.5},
			err) &&
		    measure_beside(bench,
			&(struct beside){"reported to PostgreSQL", "--report", report, 0.9}, err);
	}
	/* the schema may exist even if making it has failed half way */
	if (pg)
		bench_schema_drop(&schema);
	return good;
}

bool bench_inbox_claims(struct bench *bench, struct err *err)
{
	if (!bench->options.redis)
		bench_say("claims in Redis are not measured: name a server with --redis");
	else if (!measure_redis(bench, err))
		return false;

	if (!bench->options.dsn)
		bench_say("claims in PostgreSQL, and reports, are not measured: name a database "
			  "with --dsn");
	else if (!measure_postgres(bench, err))
		return false;
	return true;
}
