/*
 * A consumer of the part inbox: a bare one, or an inbox with a handler that does nothing or sleeps.
 * It reads a number of messages of a topic from the beginning, with its own group, and prints the
 * microseconds between the first and the last message.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "bare.h"
#include "bench_dedup.h"
#include "bench_inbox.h"
#include "clock.h"
#include "inbox.h"
#include "outbox_error.h"
#include "text.h"

enum { LOOK_US = 20000, STILL_MS = 60000, BATCH = 500 };

struct consumed {
	atomic_llong count, first_us, last_us;
};

static void note_consumed(struct consumed *consumed, size_t count)
{
	int64_t now = clock_us();
	long long none = 0;

	/* several handlers may be the first at the same time: one of their times counts */
	atomic_compare_exchange_strong(&consumed->first_us, &none, now);
	atomic_store(&consumed->last_us, now);
	atomic_fetch_add(&consumed->count, (long long)count);
}

static void do_nothing(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	struct outbox_inbox_end ends[BATCH];

	for (size_t i = 0; i < count; i++)
		ends[i] = (struct outbox_inbox_end){.ticket = messages[i]->ticket};
	note_consumed(context, count);
	(void)outbox_inbox_finish(inbox, ends, count, NULL);
}

static void be_slow(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	nanosleep(&(struct timespec){.tv_nsec = BENCH_SLOW_US * 1000}, NULL);
	do_nothing(context, inbox, messages, count);
}

static const struct kind {
	const char *name;
	const char *dedup;
	outbox_inbox_handler *handle;
	int concurrency, batch;
} consumer_kinds[] = {
    {"none", NULL, do_nothing, 4 * BATCH, BATCH},
    {"bloom", "bloom ids=%lld rate=0.1%% window=24h", do_nothing, 4 * BATCH, BATCH},
    {"sequence", "sequence", do_nothing, 4 * BATCH, BATCH},
    {"slow", NULL, be_slow, BENCH_SLOW_AT_ONCE, 1},
    {"slow-16", NULL, be_slow, 16, 1},
};

static const struct kind *find_consumer_kind(const char *name)
{
	for (size_t i = 0; i < sizeof consumer_kinds / sizeof *consumer_kinds; i++)
		if (text_equal(consumer_kinds[i].name, name))
			return &consumer_kinds[i];
	return NULL;
}

/* Waits until that many were handled, as long as there is progress. */
static bool wait_until_consumed(
    struct outbox_inbox *inbox, struct consumed *consumed, int64_t count, struct err *err)
{
	struct outbox_error error;
	int64_t seen = 0, until = clock_ms() + STILL_MS;

	while (atomic_load(&consumed->count) < count) {
		usleep(LOOK_US);
		if (!outbox_inbox_works(inbox, &error))
			return err_set(err, ERR_FATAL, "%s", error.message);
		/* the limit is for silence: a large topic may take longer */
		if (atomic_load(&consumed->count) > seen)
			until = clock_ms() + STILL_MS;
		else if (clock_ms() > until)
			return err_set(err, ERR_RETRY, "%lld of %lld messages came",
			    (long long)seen, (long long)count);
		seen = atomic_load(&consumed->count);
	}
	return true;
}

static const char **kafka_properties(const struct kafka_settings *kafka)
{
	const char **list = xcalloc((size_t)kafka->property_count * 2 + 1, sizeof *list);

	for (int i = 0; i < kafka->property_count; i++) {
		list[2 * i] = kafka->properties[i].name;
		list[2 * i + 1] = kafka->properties[i].value;
	}
	return list;
}

static bool consume_topic(const struct kafka_settings *kafka, const struct kind *kind,
    const struct bench_consumption *what, const char *group, const char *folder,
    int64_t *ret_span_us, struct err *err)
{
	const char **properties = kafka_properties(kafka), *topics[] = {what->topic, NULL};
	owned_text char *dedup =
	    kind->dedup ? xformat(kind->dedup, (long long)what->messages * 2) : NULL;
	struct consumed consumed = {0};
	struct outbox_error error;
	const struct outbox_inbox_settings settings = {.kafka = properties,
	    .group = group,
	    .topics = topics,
	    .handle = kind->handle,
	    .context = &consumed,
	    .dedup = dedup,
	    .claims = what->claims,
	    .report = what->report,
	    .path = folder,
	    .concurrency = kind->concurrency,
	    .batch = kind->batch};
	struct outbox_inbox *inbox = outbox_inbox_open(&settings, &error);
	bool good = inbox ? wait_until_consumed(inbox, &consumed, what->messages, err)
			  : outbox_error_take(&error, err);

	outbox_inbox_close(inbox);
	free(properties);
	*ret_span_us = consumed.last_us - consumed.first_us;
	return good;
}

bool bench_consume(
    const struct kafka_settings *kafka, const struct bench_consumption *what, struct err *err)
{
	const struct kind *kind = find_consumer_kind(what->kind);
	owned_text char *group = xformat("outbox_bench_%d", (int)getpid());
	char folder[256];
	int64_t span_us = 0;
	bool good;

	if (!kind && !text_equal(what->kind, "bare"))
		return err_set(err, ERR_REJECT, "there is no consumer '%.40s'", what->kind);
	if (!bench_dedup_folder(folder, sizeof folder, err))
		return false;
	good = kind ? consume_topic(kafka, kind, what, group, folder, &span_us, err)
		    : bare_consume(kafka, what->topic, group, what->messages, &span_us, err);
	bench_dedup_remove(folder);
	printf("%lld\n", (long long)span_us);
	return good;
}

bool bench_open(const struct kafka_settings *kafka, const char *partitions, const char *prefix,
    int64_t topics, struct err *err)
{
	int64_t each, bytes = 0;

	if (!text_to_int64(partitions, 1, 100000, &each))
		return err_set(err, ERR_REJECT, "'%.40s' is no number of partitions", partitions);
	if (!bare_open(kafka, prefix, topics, (int)each, &bytes, err))
		return false;
	printf("%lld\n", (long long)bytes);
	return true;
}
