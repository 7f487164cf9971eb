/*
 * Rules: messages that one process judges per second, in batches of 100, with the records in a
 * folder and on servers. Every second message is a copy of the one before, and is refused.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "bench_dedup.h"
#include "cleanup.h"
#include "clock.h"
#include "outbox_error.h"
#include "rules.h"
#include "text.h"

enum { BATCH = 100, USERS = 20000, SHARE = 100 /* --ids is divided by it */ };

static const char article[] =
    "{\"deduplication_10\":{\"num\":1,\"time\":300},\"deduplication_20\":{\"num\":5}}";

/* The texts of a batch, which its messages point to. */
struct pushes {
	struct outbox_rules_message messages[BATCH];
	struct outbox_rules_header users[BATCH];
	char names[BATCH][24], contents[BATCH][40];
};

static void make_pushes(struct pushes *pushes, int64_t first, int64_t now_ms)
{
	for (int i = 0; i < BATCH; i++) {
		int64_t number = first + i, push = number / 2;

		snprintf(pushes->names[i], sizeof pushes->names[i], "user-%lld",
		    (long long)(push % USERS));
		snprintf(pushes->contents[i], sizeof pushes->contents[i], "your order %lld is here",
		    (long long)(push / USERS));
		pushes->users[i] = (struct outbox_rules_header){
		    "user", pushes->names[i], strlen(pushes->names[i])};
		pushes->messages[i] = (struct outbox_rules_message){.topic = "push",
		    .partition = (int32_t)(number % 12),
		    .offset = number,
		    .time_ms = now_ms,
		    .payload = pushes->contents[i],
		    .payload_length = strlen(pushes->contents[i]),
		    .headers = &pushes->users[i],
		    .header_count = 1};
	}
}

static bool judge_pushes(
    struct outbox_rules *rules, int64_t count, double *ret_rate, struct err *err)
{
	struct outbox_rules_verdict verdicts[BATCH];
	struct outbox_error error;
	struct pushes pushes;
	int64_t began_us = clock_us(), now_ms = clock_wall_us() / 1000;

	for (int64_t first = 0; first < count; first += BATCH) {
		make_pushes(&pushes, first, now_ms);
		if (!bench_goes_on(err))
			return false;
		if (!outbox_rules_check(rules, pushes.messages, BATCH, verdicts, &error))
			return outbox_error_take(&error, err);
	}
	*ret_rate = (double)count * 1e6 / (double)(clock_us() - began_us);
	return true;
}

/* Either path or store. */
static bool measure_rules(
    const char *path, const char *store, int64_t count, double *ret_rate, struct err *err)
{
	const char *lines[] = {article};
	const struct outbox_rules_settings settings = {
	    .path = path, .store = store, .lines = lines, .count = 1, .user = "header:user"};
	struct outbox_error error;
	struct outbox_rules *rules = outbox_rules_open_as(&settings, &error);

	if (!rules)
		return outbox_error_take(&error, err);
	bool good = judge_pushes(rules, count, ret_rate, err);
	outbox_rules_close(rules);
	return good;
}

static int64_t pushes_of(const struct bench *bench)
{
	return (bench->options.ids / SHARE + BATCH - 1) / BATCH * BATCH;
}

static bool bench_rules_folder(struct bench *bench, struct err *err)
{
	double rates[BENCH_MOST_RUNS];
	int runs = (int)bench->options.runs;
	bool good = true;

	for (int i = 0; good && i < runs; i++) {
		char folder[200];
		if (!bench_dedup_folder(folder, sizeof folder, err))
			return false;
		owned_text char *path = xformat("%s/rules", folder);
		good = measure_rules(path, NULL, pushes_of(bench), &rates[i], err);
		bench_dedup_remove(folder);
	}
	if (good)
		bench_tell(bench, "rules in a folder: messages judged", "messages/s",
		    bench_median(rates, runs));
	return good;
}

static bool bench_rules_redis(struct bench *bench, const char *url, const char *option,
    const char *figure, double bound, struct err *err)
{
	struct bench_redis server = {.url = url};
	double rates[BENCH_MOST_RUNS];
	int runs = (int)bench->options.runs;
	struct err after;

	if (!url) {
		bench_say("rules are not measured on a server: name one with --%s", option);
		return true;
	}
	bool good = bench_redis_begin(&server, option, err);
	for (int i = 0; good && i < runs; i++) {
		owned_text char *line =
		    xformat("redis name=b%d-rules-%d url=%s timeout=1m", (int)getpid(), i, url);
		good = bench_redis_empty(&server, err) &&
		       measure_rules(NULL, line, pushes_of(bench), &rates[i], err);
	}
	/* also after a failure, whose error counts */
	bool emptied = bench_redis_empty(&server, good ? err : &after);
	if (!good || !emptied)
		return false;
	bench_judge(bench, figure, "messages/s", bench_median(rates, runs), '>', bound);
	return true;
}

static bool measure_schema(struct bench *place, struct err *err)
{
	double rates[BENCH_MOST_RUNS];
	int runs = (int)place->options.runs;

	for (int i = 0; i < runs; i++) {
		/* the value of a line is in quotes, and a quote in it is written twice */
		owned_text char *line =
		    xformat("postgres name=bench-%d schema=%s timeout=1m dsn=\"%s\"", i,
			place->schema, place->options.dsn);
		if (!measure_rules(
			NULL, line, pushes_of(place) / 10 / BATCH * BATCH + BATCH, &rates[i], err))
			return false;
	}
	bench_tell(
	    place, "rules in PostgreSQL: messages judged", "messages/s", bench_median(rates, runs));
	return true;
}

static bool bench_rules_postgres(struct bench *bench, struct err *err)
{
	const struct postgres_settings postgres = {.dsn = (char *)bench->options.dsn};
	struct bench here = *bench, place = *bench;

	if (!bench->options.dsn) {
		bench_say("rules are not measured in PostgreSQL: name a database with --dsn");
		return true;
	}
	here.postgres = &postgres;
	OWNED(owned_pg_destroy) struct pg *pg = here.pg = bench_connect(&postgres, err);
	bool good = pg && bench_place_beside(&here, 2, &place, err) && measure_schema(&place, err);
	/* place has the schema from here on, even if making it has failed half way */
	if (pg)
		bench_schema_drop(&place);

	/* figures were added to the copy, and the array may have moved */
	bench->figures = place.figures;
	bench->figure_count = place.figure_count;
	return good;
}

bool bench_rules(struct bench *bench, struct err *err)
{
	return bench_rules_redis(bench, bench->options.redis, "redis",
		   "rules in Redis: messages judged", 20000, err) &&
	       bench_rules_redis(bench, bench->options.redis_cluster, "redis-cluster",
		   "rules in a Redis Cluster: messages judged", 5000, err) &&
	       bench_rules_postgres(bench, err) && bench_rules_folder(bench, err);
}
