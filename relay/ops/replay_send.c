/*
 * Sends the rows of a replay in the order of their keys, and knows up to which id everything is
 * acknowledged. Rows go in by replay_send_add; replay_send_step reads reports and sends.
 */
#include "replay_send.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include "backoff.h"
#include "cleanup.h"
#include "clock.h"
#include "partitioner.h"
#include "producer.h"
#include "record_headers.h"

enum {
	REPORTS = 1024,
	FAILURES = 5,         /* maximum of consecutive producers without an acknowledged record */
	LAST_REPORTS_MS = 50, /* time for the last reports of a broken producer */
	PRODUCER_END_MS = 1000,
	METADATA_MS = 200,
	TOPIC_AGE_MS =
	    3600000, /* partitions do not change while a replay runs, as far as it goes */
};

struct topic {
	char *name;
	int32_t partitions; /* 0: not known yet */
	enum topic_headers headers;
	bool ready; /* this producer knows its partitions */
	struct producer_topic *handle;
	int32_t *flying; /* of each partition */
	bool *proven;    /* this producer had a record acknowledged there */
};

struct entry {
	struct message message;
	int topic; /* -1: not looked for yet */
	int32_t partition;
	enum { WAITS, SENT, WRITTEN } state;
};

struct replay_send {
	const struct publisher_settings *publisher;
	struct topic_metadata *metadata;
	const char *target;
	int64_t replay_id;
	char replay_text[24];
	struct topic *topics;
	int topic_count;
	/* rows by a number that counts up; capacity is a power of two */
	struct entry *ring;
	int64_t capacity, first, next, end;
	int64_t fresh; /* rows before it were sent at least once */
	int64_t bytes, flying, last_id, done;
	struct producer *producer; /* NULL: not now */
	struct record_headers headers;
	struct backoff backoff;
	int64_t create_at;
	int failures;
	int64_t alone_until; /* rows before it are sent one by one */
	bool refused;
	int64_t guilty; /* the row that Kafka refused alone; -1: none */
	char why[512];
	struct producer_report reports[REPORTS];
};

static struct entry *entry_at(struct replay_send *send, int64_t number)
{
	return &send->ring[number & (send->capacity - 1)];
}

static bool make_replay_producer(struct replay_send *send, struct err *err)
{
	send->producer = producer_create(send->publisher->kafka, NULL, send->publisher->memory,
	    publisher_settings_in_flight(send->publisher), 1, err);
	return send->producer != NULL;
}

struct replay_send *replay_send_create(const struct publisher_settings *publisher,
    struct topic_metadata *metadata, int64_t replay_id, const char *target, int64_t last_id,
    struct err *err)
{
	struct replay_send *send = xcalloc(1, sizeof *send);

	*send = (struct replay_send){.publisher = publisher,
	    .metadata = metadata,
	    .target = target,
	    .replay_id = replay_id,
	    .last_id = last_id,
	    .capacity = 1024,
	    .guilty = -1,
	    .backoff = {
		.first_ms = 20, .cap_ms = 2000, .jitter = 0.2, .seed = (uint64_t)clock_random()}};
	snprintf(send->replay_text, sizeof send->replay_text, "%" PRId64, replay_id);
	send->ring = xcalloc((size_t)send->capacity, sizeof *send->ring);
	if (make_replay_producer(send, err))
		return send;
	replay_send_destroy(send);
	return NULL;
}

void replay_send_destroy(struct replay_send *send)
{
	if (!send)
		return;

	producer_destroy(send->producer, PRODUCER_END_MS); /* it owns the payloads until here */
	for (int64_t i = send->first; i < send->end; i++)
		message_release(&entry_at(send, i)->message);
	for (int i = 0; i < send->topic_count; i++) {
		free(send->topics[i].name);
		free(send->topics[i].flying);
		free(send->topics[i].proven);
	}
	record_headers_finish(&send->headers);
	free(send->topics);
	free(send->ring);
	free(send);
}

/* --- rows in --------------------------------------------------------------------------------- */

static void grow_ring(struct replay_send *send)
{
	struct entry *ring = xcalloc((size_t)send->capacity * 2, sizeof *ring);

	for (int64_t i = send->first; i < send->end; i++)
		ring[i & (send->capacity * 2 - 1)] = *entry_at(send, i);
	free(send->ring);
	send->ring = ring;
	send->capacity *= 2;
}

void replay_send_add(struct replay_send *send, const struct message *message)
{
	if (send->end - send->first == send->capacity)
		grow_ring(send);
	*entry_at(send, send->end++) = (struct entry){.message = *message, .topic = -1};
	send->bytes += message->bytes;
}

/* Does a row in memory share its id with the row behind it? */
static bool shares_id_with_next_row(struct replay_send *send, int64_t number)
{
	return number + 1 < send->end &&
	       entry_at(send, number)->message.id == entry_at(send, number + 1)->message.id;
}

/* Releases the acknowledged records at the beginning: they are finished. */
static void release_written(struct replay_send *send)
{
	/* stops at the first gap: last_id promises that everything up to it is acknowledged */
	while (send->first < send->end && entry_at(send, send->first)->state == WRITTEN) {
		bool shares_id = shares_id_with_next_row(send, send->first);
		struct message *message = &entry_at(send, send->first++)->message;

		/* a replay that is resumed begins behind last_id, so it must not split an id */
		if (!shares_id) {
			send->last_id = message->id;
			send->done = send->first;
		}
		send->bytes -= message->bytes;
		message_release(message);
	}
	send->next = send->next < send->first ? send->first : send->next;
}

/* --- topics ---------------------------------------------------------------------------------- */

static int topic_number(struct replay_send *send, const char *name, size_t length)
{
	int i = 0;

	while (i < send->topic_count && !(strlen(send->topics[i].name) == length &&
					    strncmp(send->topics[i].name, name, length) == 0))
		i++;
	if (i == send->topic_count) {
		send->topics =
		    xrealloc(send->topics, (size_t)++send->topic_count * sizeof *send->topics);
		send->topics[i] = (struct topic){.name = xformat("%.*s", (int)length, name)};
		send->topics[i].headers =
		    send->publisher->headers(send->publisher->context, send->topics[i].name);
	}
	return i;
}

static bool find_partitions(
    struct replay_send *send, struct topic *topic, bool *ret_ready, struct err *err)
{
	struct known_topic known = topic_metadata_get(send->metadata, topic->name, TOPIC_AGE_MS);

	*ret_ready = known.state == TOPIC_THERE;
	text_copy(send->why, sizeof send->why, known.error);
	if (known.state == TOPIC_MISSING)
		return err_set(
		    err, ERR_REJECT, "topic %s does not exist in Kafka: create it", topic->name);
	if (*ret_ready) {
		topic->partitions = known.partitions;
		topic->flying = xcalloc((size_t)known.partitions, sizeof *topic->flying);
		topic->proven = xcalloc((size_t)known.partitions, sizeof *topic->proven);
	}
	return true;
}

/* *ret_ready false: not yet. */
static bool make_ready(
    struct replay_send *send, struct topic *topic, bool *ret_ready, struct err *err)
{
	*ret_ready = topic->ready;
	if (topic->ready)
		return true;
	if (topic->partitions == 0) {
		if (!find_partitions(send, topic, ret_ready, err))
			return false;
		if (!*ret_ready)
			return true;
	}

	/* handles belong to a producer: a new one has to learn the partitions again */
	topic->handle = producer_topic(send->producer, topic->name, err);
	topic->ready = topic->handle && producer_knows(send->producer, topic->handle,
					    topic->partitions, METADATA_MS);
	*ret_ready = topic->ready;
	return topic->handle != NULL;
}

static bool choose_place(struct replay_send *send, struct entry *entry, struct err *err)
{
	const struct message *message = &entry->message;
	const struct topic *topic = &send->topics[entry->topic];

	entry->partition = message->partition;
	/* the key decides as for the publisher, so that a replayed row follows the records of
	 * its key */
	if (message->partition < 0 && message->key)
		entry->partition = partitioner_of_key(
		    message->key, (size_t)message->key_length, topic->partitions);

	/* the topic may have fewer partitions than the one that the row was written for */
	if (entry->partition >= topic->partitions)
		return err_set(err, ERR_REJECT,
		    "the row asks for partition %d, and topic %s has %d: choose another target "
		    "(`to`)",
		    entry->partition, topic->name, topic->partitions);
	return true;
}

/* --- reports in ------------------------------------------------------------------------------ */

static void take_replay_report(struct replay_send *send, const struct producer_report *report)
{
	int64_t number = (int64_t)(uintptr_t)report->opaque;
	struct entry *entry = entry_at(send, number);
	struct topic *topic = &send->topics[entry->topic];
	bool alone = send->flying == 1 && number < send->alone_until;

	send->flying--;
	if (entry->partition >= 0)
		topic->flying[entry->partition]--;
	if (report->error == 0) {
		entry->state = WRITTEN;
		send->failures = 0;
		backoff_reset(&send->backoff);
		if (entry->partition >= 0)
			topic->proven[entry->partition] = true;
		return;
	}
	entry->state = WAITS;
	/* such records are sent again by the next producer; only a refusal blames a record */
	if (report->purged || producer_error_kind(report->error) != ERR_REJECT)
		return;
	send->refused = true;
	text_copy(send->why, sizeof send->why, producer_error_text(report->error));
	/* the records of a batch share its error: only one that was alone is the cause */
	if (alone)
		send->guilty = number;
}

static void take_replay_reports(struct replay_send *send)
{
	int count;

	do {
		count = producer_poll(send->producer, send->reports, REPORTS);
		for (int i = 0; i < count; i++)
			take_replay_report(send, &send->reports[i]);
	} while (count == REPORTS);
	release_written(send);
}

/* --- the producer's life --------------------------------------------------------------------- */

static void forget_producer(struct replay_send *send)
{
	producer_destroy(send->producer, PRODUCER_END_MS);
	send->producer = NULL;
	send->flying = 0;
	/* one of the records that were sent is refused; sent one by one, it names itself */
	if (send->refused)
		send->alone_until = send->fresh;
	send->refused = false;
	for (int64_t i = send->first; i < send->end; i++)
		if (entry_at(send, i)->state == SENT)
			entry_at(send, i)->state = WAITS;

	/* records without an acknowledgement go again from the first on, so that keys keep their
	 * order */
	send->next = send->first;
	for (int i = 0; i < send->topic_count; i++) {
		struct topic *topic = &send->topics[i];

		topic->ready = false;
		if (topic->partitions == 0)
			continue;
		/* a new producer has proven nothing: each partition begins with a single record
		 * again */
		memset(topic->flying, 0, (size_t)topic->partitions * sizeof *topic->flying);
		memset(topic->proven, 0, (size_t)topic->partitions * sizeof *topic->proven);
	}
}

static bool name_row(const struct entry *entry, struct err *err)
{
	return err_prefix(err, "id %" PRId64 " for topic %.*s", entry->message.id,
	    entry->message.topic_length, entry->message.topic);
}

static bool abandon_replay_producer(struct replay_send *send, const char *why, struct err *err)
{
	int64_t until = clock_ms() + LAST_REPORTS_MS;

	/* acknowledgements that are on their way spare duplicates */
	while (send->flying > 0 && clock_ms() < until) {
		poll(NULL, 0, 2);
		take_replay_reports(send);
	}
	if (send->guilty >= 0) {
		err_set(err, ERR_REJECT,
		    "Kafka refuses the record for good: %s; change the topic's settings",
		    send->why);
		return name_row(entry_at(send, send->guilty), err);
	}
	/* a refusal leads to the refused record, and so to an end; other failures may never end */
	if (!send->refused && ++send->failures > FAILURES)
		return err_set(err, ERR_RETRY, "%s; no record was written by %d producers in a row",
		    why, FAILURES);
	forget_producer(send);
	send->create_at = clock_ms() + backoff_next_ms(&send->backoff);
	return true;
}

/* --- records out ----------------------------------------------------------------------------- */

static bool may_go(const struct replay_send *send, const struct entry *entry, int64_t number)
{
	const struct topic *topic = &send->topics[entry->topic];

	if (number < send->alone_until)
		return send->flying == 0;
	/* a null key has no order */
	return entry->partition < 0 || topic->proven[entry->partition] ||
	       topic->flying[entry->partition] == 0;
}

static bool send_replay_record(
    struct replay_send *send, struct entry *entry, int64_t number, struct err *err)
{
	const struct message *message = &entry->message;

	if (!record_headers_begin(&send->headers, message, err))
		return false;
	if (send->topics[entry->topic].headers == TOPIC_HEADERS_FULL)
		record_headers_add_id(&send->headers, message);
	record_headers_add(
	    &send->headers, "outbox-replay", send->replay_text, strlen(send->replay_text));

	const struct producer_record record = {
	    .topic = send->topics[entry->topic].handle,
	    .partition = entry->partition,
	    .key = message->key,
	    .key_length = (size_t)message->key_length,
	    .payload = message->payload,
	    .payload_length = (size_t)message->payload_length,
	    .timestamp_ms =
		send->publisher->timestamp == TIMESTAMP_CREATED ? message->created_us / 1000 : 0,
	    .headers = send->headers.list,
	    .header_count = send->headers.count,
	    .opaque = (void *)(uintptr_t)number,
	};
	return producer_send(send->producer, &record, err);
}

/* *ret_gone false: not now. */
static bool send_if_ready(struct replay_send *send, int64_t number, bool *ret_gone, struct err *err)
{
	struct entry *entry = entry_at(send, number);
	const struct message *message = &entry->message;
	struct err failed = {.message = ""};
	bool ready;

	*ret_gone = false;
	if (entry->topic < 0)
		entry->topic = send->target ? topic_number(send, send->target, strlen(send->target))
					    : topic_number(send, message->topic,
						  (size_t)message->topic_length);
	if (make_ready(send, &send->topics[entry->topic], &ready, &failed) && !ready)
		return true;
	if (ready && choose_place(send, entry, &failed)) {
		if (!may_go(send, entry, number))
			return true;
		*ret_gone = send_replay_record(send, entry, number, &failed);
	}
	if (*ret_gone || failed.kind != ERR_REJECT || send->flying > 0)
		return true; /* records under way finish before the replay gives up */
	*err = failed;
	return name_row(entry, err);
}

static void note_sent(struct replay_send *send, int64_t number, int64_t *ret_sent)
{
	struct entry *entry = entry_at(send, number);

	entry->state = SENT;
	send->flying++;
	if (entry->partition >= 0)
		send->topics[entry->topic].flying[entry->partition]++;
	if (number >= send->fresh) {
		send->fresh = number + 1;
		++*ret_sent;
	}
}

static bool send_waiting_records(
    struct replay_send *send, int64_t limit, int64_t most, int64_t *ret_sent, struct err *err)
{
	bool gone = true;

	for (; send->next < send->end && send->next < limit; send->next++) {
		if (entry_at(send, send->next)->state != WAITS)
			continue;
		/* the rate counts rows once: records that are sent again do not use it up */
		if (send->next >= send->fresh && *ret_sent >= most)
			return true;
		if (!send_if_ready(send, send->next, &gone, err))
			return false;
		/* a later record may be of the same key, so none passes one that cannot go yet */
		if (!gone)
			return true;
		note_sent(send, send->next, ret_sent);
	}
	return true;
}

bool replay_send_step(struct replay_send *send, int64_t noted, int64_t ahead, int64_t most,
    int64_t *ret_sent, struct err *err)
{
	struct err why;

	*ret_sent = 0;
	/* the backoff after a broken producer: a broker that fails at once is not flooded */
	if (!send->producer && clock_ms() < send->create_at)
		return true;
	if (!send->producer && !make_replay_producer(send, err))
		return false;
	take_replay_reports(send);
	if (producer_is_fatal(send->producer, &why))
		return abandon_replay_producer(send, why.message, err);
	return send_waiting_records(send, noted + ahead, most, ret_sent, err);
}

/* --- what is known --------------------------------------------------------------------------- */

struct replay_send_state replay_send_state(const struct replay_send *send)
{
	return (struct replay_send_state){
	    .last_id = send->last_id,
	    .done = send->done,
	    .acknowledged = send->first,
	    .waiting = send->end - send->fresh,
	    .unacked = send->end - send->first,
	    .flying = send->flying,
	    .bytes = send->bytes,
	};
}

int replay_send_fd(const struct replay_send *send)
{
	return send->producer ? producer_fd(send->producer) : -1;
}

const char *replay_send_error(struct replay_send *send)
{
	char text[sizeof send->why];

	if (send->producer && producer_last_error(send->producer, text, sizeof text))
		text_copy(send->why, sizeof send->why, text);
	return send->why[0] ? send->why : "no acknowledgement from Kafka";
}
