#pragma once
/*
 * Shared by the files of the part lookback: an application that sends prepare and commit, a
 * business that answers, and a relay with the sections for both. The business has its own thread.
 */
#include "bench.h"

/* --- bench_talk.c: the application ----------------------------------------------------------- */

#define BENCH_LINGER "5" /* ms, for its producer */
/* The topic of `bench` has the prepares and decisions. `bench` must outlive the talk. */
struct bench_talk;
struct bench_talk *bench_talk_create(
    struct bench *bench, const char *business_topic, struct err *err);
void bench_talk_destroy(struct bench_talk *talk); /* NULL is fine */
/* Sends JSON records. The id is the number, and the message has the number's payload
 * (bench_payload). */
bool bench_talk_prepare(struct bench_talk *talk, int64_t number, struct err *err) MUST_CHECK;
bool bench_talk_commit(struct bench_talk *talk, int64_t number, struct err *err) MUST_CHECK;
/* From now on stores, by number, the time when the acknowledgement of its commit arrives; NULL:
 * stops. */
void bench_talk_note(struct bench_talk *talk, int64_t *acked_us);
/* Takes the acknowledgements of the broker; waits for more up to the given time. */
bool bench_talk_step(struct bench_talk *talk, int wait_ms, struct err *err) MUST_CHECK;
/* Waits until all records are acknowledged. */
bool bench_talk_flush(struct bench_talk *talk, struct err *err) MUST_CHECK;

/* --- bench_lookback.c: the relay ------------------------------------------------------------- */

#define BENCH_PAIR "pair"       /* biz_type of the application's pairs */
#define BENCH_OVERDUE "overdue" /* biz_type of prepares that the relay asks about */

struct bench_lookback {
	struct bench *bench;
	struct bench
	    source; /* bench, but with the topic of prepares and decisions in place of its own */
	struct bench_talk *talk;
	int readers; /* in the relay's section */
};

/* Without a business the relay asks nobody. */
struct bench_asks {
	const struct bench_business *business;
	bool grpc;
	int batch;
};

/* Makes an empty topic of prepares and decisions, and an application that sends to it. */
bool bench_lookback_fresh(struct bench_lookback *look, struct err *err) MUST_CHECK;
/* Empties the tables and the business topic of the place; the publisher begins again. */
bool bench_lookback_empty(struct bench *place, struct err *err) MUST_CHECK;
/* Starts the relay of a place, with both sections. asks NULL: it asks nobody. */
bool bench_lookback_run(struct bench_lookback *look, struct bench *place,
    const struct bench_asks *asks, struct bench_child *child, struct err *err) MUST_CHECK;
/* Reads the integer in the only row of a query of sql/queries. */
bool bench_lookback_ask(struct bench *place, const char *sql, const struct pg_param *params,
    int count, int64_t *ret_value, struct err *err) MUST_CHECK;

/* --- bench_lookback_latency.c, bench_lookback_checks.c --------------------------------------- */

bool bench_lookback_latency(struct bench_lookback *look, struct err *err) MUST_CHECK;
bool bench_lookback_checks(struct bench_lookback *look, struct err *err) MUST_CHECK;
