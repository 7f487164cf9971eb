/*
 * Sends failed messages to retry topics and to the dead-letter topic, until the broker has
 * acknowledged them. Begin at redelivery_send, which copies a message with its headers, and at
 * redelivery_step, which sends queued records, reads reports, and replaces a broken producer.
 */
#include "redelivery.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topic_metadata.h"
#include "clock.h"
#include "logging.h"
#include "partitioner.h"
#include "producer.h"
#include "text.h"

enum {
	TOPIC_AGE_MS = 30000,
	AGAIN_MS = 100,     /* pause if a topic is missing or brokers are unavailable */
	PATIENCE_MS = 5000, /* how long to wait for the reports of a broken producer */
	QUEUE_BYTES = 16 << 20,
	QUEUE_MESSAGES = 10000,
	REPORTS = 100,
	CLOSE_MS = 2000,
	OWN_HEADERS = 10,
	NUMBER = 24,
	LATE_MS = 10000, /* between two lines of the log about one topic */
};

struct redelivery_record {
	struct redelivery_record *next, *before; /* in `queue`, `sent` or `over` */
	struct item *item;
	const char *topic;
	struct producer_header *headers;
	int header_count;
	char partition[NUMBER], offset[NUMBER], time[NUMBER], attempts[NUMBER], at[NUMBER];
	char *leg;
	bool refused;
	struct err why;
};

struct redelivery_list {
	struct redelivery_record *first, *last;
	size_t count;
};

struct redelivery {
	const struct kafka_settings *kafka;
	const char *group;
	struct topic_metadata *metadata;
	struct producer *producer;
	struct redelivery_list queue, sent, over;
	int64_t broken_until; /* 0: the producer works */
	size_t alone; /* how many records go one at a time, because a batch with one of them was
			 refused */
	int64_t try_at, told_at;
};

static const char *const own_headers[] = {"outbox-group", "outbox-origin-topic",
    "outbox-origin-partition", "outbox-origin-offset", "outbox-origin-time",
    "outbox-origin-position", "outbox-attempts", "outbox-reason", "outbox-leg", "outbox-retry-at"};

bool redelivery_is_own_header(const char *name)
{
	for (size_t i = 0; i < sizeof own_headers / sizeof *own_headers; i++)
		if (text_equal(own_headers[i], name))
			return true;
	return text_equal(name, "outbox-position");
}

/* --- lists ---------------------------------------------------------------------------------- */

static void append_record(struct redelivery_list *list, struct redelivery_record *record)
{
	record->next = NULL;
	record->before = list->last;
	if (list->last)
		list->last->next = record;
	else
		list->first = record;
	list->last = record;
	list->count++;
}

static void remove_record(struct redelivery_list *list, struct redelivery_record *record)
{
	*(record->before ? &record->before->next : &list->first) = record->next;
	*(record->next ? &record->next->before : &list->last) = record->before;
	list->count--;
}

static void free_record(struct redelivery_record *record)
{
	free(record->headers);
	free(record->leg);
	free(record);
}

static void free_records(struct redelivery_list *list)
{
	for (struct redelivery_record *record; (record = list->first);) {
		remove_record(list, record);
		free_record(record);
	}
}

/* --- headers -------------------------------------------------------------------------------- */

static void put_header(
    struct redelivery_record *record, const char *name, const void *value, size_t length)
{
	record->headers[record->header_count++] =
	    (struct producer_header){name, (int32_t)strlen(name), value, (int32_t)length};
}

/* Copies the header of an earlier redelivery; without one, the value. */
static void put_origin(struct redelivery_record *record, const char *name, const char *value)
{
	const struct outbox_rules_header *said = item_header(record->item, name);
	if (said)
		put_header(record, name, said->value, said->length);
	else
		put_header(record, name, value, strlen(value));
}

static void put_position(struct redelivery_record *record)
{
	static const char name[] = "outbox-origin-position";
	const struct outbox_rules_header *position = item_header(record->item, "outbox-position");
	if (!position)
		position = item_header(record->item, name);
	if (position)
		put_header(record, name, position->value, position->length);
}

/* The legs so far, and this one: the same each time that this message is sent on. */
static char *leg_of(const struct redelivery_record *record)
{
	const struct outbox_rules_header *before = item_header(record->item, "outbox-leg");
	return xformat("%.*s/%s", before ? (int)before->length : 0,
	    before ? (const char *)before->value : "", record->topic);
}

/* A dead letter that is sent back begins a new leg, named by its place in the dead-letter topic. */
static void put_return_headers(struct redelivery_record *record, const char *group)
{
	const struct outbox_inbox_message *message = &record->item->public;
	record->leg =
	    xformat("%s/%" PRId32 "/%" PRId64, message->topic, message->partition, message->offset);
	put_header(record, "outbox-group", group, strlen(group));
	put_header(record, "outbox-leg", record->leg, strlen(record->leg));
}

static void put_own_headers(struct redelivery_record *record, const char *group, int64_t wait_ms)
{
	const struct outbox_inbox_message *message = &record->item->public;
	const char *reason = record->item->reason ? record->item->reason : "";

	snprintf(record->partition, NUMBER, "%" PRId32, message->partition);
	snprintf(record->offset, NUMBER, "%" PRId64, message->offset);
	snprintf(record->time, NUMBER, "%" PRId64, message->time_ms);
	snprintf(record->attempts, NUMBER, "%d", message->attempt);
	record->leg = leg_of(record);
	put_header(record, "outbox-group", group, strlen(group));
	put_origin(record, "outbox-origin-topic", message->topic);
	put_origin(record, "outbox-origin-partition", record->partition);
	put_origin(record, "outbox-origin-offset", record->offset);
	put_origin(record, "outbox-origin-time", record->time);
	put_position(record);
	put_header(record, "outbox-attempts", record->attempts, strlen(record->attempts));
	put_header(record, "outbox-reason", reason, strlen(reason));
	put_header(record, "outbox-leg", record->leg, strlen(record->leg));
	if (wait_ms < 0)
		return;

	snprintf(record->at, NUMBER, "%" PRId64, clock_wall_us() / 1000 + wait_ms);
	put_header(record, "outbox-retry-at", record->at, strlen(record->at));
}

static void put_headers(struct redelivery_record *record, const char *group, int64_t wait_ms)
{
	const struct outbox_inbox_message *message = &record->item->public;
	record->headers = xcalloc(message->header_count + OWN_HEADERS, sizeof *record->headers);
	for (size_t i = 0; i < message->header_count; i++) {
		const struct outbox_rules_header *header = &message->headers[i];
		if (!redelivery_is_own_header(header->name))
			put_header(record, header->name, header->value, header->length);
	}
	if (wait_ms == REDELIVERY_TO_ORIGIN)
		put_return_headers(record, group);
	else
		put_own_headers(record, group, wait_ms);
}

void redelivery_send(
    struct redelivery *redelivery, struct item *item, const char *topic, int64_t wait_ms)
{
	struct redelivery_record *record = xcalloc(1, sizeof *record);
	record->item = item;
	record->topic = topic;
	put_headers(record, redelivery->group, wait_ms);
	append_record(&redelivery->queue, record);
	redelivery->try_at = 0;
}

/* --- sending -------------------------------------------------------------------------------- */

/* The partition of the key; -1: any, for a record without a key. False: the topic is unknown. */
static bool find_record_partition(struct redelivery *redelivery,
    const struct redelivery_record *record, int32_t *ret_partition, struct err *err)
{
	const struct outbox_inbox_message *message = &record->item->public;
	struct known_topic topic =
	    topic_metadata_get(redelivery->metadata, record->topic, TOPIC_AGE_MS);

	if (topic.state != TOPIC_THERE || topic.partitions <= 0)
		return err_set(err, ERR_RETRY, "%s%s%s",
		    topic.state == TOPIC_MISSING || topic.error[0] ? record->topic : "",
		    topic.state == TOPIC_MISSING ? " does not exist: make the topic" : "",
		    topic.error);

	*ret_partition =
	    message->key ? partitioner_of_key(message->key, message->key_length, topic.partitions)
			 : -1;
	return true;
}

static bool send_redelivery(
    struct redelivery *redelivery, struct redelivery_record *record, struct err *err)
{
	const struct outbox_inbox_message *message = &record->item->public;
	struct producer_record produced = {
	    .key = message->key,
	    .key_length = message->key_length,
	    .payload = message->payload,
	    .payload_length = message->payload_length,
	    .timestamp_ms = message->time_ms,
	    .headers = record->headers,
	    .header_count = record->header_count,
	    .opaque = record,
	};

	if (!find_record_partition(redelivery, record, &produced.partition, err))
		return false;

	produced.topic = producer_topic(redelivery->producer, record->topic, err);
	return produced.topic && producer_send(redelivery->producer, &produced, err);
}

static void refuse_record(struct redelivery *redelivery, struct redelivery_list *list,
    struct redelivery_record *record, const struct err *why)
{
	record->refused = true;
	record->why = *why;
	remove_record(list, record);
	append_record(&redelivery->over, record);
}

static bool make_clients(struct redelivery *redelivery, struct err *err)
{
	if (!redelivery->metadata)
		redelivery->metadata = topic_metadata_create(redelivery->kafka, err);
	if (redelivery->metadata && !redelivery->producer)
		redelivery->producer =
		    producer_create(redelivery->kafka, NULL, QUEUE_BYTES, QUEUE_MESSAGES, 1, err);
	return redelivery->producer;
}

static void report_waiting(struct redelivery *redelivery, const struct err *err, int64_t now_ms)
{
	bool asks = !err->message[0]; /* this topic is requested for the first time */
	if (asks || (redelivery->told_at && now_ms - redelivery->told_at < LATE_MS))
		return;
	redelivery->told_at = now_ms;
	log_warn("inbox_redelivery_waits", {"group", LOG_TEXT(redelivery->group)},
	    {"error", LOG_TEXT(err->message)},
	    {"consequence", LOG_TEXT("failed messages wait until the topic accepts them; their "
				     "offsets are not committed")});
}

static void send_queue(struct redelivery *redelivery, int64_t now_ms)
{
	struct err err;

	while (redelivery->queue.first && !(redelivery->alone && redelivery->sent.first)) {
		struct redelivery_record *record = redelivery->queue.first;
		if (make_clients(redelivery, &err) && send_redelivery(redelivery, record, &err)) {
			remove_record(&redelivery->queue, record);
			append_record(&redelivery->sent, record);
		} else if (err.kind == ERR_REJECT) {
			refuse_record(redelivery, &redelivery->queue, record, &err);
		} else {
			redelivery->try_at = now_ms + AGAIN_MS;
			report_waiting(redelivery, &err, now_ms);
			return;
		}
	}
}

/* --- reports -------------------------------------------------------------------------------- */

/* Kafka refuses a batch as a whole: only a record that was sent alone is surely the refused one. */
static void take_record_refusal(struct redelivery *redelivery, struct redelivery_record *record,
    const struct producer_report *report)
{
	struct err err;
	if (report->purged || producer_error_kind(report->error) != ERR_REJECT)
		return;
	if (!redelivery->alone) {
		redelivery->alone = redelivery->sent.count;
		return;
	}
	err_set(
	    &err, ERR_REJECT, "topic %s: %s", record->topic, producer_error_text(report->error));
	refuse_record(redelivery, &redelivery->sent, record, &err);
	redelivery->alone--;
}

static void take_record_report(struct redelivery *redelivery, const struct producer_report *report)
{
	struct redelivery_record *record = report->opaque;
	if (report->error) {
		take_record_refusal(redelivery, record, report);
		return;
	}
	remove_record(&redelivery->sent, record);
	append_record(&redelivery->over, record);
	redelivery->alone -= redelivery->alone > 0;
}

static void take_record_reports(struct redelivery *redelivery)
{
	struct producer_report reports[REPORTS];
	int count;
	do {
		count = producer_poll(redelivery->producer, reports, REPORTS);
		for (int i = 0; i < count; i++)
			take_record_report(redelivery, &reports[i]);
	} while (count == REPORTS);
}

/* Moves all records that were sent and not acknowledged back to the front of the queue. */
static void replace_producer(struct redelivery *redelivery)
{
	struct redelivery_list queue = redelivery->sent;
	producer_destroy(redelivery->producer, CLOSE_MS);
	redelivery->producer = NULL;
	redelivery->broken_until = 0;
	redelivery->sent = (struct redelivery_list){0};
	for (struct redelivery_record *record; (record = redelivery->queue.first);) {
		remove_record(&redelivery->queue, record);
		append_record(&queue, record);
	}
	redelivery->queue = queue;
}

static void mend_producer(struct redelivery *redelivery, int64_t now_ms)
{
	struct err why;
	bool fatal = producer_is_fatal(redelivery->producer, &why);

	if (!fatal && !producer_is_stale(redelivery->producer))
		return;
	if (!redelivery->broken_until) {
		redelivery->broken_until = now_ms + PATIENCE_MS;
		if (fatal)
			log_warn("inbox_redelivery_restarts",
			    {"group", LOG_TEXT(redelivery->group)},
			    {"error", LOG_TEXT(why.message)},
			    {"consequence",
				LOG_TEXT("a new producer sends the unacknowledged records again")});
	}

	if (redelivery->sent.count == 0 || now_ms >= redelivery->broken_until)
		replace_producer(redelivery);
}

int64_t redelivery_step(struct redelivery *redelivery, int64_t now_ms)
{
	if (redelivery->producer) {
		take_record_reports(redelivery);
		mend_producer(redelivery, now_ms);
	}
	if (redelivery->queue.first && !redelivery->broken_until && now_ms >= redelivery->try_at)
		send_queue(redelivery, now_ms);
	if (redelivery->broken_until)
		return now_ms + 20;
	return redelivery->queue.first && !redelivery->sent.first ? redelivery->try_at : INT64_MAX;
}

int redelivery_fd(const struct redelivery *redelivery)
{
	return redelivery->producer ? producer_fd(redelivery->producer) : -1;
}

struct item *redelivery_take(struct redelivery *redelivery, bool *ret_refused, struct err *ret_why)
{
	struct redelivery_record *record = redelivery->over.first;
	if (!record)
		return NULL;
	struct item *item = record->item;
	*ret_refused = record->refused;
	*ret_why = record->why;
	remove_record(&redelivery->over, record);
	free_record(record);
	return item;
}

size_t redelivery_count(const struct redelivery *redelivery)
{
	return redelivery->queue.count + redelivery->sent.count + redelivery->over.count;
}

/* --- life ----------------------------------------------------------------------------------- */

struct redelivery *redelivery_create(const struct kafka_settings *kafka, const char *group)
{
	struct redelivery *redelivery = xcalloc(1, sizeof *redelivery);
	redelivery->kafka = kafka;
	redelivery->group = group;
	return redelivery;
}

void redelivery_drop(struct redelivery *redelivery)
{
	producer_destroy(redelivery->producer, CLOSE_MS);
	redelivery->producer = NULL;
	redelivery->broken_until = 0;
	free_records(&redelivery->queue);
	free_records(&redelivery->sent);
	free_records(&redelivery->over);
}

void redelivery_destroy(struct redelivery *redelivery)
{
	if (!redelivery)
		return;
	redelivery_drop(redelivery);
	topic_metadata_destroy(redelivery->metadata);
	free(redelivery);
}
