#pragma once
/*
 * Shared by the files of the part lookback: an application that sends prepare and commit, a
 * business that answers, and a relay with the sections for both. The business has a thread of its
 * own.
 */
#include "bench.h"

/* --- bench_talk.c: the application ----------------------------------------------------------- */

#define BENCH_LINGER "5" /* ms, of its producer */
/* bench's topic is the one with prepares and decisions. All of it outlives the talk. */
struct bench_talk;
struct bench_talk *bench_talk_create(
    struct bench *bench, const char *business_topic, struct err *err);
void bench_talk_destroy(struct bench_talk *talk); /* NULL is fine */
/* In JSON. Of an id, which is that number, and of a message with its payload (bench_payload). */
bool bench_talk_prepare(struct bench_talk *talk, int64_t number, struct err *err) MUST_CHECK;
bool bench_talk_commit(struct bench_talk *talk, int64_t number, struct err *err) MUST_CHECK;
/* From now on, when the commit of a number is seen to be acknowledged, the clock is put there, by
 * number; NULL: no more. */
void bench_talk_note(struct bench_talk *talk, int64_t *acked_us);
/* Takes what the broker acknowledged; waits so long for more of it at most. */
bool bench_talk_step(struct bench_talk *talk, int wait_ms, struct err *err) MUST_CHECK;
/* Until all is acknowledged. */
bool bench_talk_flush(struct bench_talk *talk, struct err *err) MUST_CHECK;

/* --- bench_lookback.c: the relay ------------------------------------------------------------- */

#define BENCH_PAIR "pair"       /* the biz_type of what the application says */
#define BENCH_OVERDUE "overdue" /* of what is asked about */

struct bench_lookback {
	struct bench *bench;
	struct bench
	    source; /* bench with the topic of prepares and decisions in place of its own */
	struct bench_talk *talk;
	int readers; /* in the relay's section */
};

/* Nobody is asked unless there is a business. */
struct bench_asks {
	const struct bench_business *business;
	bool grpc;
	int batch;
};

/* An empty topic of prepares and decisions, and an application that speaks to it. */
bool bench_lookback_fresh(struct bench_lookback *look, struct err *err) MUST_CHECK;
/* Empty tables and an empty business topic, in the place; the publisher begins anew. */
bool bench_lookback_empty(struct bench *place, struct err *err) MUST_CHECK;
/* The relay of a place, with both sections. asks NULL: nobody. */
bool bench_lookback_run(struct bench_lookback *look, struct bench *place,
    const struct bench_asks *asks, struct bench_child *child, struct err *err) MUST_CHECK;
/* An integer that a query of sql/queries brings in its only row, or false. */
bool bench_lookback_ask(struct bench *place, const char *sql, const struct pg_param *params,
    int count, int64_t *ret_value, struct err *err) MUST_CHECK;

/* --- bench_lookback_latency.c, bench_lookback_checks.c --------------------------------------- */

bool bench_lookback_latency(struct bench_lookback *look, struct err *err) MUST_CHECK;
bool bench_lookback_checks(struct bench_lookback *look, struct err *err) MUST_CHECK;
