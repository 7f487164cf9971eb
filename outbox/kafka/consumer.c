#include "consumer.h"

#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <string.h>

#include "cleanup.h"
#include "clock.h"
#include "consumer_private.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"

/*
 * librdkafka's simple consumer: assign() requires a group.id, which needs a group's privileges and
 * makes the cluster look for a coordinator; consume_start does not. All partitions feed one queue.
 *
 * The records that librdkafka keeps ready are bounded in bytes and in number, since a small record
 * takes half a kilobyte there. librdkafka compares the one queue with the bound of each partition.
 * At the bound it stops fetching, and checks again only after up to a second, however soon the
 * queue was emptied; a start makes it check at once.
 */
enum {
	BATCH = 1000,
	ANSWER_MS = 5000,
	CLOSE_MS = 2000,
	LIMITED_CLOSE_MS = 50,
	READY_MESSAGES = 5000,
	READY_BYTES = 2 << 20,
	STATISTICS_MOST_MS = 500
};

struct reading {
	rd_kafka_topic_t *topic; /* one handle is shared by a topic's partitions */
	int32_t partition;
	int64_t low;  /* the first offset there was */
	int64_t from; /* where reading begins */
	int64_t end;  /* the watermark when the reader was made, or the range's end */
	int64_t next; /* the offset after the last one seen */
	bool resting; /* no longer fetched */
};

struct consumer {
	rd_kafka_t *handle;
	rd_kafka_queue_t *queue;
	rd_kafka_topic_t **topics;
	int topic_count;
	struct consumer_range range;
	struct reading *readings;
	int reading_count, unfinished;
	int recent;                       /* the reading of the last message */
	rd_kafka_message_t *batch[BATCH]; /* [taken, filled) is still to be seen */
	int taken, filled;
	int64_t run, run_bytes; /* seen since nothing was ready */
	int64_t received;       /* bytes, by the last statistics */
};

/* Called from rd_kafka_poll. */
static int note_statistics(rd_kafka_t *handle, char *json, size_t length, void *opaque)
{
	struct consumer *consumer = opaque;
	json_t *root = json_loadb(json, length, 0, NULL);

	(void)handle;
	consumer->received = (int64_t)json_integer_value(json_object_get(root, "rx_bytes"));
	json_decref(root);
	return 0;
}

static bool count_received(struct consumer *consumer, rd_kafka_conf_t *conf, struct err *err)
{
	rd_kafka_conf_set_opaque(conf, consumer);
	rd_kafka_conf_set_stats_cb(conf, note_statistics);
	return kafka_conf_set(conf, "statistics.interval.ms", "100", err);
}

static bool open_consumer_client(struct consumer *consumer, const struct kafka_settings *kafka,
    const char *isolation, bool counts, struct err *err)
{
	/* the fetch that tells of an end is answered after fetch.wait.max.ms */
	static const char *const defaults[] = {"fetch.wait.max.ms", "50", "fetch.error.backoff.ms",
	    "10", "fetch.message.max.bytes", "262144", "fetch.max.bytes", "1048576", NULL};
	rd_kafka_conf_t *conf = kafka_conf_reader(kafka, isolation, "earliest", defaults, err);

	/* a section may not set these: restart_stopped_fetch depends on them */
	if (conf && (!kafka_conf_bound_ready(conf, READY_MESSAGES, READY_BYTES, err) ||
			(counts && !count_received(consumer, conf, err)))) {
		rd_kafka_conf_destroy(conf);
		return false;
	}
	consumer->handle = kafka_client_open(RD_KAFKA_CONSUMER, conf, kafka, err);
	if (!consumer->handle)
		return false;
	consumer->queue = rd_kafka_queue_new(consumer->handle);
	return true;
}

/* Records behind a range are not fetched while other partitions are still read. */
static void rest_reading(struct consumer *consumer, struct reading *reading)
{
	if (consumer->range.to_ms == INT64_MAX)
		return;
	reading->resting = true;
	rd_kafka_consume_stop(reading->topic, reading->partition);
	consumer->run += READY_MESSAGES; /* records that are void now may have counted as ready */
}

static int answer_ms(const struct consumer *consumer)
{
	int64_t left = consumer->range.until_ms - clock_ms();

	if (consumer->range.until_ms == 0 || left > ANSWER_MS)
		return ANSWER_MS;
	return left > 1 ? (int)left : 1;
}

/* OFFSET_END: no record is as late as that. */
static bool offset_of_time(struct consumer *consumer, const char *name, int32_t partition,
    int64_t time_ms, int64_t *ret_offset, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_resp_err_t code;

	rd_kafka_topic_partition_list_add(list, name, partition)->offset = time_ms;
	code = rd_kafka_offsets_for_times(consumer->handle, list, answer_ms(consumer));
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		code = list->elems[0].err;
	*ret_offset = list->elems[0].offset < 0 ? RD_KAFKA_OFFSET_END : list->elems[0].offset;
	rd_kafka_topic_partition_list_destroy(list);
	return code == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_client_failed(err, code, name);
}

/* One that finds no record from 1970 on in a partition that has some cannot tell times. */
static bool offset_of_first(struct consumer *consumer, const char *name,
    const struct reading *reading, int64_t *ret_offset, struct err *err)
{
	int64_t first = 0;

	if (!offset_of_time(consumer, name, reading->partition,
		consumer->range.from_ms > 0 ? consumer->range.from_ms : 0, ret_offset, err))
		return false;
	if (*ret_offset != RD_KAFKA_OFFSET_END)
		return true;
	/*
	 * A cluster that cannot tell finds no record from 1970 on either; then reading begins at
	 * the first offset.
	 */
	if (reading->low < reading->end &&
	    !offset_of_time(consumer, name, reading->partition, 0, &first, err))
		return false;
	*ret_offset = first == RD_KAFKA_OFFSET_END ? reading->low : reading->end;
	return true;
}

static int64_t clamp_offset(int64_t low, int64_t value, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* Narrows what is read from all that is there to the range. */
static bool apply_range(
    struct consumer *consumer, const char *name, struct reading *reading, struct err *err)
{
	const struct consumer_range *range = &consumer->range;
	int64_t from = reading->low, to = RD_KAFKA_OFFSET_END;

	if (reading->partition < range->offset_count)
		from = range->offsets[reading->partition];
	else if (range->from_ms != INT64_MIN &&
		 !offset_of_first(consumer, name, reading, &from, err))
		return false;
	if (range->to_ms != INT64_MAX && !offset_of_time(consumer, name, reading->partition,
					     range->to_ms > 0 ? range->to_ms : 0, &to, err))
		return false;

	/*
	 * The offsets were found earlier or by time: retention may have removed them, and the end
	 * is the one of this reader.
	 */
	reading->from = clamp_offset(reading->low, from, reading->end);
	if (to != RD_KAFKA_OFFSET_END)
		reading->end = clamp_offset(reading->from, to, reading->end);
	return true;
}

/* The end by isolation level: with read_committed the last stable offset. */
static bool find_topic_partition(
    struct consumer *consumer, rd_kafka_topic_t *topic, int32_t partition, struct err *err)
{
	struct reading *reading = &consumer->readings[consumer->reading_count];
	const char *name = rd_kafka_topic_name(topic);
	rd_kafka_resp_err_t code;
	int64_t low, high;

	code = rd_kafka_query_watermark_offsets(
	    consumer->handle, name, partition, &low, &high, answer_ms(consumer));
	if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
		return kafka_client_failed(err, code, name);
	*reading = (struct reading){
	    .topic = topic, .partition = partition, .low = low, .from = low, .end = high};
	if (!apply_range(consumer, name, reading, err))
		return false;
	reading->next = reading->from;

	/*
	 * A partition without records in the range is never started, and consumer_read waits for
	 * none.
	 */
	reading->resting = reading->from >= reading->end && consumer->range.to_ms != INT64_MAX;
	consumer->reading_count++;
	consumer->unfinished += reading->from < reading->end;
	return true;
}

static bool count_partitions(
    struct consumer *consumer, const char *name, int *ret_count, struct err *err)
{
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *metadata;
	rd_kafka_resp_err_t code =
	    kafka_client_topic(consumer->handle, name, answer_ms(consumer), &metadata);

	if (kafka_client_is_missing(code))
		return err_set(err, ERR_REJECT, "topic %s does not exist", name);
	if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
		return kafka_client_unanswered(err, consumer->handle, code, name);
	*ret_count = metadata->topics[0].partition_cnt;
	return true;
}

static bool find_consumer_topic(struct consumer *consumer, const char *name, struct err *err)
{
	rd_kafka_topic_t *topic;
	int count = 0;

	if (!count_partitions(consumer, name, &count, err))
		return false;
	topic = rd_kafka_topic_new(consumer->handle, name, NULL);
	if (!topic)
		return kafka_client_failed(err, rd_kafka_last_error(), name);
	consumer->topics[consumer->topic_count++] = topic;
	consumer->readings = xrealloc(consumer->readings,
	    (size_t)(consumer->reading_count + count) * sizeof *consumer->readings);
	for (int partition = 0; partition < count; partition++)
		if ((!consumer->range.only || *consumer->range.only == partition) &&
		    !find_topic_partition(consumer, topic, partition, err))
			return false;
	return true;
}

/*
 * Once all are found: a broker answers in order, and a question behind a fetch waits as long as the
 * fetch does for records.
 */
static bool start_all(struct consumer *consumer, struct err *err)
{
	for (int i = 0; i < consumer->reading_count; i++) {
		const struct reading *reading = &consumer->readings[i];

		if (!reading->resting &&
		    rd_kafka_consume_start_queue(
			reading->topic, reading->partition, reading->next, consumer->queue) != 0)
			return kafka_client_failed(
			    err, rd_kafka_last_error(), rd_kafka_topic_name(reading->topic));
	}
	return true;
}

static void stop_all(struct consumer *consumer)
{
	for (int i = 0; i < consumer->reading_count; i++)
		if (!consumer->readings[i].resting)
			rd_kafka_consume_stop(
			    consumer->readings[i].topic, consumer->readings[i].partition);
}

static struct consumer *create_consumer(const struct kafka_settings *kafka,
    const char *const *topics, const char *isolation, const struct consumer_range *range,
    bool counts, struct err *err)
{
	struct consumer *consumer = xcalloc(1, sizeof *consumer);
	size_t count = 0;

	consumer->range = *range;
	while (topics[count])
		count++;
	consumer->topics = xcalloc(count, sizeof *consumer->topics);

	if (!open_consumer_client(consumer, kafka, isolation, counts, err))
		goto fail;
	for (size_t i = 0; i < count; i++)
		if (!find_consumer_topic(consumer, topics[i], err))
			goto fail;
	if (start_all(consumer, err))
		return consumer;
fail:
	consumer_destroy(consumer);
	return NULL;
}

static const struct consumer_range everything = {.from_ms = INT64_MIN, .to_ms = INT64_MAX};

struct consumer *consumer_create(const struct kafka_settings *kafka, const char *const *topics,
    const char *isolation, struct err *err)
{
	return create_consumer(kafka, topics, isolation, &everything, false, err);
}

struct consumer *consumer_create_range(const struct kafka_settings *kafka,
    const char *const *topics, const char *isolation, const struct consumer_range *range,
    struct err *err)
{
	return create_consumer(kafka, topics, isolation, range, false, err);
}

struct consumer *consumer_create_counting(const struct kafka_settings *kafka,
    const char *const *topics, const char *isolation, struct err *err)
{
	return create_consumer(kafka, topics, isolation, &everything, true, err);
}

int64_t consumer_received(struct consumer *consumer)
{
	/* twice: statistics that wait already do not hold what came behind them */
	for (int i = 0; i < 2; i++)
		rd_kafka_poll(consumer->handle, STATISTICS_MOST_MS);
	return consumer->received;
}

static void close_consumer_client(struct consumer *consumer)
{
	while (consumer->taken < consumer->filled)
		rd_kafka_message_destroy(consumer->batch[consumer->taken++]);
	stop_all(consumer);
	for (int i = 0; i < consumer->topic_count; i++)
		rd_kafka_topic_destroy(consumer->topics[i]);
	rd_kafka_queue_destroy(consumer->queue);
	kafka_client_close(
	    consumer->handle, consumer->range.until_ms ? LIMITED_CLOSE_MS : CLOSE_MS);
}

void consumer_destroy(struct consumer *consumer)
{
	if (!consumer)
		return;
	if (consumer->handle)
		close_consumer_client(consumer);
	free(consumer->readings);
	free(consumer->topics);
	free(consumer);
}

bool consumer_partition_at(
    const struct consumer *consumer, int index, struct consumer_partition *ret_partition)
{
	const struct reading *reading;

	if (index >= consumer->reading_count)
		return false;
	reading = &consumer->readings[index];
	*ret_partition = (struct consumer_partition){rd_kafka_topic_name(reading->topic),
	    reading->partition, reading->low, reading->from, reading->end};
	return true;
}

/* Records come in runs of one partition. */
static struct reading *reading_of(struct consumer *consumer, const rd_kafka_message_t *message)
{
	for (int i = 0; i < consumer->reading_count; i++) {
		int at = (consumer->recent + i) % consumer->reading_count;
		struct reading *reading = &consumer->readings[at];

		if (reading->topic == message->rkt && reading->partition == message->partition) {
			consumer->recent = at;
			return reading;
		}
	}
	return NULL;
}

static ssize_t take_queued_messages(struct consumer *consumer, int timeout_ms, int count)
{
	ssize_t taken = rd_kafka_consume_batch_queue(
	    consumer->queue, timeout_ms, consumer->batch + consumer->filled, (size_t)count);

	consumer->filled += taken > 0 ? (int)taken : 0;
	return taken;
}

/*
 * Nothing is ready. If so many records were ready that librdkafka may have stopped fetching, this
 * starts all partitions again at their positions. Records that arrived meanwhile are void and taken
 * off the queue, because they would count as ready. An error may be in the queue nevertheless.
 */
static bool restart_stopped_fetch(struct consumer *consumer, struct err *err)
{
	bool stopped =
	    consumer->run >= READY_MESSAGES - BATCH || consumer->run_bytes >= READY_BYTES / 4 * 3;

	consumer->run = consumer->run_bytes = 0;
	if (!stopped)
		return true;
	stop_all(consumer);
	return take_queued_messages(consumer, 0, 1) >= 0 && start_all(consumer, err);
}

/* Everything before offset `next` was seen, or is no record (a transaction's marker, a gap). */
static void note_reading_progress(
    struct consumer *consumer, const rd_kafka_message_t *message, int64_t next)
{
	struct reading *reading = reading_of(consumer, message);

	consumer->run++;
	consumer->run_bytes += (int64_t)(message->len + message->key_len);
	if (!reading || next <= reading->next)
		return;
	if (reading->next < reading->end && next >= reading->end) {
		consumer->unfinished--;
		rest_reading(consumer, reading);
	}
	reading->next = next;
}

struct consumer_record consumer_record_of(rd_kafka_message_t *message)
{
	return (struct consumer_record){
	    .topic = rd_kafka_topic_name(message->rkt),
	    .partition = message->partition,
	    .offset = message->offset,
	    .timestamp_ms = rd_kafka_message_timestamp(message, NULL),
	    .key = message->key,
	    .key_length = message->key_len,
	    .payload = message->payload,
	    .payload_length = message->len,
	    .internal = message,
	};
}

/* Waits for the first message only: a batch call would wait until the batch is full. */
static bool fill_message_batch(struct consumer *consumer, int timeout_ms, struct err *err)
{
	ssize_t some;

	consumer->taken = consumer->filled = 0;
	some = take_queued_messages(consumer, 0, 1);
	if (some == 0 && !restart_stopped_fetch(consumer, err))
		return false;
	if (some == 0 && consumer->filled == 0)
		some = take_queued_messages(consumer, timeout_ms, 1);
	if (some == 1)
		some = take_queued_messages(consumer, 0, BATCH - 1);
	return some >= 0 || kafka_client_failed(err, rd_kafka_last_error(), "reading");
}

static bool is_in_reading_range(struct consumer *consumer, const rd_kafka_message_t *message)
{
	const struct reading *reading =
	    consumer->range.to_ms == INT64_MAX ? NULL : reading_of(consumer, message);

	return !reading || message->offset < reading->end;
}

static bool see_message(struct consumer *consumer, rd_kafka_message_t *message,
    bool (*see)(void *context, const struct consumer_record *record), void *context, bool *ret_stop,
    struct err *err)
{
	if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
		struct consumer_record record = consumer_record_of(message);

		/*
		 * A record behind the range is not shown, but it proves that the range was read to
		 * its end.
		 */
		if (is_in_reading_range(consumer, message))
			*ret_stop = !see(context, &record);
		note_reading_progress(consumer, message, message->offset + 1);
		return true;
	}
	if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
		note_reading_progress(consumer, message, message->offset);
		return true;
	}
	return kafka_client_failed(err, message->err, rd_kafka_message_errstr(message));
}

bool consumer_read(struct consumer *consumer, int timeout_ms,
    bool (*see)(void *context, const struct consumer_record *record), void *context,
    bool *ret_at_end, struct err *err)
{
	bool stop = false;

	if (consumer->taken == consumer->filled && !fill_message_batch(consumer, timeout_ms, err))
		return false;
	while (consumer->taken < consumer->filled && !stop) {
		rd_kafka_message_t *message = consumer->batch[consumer->taken++];
		bool done = see_message(consumer, message, see, context, &stop, err);

		rd_kafka_message_destroy(message);
		if (!done)
			return false;
	}

	/*
	 * `unfinished` may reach 0 in the middle of a batch, whose other records are not seen yet.
	 */
	*ret_at_end = consumer->unfinished == 0 && consumer->taken == consumer->filled;
	return true;
}

bool consumer_header(const struct consumer_record *record, const char *name, const void **ret_value,
    size_t *ret_length)
{
	rd_kafka_headers_t *headers;

	return rd_kafka_message_headers(record->internal, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR &&
	       rd_kafka_header_get_last(headers, name, ret_value, ret_length) ==
		   RD_KAFKA_RESP_ERR_NO_ERROR;
}

const void *consumer_headers(const struct consumer_record *record)
{
	rd_kafka_headers_t *headers;

	return rd_kafka_message_headers(record->internal, &headers) ? NULL : headers;
}

bool consumer_headers_at(const void *headers, size_t index, const char **ret_name,
    const void **ret_value, size_t *ret_length)
{
	return headers && !rd_kafka_header_get_all(headers, index, ret_name, ret_value, ret_length);
}

bool consumer_header_at(const struct consumer_record *record, size_t index, const char **ret_name,
    const void **ret_value, size_t *ret_length)
{
	return consumer_headers_at(
	    consumer_headers(record), index, ret_name, ret_value, ret_length);
}
