#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "clock.h"
#include "consumer.h"
#include "text.h"

DEFINE_OWNED(struct consumer, consumer_destroy)

enum { SHOWN_MS = 10000 };

/* --- the whole topic, afterwards ------------------------------------------------------------- */

static bool count_seen_record(void *context, const struct consumer_record *record)
{
	struct bench_seen *seen = context;

	seen->bytes += (int64_t)(record->key_length + record->payload_length);
	if (seen->records++ == 0)
		seen->first_ms = seen->last_ms = record->timestamp_ms;
	if (record->timestamp_ms < seen->first_ms)
		seen->first_ms = record->timestamp_ms;
	if (record->timestamp_ms > seen->last_ms)
		seen->last_ms = record->timestamp_ms;
	return true;
}

static bool read_bench_records(struct bench *bench, struct bench_seen *ret_seen, struct err *err)
{
	const char *const topics[] = {bench->topic, NULL};
	OWNED(owned_consumer_destroy)
	struct consumer *consumer =
	    consumer_create_counting(bench->kafka, topics, "read_committed", err);
	bool at_end = false;

	*ret_seen = (struct bench_seen){0};
	if (!consumer)
		return false;
	while (!at_end)
		if (!bench_goes_on(err) ||
		    !consumer_read(consumer, 500, count_seen_record, ret_seen, &at_end, err))
			return false;
	ret_seen->stored = consumer_received(consumer);
	return true;
}

/* A transaction of Kafka ends a moment before all its partitions show it. */
bool bench_read_topic(
    struct bench *bench, int64_t records, struct bench_seen *ret_seen, struct err *err)
{
	int64_t end = clock_ms() + SHOWN_MS;

	do
		if (!read_bench_records(bench, ret_seen, err))
			return false;
	while (ret_seen->records < records && clock_ms() < end);
	return ret_seen->records == records ||
	       err_set(err, ERR_FATAL, "%lld of %lld records are in the topic",
		   (long long)ret_seen->records, (long long)records);
}

/* --- a consumer beside the writer ------------------------------------------------------------ */

struct bench_watch {
	struct consumer *consumer;
	pthread_t thread;
	atomic_bool stopping;
	atomic_int_fast64_t count;
	int64_t numbers;
	atomic_int_fast64_t *seen_us;
};

static bool watch_record(void *context, const struct consumer_record *record)
{
	struct bench_watch *watch = context;
	int64_t number = bench_number(record->payload, record->payload_length);

	/* a record that was sent again does not count: its first arrival is the latency */
	if (number < 0 || number >= watch->numbers || atomic_load(&watch->seen_us[number]))
		return true;
	atomic_store(&watch->seen_us[number], clock_us());
	atomic_fetch_add(&watch->count, 1);
	return true;
}

static void *watch_topic(void *context)
{
	struct bench_watch *watch = context;
	struct err err;
	bool at_end;

	while (!atomic_load(&watch->stopping))
		if (!consumer_read(watch->consumer, 100, watch_record, watch, &at_end, &err)) {
			bench_say("the consumer: %s", err.message);
			usleep(100000);
		}
	return NULL;
}

struct bench_watch *bench_watch_start(struct bench *bench, int64_t numbers, struct err *err)
{
	const char *const topics[] = {bench->topic, NULL};
	struct bench_watch *watch = xcalloc(1, sizeof *watch);

	watch->numbers = numbers;
	watch->seen_us = xcalloc((size_t)numbers, sizeof *watch->seen_us);
	watch->consumer = consumer_create(bench->kafka, topics, "read_committed", err);
	if (watch->consumer && pthread_create(&watch->thread, NULL, watch_topic, watch) == 0)
		return watch;
	if (watch->consumer)
		err_set(err, ERR_FATAL, "no thread can be started");
	consumer_destroy(watch->consumer);
	free(watch->seen_us);
	free(watch);
	return NULL;
}

int64_t bench_watch_seen(const struct bench_watch *watch, int64_t number)
{
	return atomic_load(&watch->seen_us[number]);
}

int64_t bench_watch_count(const struct bench_watch *watch)
{
	return atomic_load(&watch->count);
}

bool bench_watch_wait(
    const struct bench_watch *watch, int64_t count, int timeout_ms, struct err *err)
{
	int64_t end = clock_ms() + timeout_ms;

	while (bench_watch_count(watch) < count) {
		if (!bench_goes_on(err))
			return false;
		if (clock_ms() > end)
			return err_set(err, ERR_RETRY, "%lld of %lld records came within %d s",
			    (long long)bench_watch_count(watch), (long long)count,
			    timeout_ms / 1000);
		usleep(2000);
	}
	return true;
}

void bench_watch_stop(struct bench_watch *watch)
{
	if (!watch)
		return;
	atomic_store(&watch->stopping, true);
	pthread_join(watch->thread, NULL);
	consumer_destroy(watch->consumer);
	free(watch->seen_us);
	free(watch);
}
