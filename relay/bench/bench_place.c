#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "command.h"
#include "consumer.h"
#include "migrate.h"
#include "pg_array.h"
#include "progress.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "sql_files.h"
#include "text.h"

enum { ANSWER_MS = 10000, BATCH = 1000, TRANSACTION = 10000 };

bool bench_script(struct bench *bench, const char *sql, struct err *err)
{
	owned_text char *text = schema_text(sql, bench->schema);

	return pg_script(bench->pg, text, err);
}

bool bench_script_alone(struct bench *bench, const char *sql, struct err *err)
{
	owned_text char *text = schema_text(sql, bench->schema);

	return pg_script_alone(bench->pg, text, err);
}

struct pg *bench_connect(const struct postgres_settings *postgres, struct err *err)
{
	return pg_connect(postgres->dsn, program_name, ANSWER_MS, err);
}

static bool make_schema(struct bench *bench, struct err *err)
{
	const struct migrate_options options = {.schema = bench->schema, .no_roles = true};

	return migrate_up(bench->pg, &options, err) && bench_script(bench, sql_bench_objects, err);
}

bool bench_place_beside(struct bench *bench, int number, struct bench *ret_place, struct err *err)
{
	*ret_place = *bench;
	snprintf(ret_place->schema, sizeof ret_place->schema, "outbox_bench%d_%d", number,
	    (int)getpid());
	return make_schema(ret_place, err);
}

bool bench_partition(struct bench *place, int count, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_partition, place->schema);
	owned_text char *wanted = xformat("%d", count);
	const struct pg_param params[] = {{wanted}};

	place->days = count - 1;
	return pg_execute(place->pg, sql, params, 1, err);
}

void bench_schema_drop(struct bench *bench)
{
	struct err err;
	/* the connection of the bench may be in use */
	OWNED(owned_pg_destroy) struct pg *pg = bench_connect(bench->postgres, &err);
	owned_text char *drop = schema_text(sql_bench_drop, bench->schema);

	if (!pg || !pg_script(pg, drop, &err))
		bench_say("schema %s stays behind: %s", bench->schema, err.message);
}

bool bench_cluster_make(struct bench *bench, struct err *err)
{
	snprintf(bench->topic, sizeof bench->topic, "outbox-bench-%d", (int)getpid());
	bench->destinations = BENCH_PARTITIONS;
	bench->metadata = topic_metadata_create(bench->kafka, err);
	return bench->metadata;
}

bool bench_place_make(struct bench *bench, struct err *err)
{
	snprintf(bench->schema, sizeof bench->schema, "outbox_bench_%d", (int)getpid());
	bench->shards = bench->days = 1;
	bench->pg = bench_connect(bench->postgres, err);
	return bench->pg && bench_cluster_make(bench, err) && make_schema(bench, err) &&
	       bench_fresh_topic(bench, err);
}

void bench_place_remove(struct bench *bench)
{
	struct err err;

	if (bench->metadata &&
	    !topic_metadata_delete_topic(bench->metadata, bench->topic, ANSWER_MS, &err) &&
	    err.kind != ERR_REJECT)
		bench_say("topic %s stays behind: %s", bench->topic, err.message);
	topic_metadata_destroy(bench->metadata);
	pg_destroy(bench->pg);
	bench->pg = NULL;
	if (bench->schema[0])
		bench_schema_drop(bench);
}

/* A new topic may have no leaders yet: waits until every partition can be read. */
static bool wait_until_led(struct bench *bench, struct err *err)
{
	const char *const topics[] = {bench->topic, NULL};

	for (int64_t end = clock_ms() + ANSWER_MS; bench_goes_on(err); usleep(50000)) {
		struct consumer *consumer =
		    consumer_create(bench->kafka, topics, "read_committed", err);

		consumer_destroy(consumer);
		if (consumer || clock_ms() > end)
			return consumer != NULL;
	}
	return false;
}

bool bench_fresh_topic(struct bench *bench, struct err *err)
{
	const struct topic_setting settings[] = {
	    {(char *)"message.timestamp.type", (char *)"LogAppendTime"}};

	if (bench->has_topic &&
	    !topic_metadata_delete_topic(bench->metadata, bench->topic, ANSWER_MS, err) &&
	    err->kind != ERR_REJECT)
		return false;
	/* the broker may still be deleting the old topic */
	for (int64_t end = clock_ms() + ANSWER_MS; bench_goes_on(err); usleep(100000)) {
		if (topic_metadata_create_topic(bench->metadata, bench->topic, bench->destinations,
			-1, settings, 1, ANSWER_MS, err)) {
			bench->has_topic = true;
			return wait_until_led(bench, err);
		}
		if ((err->kind != ERR_REJECT && err->kind != ERR_RETRY) || clock_ms() > end)
			return err_prefix(err,
			    "the bench needs a Kafka that makes topics (the dev broker does not)");
	}
	return false;
}

bool bench_empty_table(struct bench *bench, struct err *err)
{
	return bench_script(bench, sql_bench_truncate, err);
}

static bool fill_bench_batch(
    struct bench *bench, int64_t first, int64_t count, int64_t bytes, int64_t day, struct err *err)
{
	OWNED(pg_array_finish) struct pg_array numbers = {0}, payloads = {0};
	OWNED(text_finish) struct text payload = {0};
	owned_text char *sql = schema_text(sql_bench_fill, bench->schema);
	owned_text char *keys = xformat("%d", BENCH_KEYS);
	owned_text char *days = xformat("%lld", (long long)day);
	const char *headers = bench->has_headers ? "true" : "false";

	for (int64_t n = first; n < first + count; n++) {
		text_clear(&payload);
		bench_payload(&payload, n, bytes);
		pg_array_add_int(&numbers, n);
		pg_array_add_text(&payloads, text_string(&payload));
	}

	const struct pg_param params[] = {{bench->topic}, {pg_array_end(&numbers)},
	    {pg_array_end(&payloads)}, {keys}, {days}, {headers}};

	return pg_execute(bench->pg, sql, params, 6, err);
}

bool bench_fill(struct bench *bench, int64_t first, int64_t count, int64_t payload,
    bool one_transaction, struct err *err)
{
	struct progress progress;
	bool good = true, open = false;

	progress_begin(&progress, "rows written");
	for (int64_t done = 0; good && done < count;) {
		int64_t batch = count - done < BATCH ? count - done : BATCH;

		if (!open)
			good = pg_script(bench->pg, "begin", err);
		good = good && bench_goes_on(err) &&
		       fill_bench_batch(
			   bench, first + done, batch, payload, done * bench->days / count, err);
		done += batch;
		open = one_transaction ? done < count : done % TRANSACTION && done < count;
		good = good && (open || pg_script(bench->pg, "commit", err));
		progress_step(&progress, done);
	}
	progress_end(&progress);
	return good;
}

bool bench_settle(struct bench *bench, struct err *err)
{
	struct err refused;

	if (!bench_script_alone(bench, sql_bench_vacuum, err))
		return false;

	/* the role may lack the privilege; then the first run may pay for the writes before it */
	if (!pg_script(bench->pg, "checkpoint", &refused))
		bench_say("no checkpoint before the runs: %s", refused.message);
	return true;
}

bool bench_rewind(struct bench *bench, const char *snapshot, struct err *err)
{
	owned_text char *forget = schema_text(sql_bench_forget, bench->schema);
	owned_text char *make = schema_text(sql_bench_rewind, bench->schema);
	owned_text char *shards = xformat("%d", bench->shards);
	const struct pg_param params[] = {{BENCH_PUBLISHER}, {snapshot}, {shards}};

	/* the publisher is made anew, so the old one goes first; its parked rows stay */
	return pg_execute(bench->pg, forget, params, 1, err) &&
	       pg_execute(bench->pg, make, params, 3, err);
}

char *bench_snapshot(struct bench *bench, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = pg_query(bench->pg, sql_bench_snapshot, NULL, 0, err);

	return row ? xstrdup(pg_value(row, 0, 0)) : NULL;
}
