#include "bench_lookback.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "partitioner.h"
#include "producer.h"
#include "text.h"

enum {
	QUEUE_BYTES = 64 << 20,
	QUEUE_MESSAGES = 50000,
	REPORTS = 256,
	KNOWN_MS = 10000,
	FLUSH_MS = 120000, /* timeout without a single report */
	FULL_MS = 100,
};

struct bench_talk {
	struct bench *bench;
	struct kafka_settings kafka; /* only the array of properties is its own */
	const char *business_topic;
	struct producer *producer;
	struct producer_topic *topic;
	struct text payload;
	int64_t in_flight;
	int64_t *acked_us; /* bench_talk_note */
};

/* The data that accompanies a record and comes back with its report. */
struct said {
	char *value;
	int64_t commit; /* number of the commit; -1: a prepare */
};

static void said_destroy(struct said *said)
{
	free(said->value);
	free(said);
}

/* The producer's batches fill for a while, as with the default settings of an application; the
 * section's linger.ms is for the relay. */
static struct kafka_settings application_of(const struct kafka_settings *kafka)
{
	static char linger[] = "linger.ms", ms[] = BENCH_LINGER, origin[] = "bench";
	size_t count = (size_t)kafka->property_count;
	struct kafka_settings own = *kafka;

	own.properties = xcalloc(count + 1, sizeof *own.properties);
	memcpy(own.properties, kafka->properties, count * sizeof *own.properties);
	own.properties[count] = (struct kafka_property){linger, ms, origin};
	own.property_count++;
	return own;
}

struct bench_talk *bench_talk_create(
    struct bench *bench, const char *business_topic, struct err *err)
{
	struct bench_talk *talk = xcalloc(1, sizeof *talk);

	talk->bench = bench;
	talk->business_topic = business_topic;
	talk->kafka = application_of(bench->kafka);
	talk->producer = producer_create(&talk->kafka, NULL, QUEUE_BYTES, QUEUE_MESSAGES, 1, err);
	talk->topic = talk->producer ? producer_topic(talk->producer, bench->topic, err) : NULL;
	if (talk->topic &&
	    (producer_knows(talk->producer, talk->topic, bench->destinations, KNOWN_MS) ||
		err_set(err, ERR_RETRY, "the topic %s is not known yet", bench->topic)))
		return talk;
	bench_talk_destroy(talk);
	return NULL;
}

void bench_talk_destroy(struct bench_talk *talk)
{
	struct err ignored;

	if (!talk)
		return;
	/* records that the producer still holds give back their memory with their reports */
	if (talk->producer && !bench_talk_flush(talk, &ignored))
		bench_say("the application: %s", ignored.message);
	producer_destroy(talk->producer, 1000);
	free(talk->kafka.properties);
	text_finish(&talk->payload);
	free(talk);
}

void bench_talk_note(struct bench_talk *talk, int64_t *acked_us)
{
	talk->acked_us = acked_us;
}

static void take_said(struct bench_talk *talk, struct said *said, int64_t now)
{
	talk->in_flight--;
	if (talk->acked_us && said->commit >= 0)
		talk->acked_us[said->commit] = now;
	said_destroy(said);
}

bool bench_talk_step(struct bench_talk *talk, int wait_ms, struct err *err)
{
	struct pollfd fd = {.fd = producer_fd(talk->producer), .events = POLLIN};
	struct producer_report reports[REPORTS];
	int count, lost = 0;

	if (wait_ms > 0)
		poll(&fd, 1, wait_ms);
	do {
		int64_t now = clock_us();

		count = producer_poll(talk->producer, reports, REPORTS);
		for (int i = 0; i < count; i++) {
			lost += reports[i].error != 0;
			take_said(talk, reports[i].opaque, now);
		}
	} while (count == REPORTS);
	return lost == 0 ||
	       err_set(err, ERR_FATAL, "Kafka refused what the application of the bench said");
}

bool bench_talk_flush(struct bench_talk *talk, struct err *err)
{
	int64_t left = talk->in_flight, until = clock_ms() + FLUSH_MS;

	while (talk->in_flight > 0) {
		if (!bench_goes_on(err) || !bench_talk_step(talk, FULL_MS, err))
			return false;
		/* the limit is for silence: many records may take longer */
		if (talk->in_flight < left) {
			left = talk->in_flight;
			until = clock_ms() + FLUSH_MS;
		} else if (clock_ms() > until) {
			return err_set(
			    err, ERR_RETRY, "Kafka acknowledges nothing for %d s", FLUSH_MS / 1000);
		}
	}
	return true;
}

/* Waits while the queue is full. */
static bool say_operation(
    struct bench_talk *talk, int64_t number, bool commit, struct text *value, struct err *err)
{
	struct said *said = xcalloc(1, sizeof *said);
	char key[64];
	int length = snprintf(key, sizeof key, BENCH_PAIR ":%lld", (long long)number);
	const struct producer_record record = {.topic = talk->topic,
	    .partition = partitioner_of_key(key, (size_t)length, talk->bench->destinations),
	    .key = key,
	    .key_length = (size_t)length,
	    .payload = value->data,
	    .payload_length = value->length,
	    .opaque = said};

	*said = (struct said){.value = value->data, .commit = commit ? number : -1};

	while (!producer_send(talk->producer, &record, err)) {
		struct err fatal;

		/* only a full queue becomes empty: a fatal producer sends nothing from then on */
		if (err->kind == ERR_RETRY && !producer_is_fatal(talk->producer, &fatal) &&
		    talk->in_flight > 0 && bench_goes_on(err) &&
		    bench_talk_step(talk, FULL_MS, err))
			continue;
		said_destroy(said);
		return false;
	}
	talk->in_flight++;
	return true;
}

static void begin_said_value(struct text *value, const char *op, int64_t number)
{
	text_addf(value,
	    "{\"version\":1,\"op\":\"%s\",\"biz_type\":\"" BENCH_PAIR "\",\"biz_id\":\"%lld\"", op,
	    (long long)number);
}

bool bench_talk_prepare(struct bench_talk *talk, int64_t number, struct err *err)
{
	struct text value = {0};

	text_clear(&talk->payload);
	bench_payload(&talk->payload, number, BENCH_SMALL);
	begin_said_value(&value, "prepare", number);
	text_addf(&value, ",\"topic\":\"%s\",\"key\":\"customer-%lld\",\"payload\":%s}",
	    talk->business_topic, (long long)(number % BENCH_KEYS), text_string(&talk->payload));
	return say_operation(talk, number, false, &value, err);
}

bool bench_talk_commit(struct bench_talk *talk, int64_t number, struct err *err)
{
	struct text value = {0};

	begin_said_value(&value, "commit", number);
	text_add(&value, "}");
	return say_operation(talk, number, true, &value, err);
}
