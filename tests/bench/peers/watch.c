#include "load.h"

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 30000, BATCH = 1024 };

struct watch {
	const struct load_options *options;
	rd_kafka_t *kafka;
	rd_kafka_queue_t *queue;
	atomic_int_fast64_t distinct;
	int64_t twice, backwards, first_us, last_us;
	int64_t *seen_us, *sent_us;     /* by number - first */
	int64_t last_of_key[LOAD_KEYS]; /* the largest number seen of each key, + 1 */
};

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char reason[256];

	if (rd_kafka_conf_set(conf, name, value, reason, sizeof reason) != RD_KAFKA_CONF_OK)
		load_die("%s", reason);
}

static rd_kafka_t *connect_consumer(const struct load_options *options)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char reason[256];
	rd_kafka_t *kafka;

	set(conf, "bootstrap.servers", options->brokers);
	set(conf, "group.id", "peers-load"); /* never joined: partitions are assigned */
	set(conf, "enable.auto.commit", "false");
	set(conf, "socket.nagle.disable", "true");
	set(conf, "isolation.level", "read_committed");
	kafka = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof reason);
	if (!kafka)
		load_die("%s", reason);
	rd_kafka_poll_set_consumer(kafka);
	return kafka;
}

/* A broker that has just made the topic may not lead its partitions yet. */
static int64_t end_of(struct watch *watch, int32_t partition)
{
	const char *topic = watch->options->topic;
	rd_kafka_resp_err_t failed;
	int64_t low, high;

	for (int tries = 1;; tries++) {
		failed = rd_kafka_query_watermark_offsets(
		    watch->kafka, topic, partition, &low, &high, ANSWER_MS);
		if (!failed)
			return high;
		if (tries == 50)
			load_die("%s: %s", topic, rd_kafka_err2str(failed));
		usleep(100000);
	}
}

static void stand_at_end(struct watch *watch)
{
	const struct load_options *options = watch->options;
	rd_kafka_topic_partition_list_t *places =
	    rd_kafka_topic_partition_list_new((int)options->partitions);

	for (int32_t partition = 0; partition < options->partitions; partition++)
		rd_kafka_topic_partition_list_add(places, options->topic, partition)->offset =
		    end_of(watch, partition);
	if (rd_kafka_assign(watch->kafka, places) != RD_KAFKA_RESP_ERR_NO_ERROR)
		load_die("the partitions cannot be assigned");
	rd_kafka_topic_partition_list_destroy(places);
}

struct watch *watch_create(const struct load_options *options)
{
	struct watch *watch = calloc(1, sizeof *watch);

	if (!watch)
		load_die("out of memory");
	watch->options = options;
	watch->seen_us = calloc((size_t)options->count, sizeof *watch->seen_us);
	watch->sent_us = calloc((size_t)options->count, sizeof *watch->sent_us);
	if (!watch->seen_us || !watch->sent_us)
		load_die("out of memory");
	watch->kafka = connect_consumer(options);
	watch->queue = rd_kafka_queue_get_consumer(watch->kafka);
	stand_at_end(watch);
	return watch;
}

void watch_destroy(struct watch *watch)
{
	rd_kafka_queue_destroy(watch->queue);
	rd_kafka_consumer_close(watch->kafka);
	rd_kafka_destroy(watch->kafka);
	free(watch->seen_us);
	free(watch->sent_us);
	free(watch);
}

/* --- records --------------------------------------------------------------------------------- */

/* The digits behind a name; -1: there are none. Moves on behind them. */
static int64_t number_after(const char **at, const char *end, const char *name)
{
	size_t length = strlen(name);
	int64_t number = 0;
	const char *digit;

	if ((size_t)(end - *at) < length || memcmp(*at, name, length) != 0)
		return -1;
	for (digit = *at + length; digit < end && *digit >= '0' && *digit <= '9'; digit++)
		number = number * 10 + (*digit - '0');
	*at = digit;
	return number;
}

static void tell_progress(const struct watch *watch, int64_t distinct)
{
	if (distinct == 1)
		puts("{\"event\": \"first\"}");
	if (distinct == watch->options->at)
		puts("{\"event\": \"at\"}");
	if (distinct == watch->options->count)
		puts("{\"event\": \"last\"}");
}

static void see_first(struct watch *watch, int64_t number, int64_t sent_us, int64_t now_us)
{
	int64_t index = number - watch->options->first;
	int64_t *last_of_key = &watch->last_of_key[number % LOAD_KEYS];

	watch->seen_us[index] = now_us;
	watch->sent_us[index] = sent_us;
	watch->last_us = now_us;
	if (!watch->first_us)
		watch->first_us = now_us;
	if (number + 1 < *last_of_key)
		watch->backwards++;
	else
		*last_of_key = number + 1;
	tell_progress(watch, atomic_fetch_add(&watch->distinct, 1) + 1);
}

static void see(struct watch *watch, const rd_kafka_message_t *message, int64_t now_us)
{
	const char *at = message->payload, *end = at + message->len;
	int64_t number, sent_us;

	if (message->err) {
		fprintf(stderr, "peers-load: %s\n", rd_kafka_message_errstr(message));
		return;
	}
	number = number_after(&at, end, "{\"n\":");
	sent_us = number_after(&at, end, ",\"t\":");
	if (number < watch->options->first ||
	    number >= watch->options->first + watch->options->count)
		return;
	if (watch->seen_us[number - watch->options->first])
		watch->twice++;
	else
		see_first(watch, number, sent_us, now_us);
}

bool watch_step(struct watch *watch, int timeout_ms)
{
	rd_kafka_message_t *messages[BATCH];
	/* consume_batch waits for a full batch: it only takes what stands behind the first */
	rd_kafka_message_t *message = rd_kafka_consumer_poll(watch->kafka, timeout_ms);
	int64_t now_us = load_clock_us();
	ssize_t count;

	if (!message)
		return false;
	see(watch, message, now_us);
	rd_kafka_message_destroy(message);
	count = rd_kafka_consume_batch_queue(watch->queue, 0, messages, BATCH);
	now_us = load_clock_us();
	for (ssize_t i = 0; i < count; i++) {
		see(watch, messages[i], now_us);
		rd_kafka_message_destroy(messages[i]);
	}
	return true;
}

/* --- what was seen --------------------------------------------------------------------------- */

int64_t watch_distinct(const struct watch *watch)
{
	return atomic_load(&watch->distinct);
}

int64_t watch_seen_us(const struct watch *watch, int64_t number)
{
	return watch->seen_us[number - watch->options->first];
}

int64_t watch_sent_us(const struct watch *watch, int64_t number)
{
	return watch->sent_us[number - watch->options->first];
}

int64_t watch_twice(const struct watch *watch)
{
	return watch->twice;
}

int64_t watch_backwards(const struct watch *watch)
{
	return watch->backwards;
}

int64_t watch_span_us(const struct watch *watch)
{
	return watch->last_us - watch->first_us;
}
