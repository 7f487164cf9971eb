#include "letters.h"

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
	AGAIN_MS = 100,     /* a topic that is not there, brokers that are away */
	PATIENCE_MS = 5000, /* for the reports of a producer that is broken */
	QUEUE_BYTES = 16 << 20,
	QUEUE_MESSAGES = 10000,
	REPORTS = 100,
	CLOSE_MS = 2000,
	OWN_HEADERS = 10,
	NUMBER = 24,
	LATE_MS = 10000, /* between two lines of the log about one topic */
};

struct letter {
	struct letter *next, *before; /* of the queue, or of those under way */
	struct item *item;
	const char *topic;
	struct producer_header *headers;
	int header_count;
	char partition[NUMBER], offset[NUMBER], time[NUMBER], attempts[NUMBER], at[NUMBER];
	char *leg;
	bool refused;
	struct err why;
};

struct letter_list {
	struct letter *first, *last;
	size_t count;
};

struct letters {
	const struct config_kafka *kafka;
	const char *group;
	struct topic_metadata *metadata;
	struct producer *producer;
	struct letter_list queue, sent, over;
	int64_t broken_until; /* 0: the producer works */
	size_t alone;         /* so many go one at a time: one of them was refused in a batch */
	int64_t try_at, told_at;
};

static const char *const own_headers[] = {"outbox-group", "outbox-origin-topic",
    "outbox-origin-partition", "outbox-origin-offset", "outbox-origin-time",
    "outbox-origin-position", "outbox-attempts", "outbox-reason", "outbox-leg", "outbox-retry-at"};

bool letters_is_own_header(const char *name)
{
	for (size_t i = 0; i < sizeof own_headers / sizeof *own_headers; i++)
		if (text_equal(own_headers[i], name))
			return true;
	return text_equal(name, "outbox-position");
}

/* --- lists ---------------------------------------------------------------------------------- */

static void add(struct letter_list *list, struct letter *letter)
{
	letter->next = NULL;
	letter->before = list->last;
	if (list->last)
		list->last->next = letter;
	else
		list->first = letter;
	list->last = letter;
	list->count++;
}

static void remove_from(struct letter_list *list, struct letter *letter)
{
	*(letter->before ? &letter->before->next : &list->first) = letter->next;
	*(letter->next ? &letter->next->before : &list->last) = letter->before;
	list->count--;
}

static void free_letter(struct letter *letter)
{
	free(letter->headers);
	free(letter->leg);
	free(letter);
}

static void free_list(struct letter_list *list)
{
	for (struct letter *letter; (letter = list->first);) {
		remove_from(list, letter);
		free_letter(letter);
	}
}

/* --- headers -------------------------------------------------------------------------------- */

static void put(struct letter *letter, const char *name, const void *value, size_t length)
{
	letter->headers[letter->header_count++] =
	    (struct producer_header){name, (int32_t)strlen(name), value, (int32_t)length};
}

/* What a letter before this one said of it, else this. */
static void put_origin(struct letter *letter, const char *name, const char *value)
{
	const struct outbox_rules_header *said = item_header(letter->item, name);
	if (said)
		put(letter, name, said->value, said->length);
	else
		put(letter, name, value, strlen(value));
}

static void put_position(struct letter *letter)
{
	static const char name[] = "outbox-origin-position";
	const struct outbox_rules_header *position = item_header(letter->item, "outbox-position");
	if (!position)
		position = item_header(letter->item, name);
	if (position)
		put(letter, name, position->value, position->length);
}

/* The way so far, and this step of it: the same each time this message comes to be sent on. */
static char *leg_of(const struct letter *letter)
{
	const struct outbox_rules_header *before = item_header(letter->item, "outbox-leg");
	return xformat("%.*s/%s", before ? (int)before->length : 0,
	    before ? (const char *)before->value : "", letter->topic);
}

/* A dead letter that goes back begins a way of its own, known by its place among dead letters. */
static void put_back(struct letter *letter, const char *group)
{
	const struct outbox_inbox_message *message = &letter->item->public;
	letter->leg =
	    xformat("%s/%" PRId32 "/%" PRId64, message->topic, message->partition, message->offset);
	put(letter, "outbox-group", group, strlen(group));
	put(letter, "outbox-leg", letter->leg, strlen(letter->leg));
}

static void put_own(struct letter *letter, const char *group, int64_t wait_ms)
{
	const struct outbox_inbox_message *message = &letter->item->public;
	const char *reason = letter->item->reason ? letter->item->reason : "";
	snprintf(letter->partition, NUMBER, "%" PRId32, message->partition);
	snprintf(letter->offset, NUMBER, "%" PRId64, message->offset);
	snprintf(letter->time, NUMBER, "%" PRId64, message->time_ms);
	snprintf(letter->attempts, NUMBER, "%d", message->attempt);
	letter->leg = leg_of(letter);
	put(letter, "outbox-group", group, strlen(group));
	put_origin(letter, "outbox-origin-topic", message->topic);
	put_origin(letter, "outbox-origin-partition", letter->partition);
	put_origin(letter, "outbox-origin-offset", letter->offset);
	put_origin(letter, "outbox-origin-time", letter->time);
	put_position(letter);
	put(letter, "outbox-attempts", letter->attempts, strlen(letter->attempts));
	put(letter, "outbox-reason", reason, strlen(reason));
	put(letter, "outbox-leg", letter->leg, strlen(letter->leg));
	if (wait_ms < 0)
		return;
	snprintf(letter->at, NUMBER, "%" PRId64, clock_wall_us() / 1000 + wait_ms);
	put(letter, "outbox-retry-at", letter->at, strlen(letter->at));
}

static void put_all(struct letter *letter, const char *group, int64_t wait_ms)
{
	const struct outbox_inbox_message *message = &letter->item->public;
	letter->headers = xcalloc(message->header_count + OWN_HEADERS, sizeof *letter->headers);
	for (size_t i = 0; i < message->header_count; i++) {
		const struct outbox_rules_header *header = &message->headers[i];
		if (!letters_is_own_header(header->name))
			put(letter, header->name, header->value, header->length);
	}
	if (wait_ms == LETTER_BACK)
		put_back(letter, group);
	else
		put_own(letter, group, wait_ms);
}

void letters_send(struct letters *letters, struct item *item, const char *topic, int64_t wait_ms)
{
	struct letter *letter = xcalloc(1, sizeof *letter);
	letter->item = item;
	letter->topic = topic;
	put_all(letter, letters->group, wait_ms);
	add(&letters->queue, letter);
	letters->try_at = 0;
}

/* --- sending -------------------------------------------------------------------------------- */

/* Of the letter's key; -1: any, for one without. False: nobody knows the topic (yet). */
static bool find_partition(
    struct letters *letters, const struct letter *letter, int32_t *ret_partition, struct err *err)
{
	const struct outbox_inbox_message *message = &letter->item->public;
	struct known_topic topic =
	    topic_metadata_get(letters->metadata, letter->topic, TOPIC_AGE_MS);
	if (topic.state != TOPIC_THERE || topic.partitions <= 0)
		return err_set(err, ERR_RETRY, "%s%s%s",
		    topic.state == TOPIC_MISSING || topic.error[0] ? letter->topic : "",
		    topic.state == TOPIC_MISSING ? " does not exist: make the topic" : "",
		    topic.error);
	*ret_partition =
	    message->key ? partitioner_of_key(message->key, message->key_length, topic.partitions)
			 : -1;
	return true;
}

static bool send_one(struct letters *letters, struct letter *letter, struct err *err)
{
	const struct outbox_inbox_message *message = &letter->item->public;
	struct producer_record record = {
	    .key = message->key,
	    .key_length = message->key_length,
	    .payload = message->payload,
	    .payload_length = message->payload_length,
	    .timestamp_ms = message->time_ms,
	    .headers = letter->headers,
	    .header_count = letter->header_count,
	    .opaque = letter,
	};
	if (!find_partition(letters, letter, &record.partition, err))
		return false;
	record.topic = producer_topic(letters->producer, letter->topic, err);
	return record.topic && producer_send(letters->producer, &record, err);
}

static void refuse(
    struct letters *letters, struct letter_list *list, struct letter *letter, const struct err *why)
{
	letter->refused = true;
	letter->why = *why;
	remove_from(list, letter);
	add(&letters->over, letter);
}

static bool make_clients(struct letters *letters, struct err *err)
{
	if (!letters->metadata)
		letters->metadata = topic_metadata_create(letters->kafka, err);
	if (letters->metadata && !letters->producer)
		letters->producer =
		    producer_create(letters->kafka, NULL, QUEUE_BYTES, QUEUE_MESSAGES, 1, err);
	return letters->producer;
}

static void tell(struct letters *letters, const struct err *err, int64_t now_ms)
{
	bool asks = !err->message[0]; /* for a topic, for the first time */
	if (asks || (letters->told_at && now_ms - letters->told_at < LATE_MS))
		return;
	letters->told_at = now_ms;
	log_warn("inbox_letter_waits", {"group", LOG_TEXT(letters->group)},
	    {"error", LOG_TEXT(err->message)});
}

static void send_queue(struct letters *letters, int64_t now_ms)
{
	struct err err;
	while (letters->queue.first && !(letters->alone && letters->sent.first)) {
		struct letter *letter = letters->queue.first;
		if (make_clients(letters, &err) && send_one(letters, letter, &err)) {
			remove_from(&letters->queue, letter);
			add(&letters->sent, letter);
		} else if (err.kind == ERR_REJECT) {
			refuse(letters, &letters->queue, letter, &err);
		} else {
			letters->try_at = now_ms + AGAIN_MS;
			tell(letters, &err, now_ms);
			return;
		}
	}
}

/* --- reports -------------------------------------------------------------------------------- */

/* Kafka refuses a batch as a whole: only a letter that was alone is the one that is meant. */
static void take_refusal(
    struct letters *letters, struct letter *letter, const struct producer_report *report)
{
	struct err err;
	if (report->purged || producer_error_kind(report->error) != ERR_REJECT)
		return;
	if (!letters->alone) {
		letters->alone = letters->sent.count;
		return;
	}
	err_set(
	    &err, ERR_REJECT, "topic %s: %s", letter->topic, producer_error_text(report->error));
	refuse(letters, &letters->sent, letter, &err);
	letters->alone--;
}

static void take_report(struct letters *letters, const struct producer_report *report)
{
	struct letter *letter = report->opaque;
	if (report->error) {
		take_refusal(letters, letter, report);
		return;
	}
	remove_from(&letters->sent, letter);
	add(&letters->over, letter);
	letters->alone -= letters->alone > 0;
}

static void take_reports(struct letters *letters)
{
	struct producer_report reports[REPORTS];
	int count;
	do {
		count = producer_poll(letters->producer, reports, REPORTS);
		for (int i = 0; i < count; i++)
			take_report(letters, &reports[i]);
	} while (count == REPORTS);
}

/* All that were sent and not acknowledged come first again. */
static void begin_anew(struct letters *letters)
{
	struct letter_list queue = letters->sent;
	producer_destroy(letters->producer, CLOSE_MS);
	letters->producer = NULL;
	letters->broken_until = 0;
	letters->sent = (struct letter_list){0};
	for (struct letter *letter; (letter = letters->queue.first);) {
		remove_from(&letters->queue, letter);
		add(&queue, letter);
	}
	letters->queue = queue;
}

static void mend(struct letters *letters, int64_t now_ms)
{
	struct err why;
	if (!producer_is_fatal(letters->producer, &why))
		return;
	if (!letters->broken_until) {
		letters->broken_until = now_ms + PATIENCE_MS;
		log_warn("inbox_letters_anew", {"group", LOG_TEXT(letters->group)},
		    {"error", LOG_TEXT(why.message)});
	}
	if (letters->sent.count == 0 || now_ms >= letters->broken_until)
		begin_anew(letters);
}

int64_t letters_step(struct letters *letters, int64_t now_ms)
{
	if (letters->producer) {
		take_reports(letters);
		mend(letters, now_ms);
	}
	if (letters->queue.first && !letters->broken_until && now_ms >= letters->try_at)
		send_queue(letters, now_ms);
	if (letters->broken_until)
		return now_ms + 20;
	return letters->queue.first && !letters->sent.first ? letters->try_at : INT64_MAX;
}

int letters_fd(const struct letters *letters)
{
	return letters->producer ? producer_fd(letters->producer) : -1;
}

struct item *letters_take(struct letters *letters, bool *ret_refused, struct err *ret_why)
{
	struct letter *letter = letters->over.first;
	if (!letter)
		return NULL;
	struct item *item = letter->item;
	*ret_refused = letter->refused;
	*ret_why = letter->why;
	remove_from(&letters->over, letter);
	free_letter(letter);
	return item;
}

size_t letters_count(const struct letters *letters)
{
	return letters->queue.count + letters->sent.count + letters->over.count;
}

/* --- life ----------------------------------------------------------------------------------- */

struct letters *letters_create(const struct config_kafka *kafka, const char *group)
{
	struct letters *letters = xcalloc(1, sizeof *letters);
	letters->kafka = kafka;
	letters->group = group;
	return letters;
}

void letters_drop(struct letters *letters)
{
	producer_destroy(letters->producer, CLOSE_MS);
	letters->producer = NULL;
	letters->broken_until = 0;
	free_list(&letters->queue);
	free_list(&letters->sent);
	free_list(&letters->over);
}

void letters_destroy(struct letters *letters)
{
	if (!letters)
		return;
	letters_drop(letters);
	topic_metadata_destroy(letters->metadata);
	free(letters);
}
