#pragma once
/*
 * The dimensions of the part growth. bench_growth.c lists them and has the ones that need only a
 * database; bench_growth_relay.c has the ones that need a relay and topics.
 */
#include "bench.h"

struct bench_dimension {
	const char *name;  /* name of the figure */
	const char *grows; /* "topics known" */
	int64_t count;     /* the count of it */
	/* The query that inserts it, with the parameters publisher, count and, where rows are
	 * listed, their number. NULL: `measure` inserts it. */
	const char *put;
	int drained; /* rows listed in a turn */
	int turns;
	bool (*measure)(struct bench *place, const struct bench_dimension *dimension, int64_t count,
	    double *ret_value, struct err *err); /* with the count, or with 0 */
	const char *unit;
	char relation;
	double bound;
	bool absolute; /* the bound is for the value, not for the ratio */
};

/* Runs an inserting query with the parameters publisher, count and, unless it is 0, number of rows.
 */
bool bench_growth_put(struct bench *place, const char *query, int64_t count, int64_t rows,
    struct err *err) MUST_CHECK;

/* --- bench_growth_relay.c -------------------------------------------------------------------- */

enum { BENCH_REFUSED_ROWS = 2000 /* parked by bench_growth_park */ };

/* The topic of parked messages; it refuses records of more than 20,000 bytes. */
bool bench_growth_make_topic(struct bench *bench, struct err *err) MUST_CHECK;
void bench_growth_drop_topic(struct bench *bench);

/* The p99 of other messages while the relay skips, retries or recovers `count` parked ones. */
bool bench_growth_skip(struct bench *place, const struct bench_dimension *dimension, int64_t count,
    double *ret_p99, struct err *err) MUST_CHECK;
bool bench_growth_retry(struct bench *place, const struct bench_dimension *dimension, int64_t count,
    double *ret_p99, struct err *err) MUST_CHECK;
bool bench_growth_recover(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_p99, struct err *err) MUST_CHECK;
/* Messages that the relay parks per second; count: random bytes of their keys, 0: 16. */
bool bench_growth_park(struct bench *place, const struct bench_dimension *dimension, int64_t count,
    double *ret_rate, struct err *err) MUST_CHECK;
/*
 * Peak memory of a relay that takes over from one that published to that many topics, and publishes
 * to each partition; minus the memory of a bare producer that does so. Judged.
 */
bool bench_growth_open_topics(
    struct bench *bench, int64_t topics, int partitions, struct err *err) MUST_CHECK;
