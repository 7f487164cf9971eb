/*
 * The kinds of `growth` that need a running relay: parked messages that are skipped, retried or
 * recovered while other messages are measured, parking itself, and many topics in use.
 */
#include "bench_growth.h"

#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum {
	HEALTHY_RATE = 1000, /* messages a second while the relay works with parked ones */
	SHORT_KEY = 16,      /* bytes */
	ANSWER_MS = 10000,   /* timeout of the cluster */
	LONG_MS = 300000,    /* timeout until all messages are parked or published */
	LOOK_US = 20000
};

/* --- the topic of parked messages ------------------------------------------------------------ */

static char *parked_topic(const struct bench *bench)
{
	return xformat("%s-parked", bench->topic);
}

bool bench_growth_make_topic(struct bench *bench, struct err *err)
{
	const struct topic_setting most[] = {{(char *)"max.message.bytes", (char *)"20000"}};
	owned_text char *topic = parked_topic(bench);

	return topic_metadata_create_topic(
	    bench->metadata, topic, BENCH_PARTITIONS, -1, most, 1, ANSWER_MS, err);
}

void bench_growth_drop_topic(struct bench *bench)
{
	owned_text char *topic = parked_topic(bench);
	struct err err;

	/* ERR_REJECT: the topic is gone, or was never made */
	if (!topic_metadata_delete_topic(bench->metadata, topic, ANSWER_MS, &err) &&
	    err.kind != ERR_REJECT)
		bench_say("topic %s stays behind: %s", topic, err.message);
}

/* --- other messages meanwhile ---------------------------------------------------------------- */

static bool count_queried_rows(
    struct bench *place, const char *query, int64_t *ret_rows, struct err *err)
{
	owned_text char *sql = schema_text(query, place->schema);
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = pg_query(place->pg, sql, NULL, 0, err);

	if (rows)
		*ret_rows = pg_int(rows, 0, 0);
	return rows;
}

/* stalled: their topic was missing. */
static bool park_bench_rows(struct bench *place, int64_t count, bool stalled, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_growth_parked, place->schema);
	owned_text char *topic = parked_topic(place), *counted = xformat("%lld", (long long)count);
	const struct pg_param params[] = {
	    {BENCH_PUBLISHER}, {counted}, {topic}, {stalled ? "stalled" : "dead"}};

	return bench_script(place, sql_bench_growth_unpark, err) &&
	       pg_execute(place->pg, sql, params, 4, err) &&
	       bench_script_alone(place, sql_bench_growth_vacuum, err);
}

static bool request_for_parked(struct bench *place, const char *verb, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_growth_request, place->schema);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {verb}};

	return pg_execute(place->pg, sql, params, 2, err);
}

/* Fails if the relay did nothing: the latency would say nothing about the work. */
static bool check_work(struct bench *place, int64_t before, struct err *err)
{
	int64_t left;

	if (!count_queried_rows(place, sql_bench_parked, &left, err))
		return false;
	bench_say("%lld of %lld parked messages left the table meanwhile",
	    (long long)(before - left), (long long)before);
	return left < before || err_set(err, ERR_FATAL, "no parked message left the table");
}

/* The work exists when the relay starts, and others write meanwhile. verb NULL: a recovery. */
static bool measure_others(
    struct bench *place, int64_t count, const char *verb, double *ret_p99, struct err *err)
{
	struct bench_latency latency;

	if (!park_bench_rows(place, count, !verb, err) ||
	    (count && verb && !request_for_parked(place, verb, err)) ||
	    !bench_latency_of_relay(place, HEALTHY_RATE, &latency, err))
		return false;
	*ret_p99 = latency.p99;
	return !count || check_work(place, count, err);
}

bool bench_growth_skip(struct bench *place, const struct bench_dimension *dimension, int64_t count,
    double *ret_p99, struct err *err)
{
	(void)dimension;
	return measure_others(place, count, "skip", ret_p99, err);
}

bool bench_growth_retry(struct bench *place, const struct bench_dimension *dimension, int64_t count,
    double *ret_p99, struct err *err)
{
	(void)dimension;
	return measure_others(place, count, "retry", ret_p99, err);
}

bool bench_growth_recover(struct bench *place, const struct bench_dimension *dimension,
    int64_t count, double *ret_p99, struct err *err)
{
	(void)dimension;
	return measure_others(place, count, NULL, ret_p99, err);
}

/* --- parking --------------------------------------------------------------------------------- */

static bool wait_until_parked(struct bench *place, int64_t count, struct err *err)
{
	int64_t parked = 0;

	for (int64_t end = clock_ms() + LONG_MS; bench_goes_on(err); usleep(LOOK_US)) {
		if (!count_queried_rows(place, sql_bench_parked, &parked, err))
			return false;
		if (parked >= count)
			return true;
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY, "%lld of %lld messages are parked",
			    (long long)parked, (long long)count);
	}
	return false;
}

/* Kafka refuses the first messages of some keys; the others are parked behind them. */
bool bench_growth_park(struct bench *place, const struct bench_dimension *dimension, int64_t count,
    double *ret_rate, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_growth_refused, place->schema);
	owned_text char *topic = parked_topic(place);
	owned_text char *bytes = xformat("%lld", (long long)(count ? count : SHORT_KEY));
	owned_text char *rows = xformat("%d", BENCH_REFUSED_ROWS);
	const struct pg_param params[] = {{topic}, {bytes}, {rows}};
	struct bench_child child = {0};
	int64_t began = 0;
	bool good = bench_empty_table(place, err) &&
		    bench_script(place, sql_bench_growth_unpark, err) &&
		    bench_rewind(place, BENCH_BEGINNING, err) &&
		    pg_execute(place->pg, sql, params, 3, err) && (began = clock_us()) &&
		    bench_child_run(place, &child, NULL, err) &&
		    wait_until_parked(place, BENCH_REFUSED_ROWS, err);

	(void)dimension;
	*ret_rate = BENCH_REFUSED_ROWS * 1e6 / (double)(clock_us() - began);
	bench_child_stop(&child);
	return good;
}

/* --- topics in use --------------------------------------------------------------------------- */

static char *open_topic_name(const struct bench *bench, int64_t number)
{
	return xformat("%s-%lld", bench->topic, (long long)number);
}

static bool make_topics(
    struct bench *bench, int64_t topics, int partitions, int64_t *ret_made, struct err *err)
{
	for (*ret_made = 0; *ret_made < topics; ++*ret_made) {
		owned_text char *topic = open_topic_name(bench, *ret_made);

		if (!bench_goes_on(err) || !topic_metadata_create_topic(bench->metadata, topic,
					       partitions, -1, NULL, 0, ANSWER_MS, err))
			return false;
	}
	return true;
}

static void drop_topics(struct bench *bench, int64_t topics)
{
	struct err err;

	for (int64_t i = 0; i < topics; i++) {
		owned_text char *topic = open_topic_name(bench, i);

		if (!topic_metadata_delete_topic(bench->metadata, topic, ANSWER_MS, &err) &&
		    err.kind != ERR_REJECT)
			bench_say("topic %s stays behind: %s", topic, err.message);
	}
}

static bool wait_until_published(struct bench *place, struct err *err)
{
	int64_t pending = 1;

	for (int64_t end = clock_ms() + LONG_MS; bench_goes_on(err); usleep(LOOK_US)) {
		if (!count_queried_rows(place, sql_bench_growth_pending, &pending, err))
			return false;
		if (!pending)
			return true;
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY, "not all messages are published after %d s",
			    LONG_MS / 1000);
	}
	return false;
}

/* A message for each partition of each topic. */
static bool publish_to_all(
    struct bench *place, int64_t topics, int partitions, double *ret_peak_mib, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_growth_to_topics, place->schema);
	owned_text char *last = xformat("%lld", (long long)topics - 1);
	owned_text char *last_partition = xformat("%d", partitions - 1);
	const struct pg_param params[] = {{place->topic}, {last}, {last_partition}};
	struct bench_child child = {0};
	bool good = pg_execute(place->pg, sql, params, 3, err) &&
		    bench_child_run(place, &child, NULL, err) && wait_until_published(place, err);

	bench_child_stop(&child);
	*ret_peak_mib = child.peak_kib / 1024;
	return good;
}

static bool measure_bare(
    struct bench *bench, int64_t topics, int partitions, double *ret_mib, struct err *err)
{
	owned_text char *count = xformat("%lld", (long long)topics);
	owned_text char *each = xformat("%d", partitions);
	const char *const arguments[] = {
	    "open", each, "--topic", bench->topic, "--topics", count, NULL};
	struct bench_child child = {0};
	struct rusage usage;
	double bytes;

	if (!bench_child_tells(bench, &child, arguments, &usage, &bytes, err))
		return false;
	*ret_mib = bytes / (1 << 20);
	return true;
}

/* The first relay opens the topics; the second one reads their ends before it publishes. */
static bool measure_topics(struct bench *place, int64_t topics, int partitions, double *ret_relay,
    double *ret_bare, struct err *err)
{
	return bench_empty_table(place, err) && bench_rewind(place, BENCH_BEGINNING, err) &&
	       publish_to_all(place, topics, partitions, ret_relay, err) &&
	       publish_to_all(place, topics, partitions, ret_relay, err) &&
	       measure_bare(place, topics, partitions, ret_bare, err);
}

bool bench_growth_open_topics(struct bench *bench, int64_t topics, int partitions, struct err *err)
{
	struct bench place = {0};
	char name[80];
	double relay, bare;
	int64_t made = 0;
	bool good = bench_place_beside(bench, 2, &place, err) &&
		    make_topics(bench, topics, partitions, &made, err) &&
		    measure_topics(&place, topics, partitions, &relay, &bare, err);

	/* after a failure, only some of the topics were made */
	drop_topics(bench, made);
	if (place.schema[0])
		bench_schema_drop(&place);
	snprintf(name, sizeof name, "peak memory, %lld topics in use, %d partition%s each",
	    (long long)topics, partitions, partitions > 1 ? "s" : "");
	if (good)
		bench_judge_difference(bench, name, "MiB", relay, bare, 64, false);
	return good;
}
