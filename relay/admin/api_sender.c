/*
 * One thread that sends records of the HTTP interface to Kafka until they are acknowledged or their
 * time is over. Begin at run_api_sender: take arrivals, hand them to the producer, read reports,
 * and replace a broken producer.
 */
#include "api_sender.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <utlist.h>
#include "cleanup.h"
#include "clock.h"
#include "partitioner.h"
#include "producer.h"

enum {
	QUEUE_BYTES = 64 << 20, /* maximum in librdkafka; the rest waits here */
	QUEUE_RECORDS = 100000,
	REPORTS = 256,
	TURN_MS = 1000,
	AGAIN_MS = 50,           /* until the next try when a record cannot be sent now */
	PATIENCE_MS = 2000,      /* for the reports of a broken producer */
	STALL_MS = 5000,         /* a producer without progress for this time may be dropped */
	PRODUCER_PAUSE_MS = 200, /* between one producer and the next */
	LEAVE_MS = 1000,
	TOPIC_AGE_MS = 60000,
};

struct outgoing_record {
	struct api_record record;
	uint64_t number; /* in the order of api_sender_put */
	struct outgoing_record *prev, *next;
	bool told;         /* its outcome was reported; librdkafka still holds the memory */
	bool alone;        /* refused once, perhaps because of another record of its batch */
	int32_t partition; /* that it was sent to */
};

struct api_sender {
	const struct kafka_settings *kafka;
	struct topic_metadata *metadata;
	int wake_fd;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards the next three */
	struct outgoing_record *arrived;
	uint64_t count;
	bool ending;

	/* of the thread; a record is in one of these, and those that wait are in their order */
	struct outgoing_record *waiting, *flying, *failed;
	struct producer *producer;
	int64_t producer_at;  /* none before */
	int64_t progress_at;  /* when the producer was made, or last made progress */
	int64_t broken_since; /* 0: it is well */
	bool stuck;           /* a record in flight is late, and the producer makes no progress */
	bool alone;           /* the only record in flight is on trial */
	bool again;           /* something is to be tried again soon */
	bool silent;          /* silence was logged, and nothing acknowledged since */
};

/* --- outcomes -------------------------------------------------------------------------------- */

static void free_outgoing(struct outgoing_record *outgoing)
{
	free(outgoing->record.key);
	free(outgoing->record.value);
	free(outgoing);
}

static void tell_outcome(struct outgoing_record *outgoing, const struct api_outcome *outcome)
{
	if (!outgoing->told)
		outgoing->record.done(outgoing->record.context, outcome);
	outgoing->told = true;
}

static void tell_failed_outcome(
    struct outgoing_record *outgoing, const char *code, const char *text)
{
	tell_outcome(outgoing, &(const struct api_outcome){code, text, -1, -1});
}

static void log_silence(struct api_sender *sender, const char *topic)
{
	char error[512] = "";

	if (sender->silent)
		return;
	sender->silent = true;
	if (sender->producer)
		producer_last_error(sender->producer, error, sizeof error);
	log_warn("api_not_acknowledged", {"kafka", LOG_TEXT(sender->kafka->name)},
	    {"topic", LOG_TEXT(topic)}, {"error", LOG_TEXT(error)},
	    {"consequence", LOG_TEXT("senders are answered with \"try again\"")});
}

static void tell_late(struct api_sender *sender, struct outgoing_record *outgoing)
{
	struct known_topic topic =
	    topic_metadata_get(sender->metadata, outgoing->record.topic, TOPIC_AGE_MS);
	owned_text char *text = NULL;

	if (topic.state == TOPIC_MISSING) {
		text = xformat("the look-back topic %s does not exist", outgoing->record.topic);
		tell_failed_outcome(outgoing, "no_topic", text);
	} else {
		tell_failed_outcome(outgoing, "no_acknowledgement",
		    "no broker acknowledged it in time; to send it again does no harm");
	}
	log_silence(sender, outgoing->record.topic);
}

/*
 * All wait equally long, so that the first of each list is the first to be given up. If a record in
 * flight was given up and the producer makes no progress, the producer is dropped, so that nothing
 * is written much later. A new producer is given time: after an outage its first records are old.
 */
static void give_up_late_records(struct api_sender *sender, int64_t now)
{
	struct outgoing_record *outgoing, *next;

	DL_FOREACH_SAFE(sender->waiting, outgoing, next)
	{
		if (now < outgoing->record.give_up_ms)
			break;
		tell_late(sender, outgoing);
		DL_DELETE(sender->waiting, outgoing);
		free_outgoing(outgoing);
	}
	DL_FOREACH(sender->flying, outgoing)
	{
		if (now < outgoing->record.give_up_ms)
			break;
		if (!outgoing->told)
			tell_late(sender, outgoing);
		sender->stuck = now - sender->progress_at >= STALL_MS;
	}
}

/* --- the producer ---------------------------------------------------------------------------- */

static int by_number(const struct outgoing_record *a, const struct outgoing_record *b)
{
	return (a->number > b->number) - (a->number < b->number);
}

/* Records that were not acknowledged wait once more, in their places. */
static void take_back_records(struct api_sender *sender, struct outgoing_record **list)
{
	struct outgoing_record *outgoing, *next;

	DL_FOREACH_SAFE(*list, outgoing, next)
	{
		DL_DELETE(*list, outgoing);
		if (outgoing->told)
			free_outgoing(outgoing);
		else
			DL_APPEND(sender->waiting, outgoing);
	}
	DL_SORT(sender->waiting, by_number);
}

static void drop_sender_producer(struct api_sender *sender)
{
	producer_destroy(sender->producer, LEAVE_MS);
	sender->producer = NULL;
	sender->producer_at = clock_ms() + PRODUCER_PAUSE_MS;
	sender->broken_since = 0;
	sender->stuck = false;
	sender->alone = false;
	take_back_records(sender, &sender->flying);
	take_back_records(sender, &sender->failed);
}

static bool have_producer(struct api_sender *sender, int64_t now)
{
	struct err err;

	/* A producer is made for the first record, and not for an interface that nobody uses. */
	if (sender->producer || !sender->waiting)
		return sender->producer != NULL;
	if (now >= sender->producer_at)
		sender->producer =
		    producer_create(sender->kafka, NULL, QUEUE_BYTES, QUEUE_RECORDS, 1, &err);
	/* A new producer has its time before it counts as stuck. */
	sender->progress_at = now;
	if (!sender->producer) {
		if (now >= sender->producer_at) {
			log_warn("api_producer", {"kafka", LOG_TEXT(sender->kafka->name)},
			    {"error", LOG_TEXT(err.message)},
			    {"consequence",
				LOG_TEXT("requests wait for a producer until their time is over")});
			sender->producer_at = now + TURN_MS;
		}
		sender->again = true;
	}
	return sender->producer != NULL;
}

/* Records in flight behind a failed one may yet turn out to be written. */
static void mind_producer(struct api_sender *sender, int64_t now)
{
	struct err why;

	if (!sender->producer)
		return;
	if (!sender->broken_since && producer_is_fatal(sender->producer, &why)) {
		sender->broken_since = now;
		log_info("api_producer_broken", {"kafka", LOG_TEXT(sender->kafka->name)},
		    {"error", LOG_TEXT(why.message)},
		    {"consequence", LOG_TEXT("what is not acknowledged is sent again")});
	}
	/* Its certificates are former ones: it is replaced in the same way. */
	if (!sender->broken_since && producer_is_stale(sender->producer))
		sender->broken_since = now;
	if (sender->stuck || (sender->broken_since &&
				 (!sender->flying || now - sender->broken_since >= PATIENCE_MS)))
		drop_sender_producer(sender);
	else if (sender->broken_since)
		sender->again = true;
}

/* --- reports --------------------------------------------------------------------------------- */

static void on_written(struct api_sender *sender, struct outgoing_record *outgoing,
    const struct producer_report *report)
{
	if (sender->silent)
		log_info("api_acknowledged", {"kafka", LOG_TEXT(sender->kafka->name)});
	sender->silent = false;
	sender->progress_at = clock_ms();
	tell_outcome(
	    outgoing, &(const struct api_outcome){NULL, "", outgoing->partition, report->offset});
	free_outgoing(outgoing);
}

/*
 * A record on trial caused its refusal itself; otherwise another record of its batch may be the
 * cause.
 */
static void on_record_refused(struct api_sender *sender, struct outgoing_record *outgoing,
    const struct producer_report *report)
{
	if (outgoing->alone) {
		tell_failed_outcome(
		    outgoing, "refused_by_broker", producer_error_text(report->error));
		free_outgoing(outgoing);
		return;
	}
	outgoing->alone = true;
	DL_APPEND(sender->failed, outgoing);
}

static void on_report(struct api_sender *sender, const struct producer_report *report)
{
	struct outgoing_record *outgoing = report->opaque;

	DL_DELETE(sender->flying, outgoing);
	sender->alone = false;
	if (!report->error)
		on_written(sender, outgoing, report);
	else if (!report->purged && producer_error_kind(report->error) == ERR_REJECT)
		on_record_refused(sender, outgoing, report);
	else
		DL_APPEND(sender->failed, outgoing);
}

static void read_reports(struct api_sender *sender)
{
	struct producer_report reports[REPORTS];
	int count;

	if (!sender->producer)
		return;
	do {
		count = producer_poll(sender->producer, reports, REPORTS);
		for (int i = 0; i < count; i++)
			on_report(sender, &reports[i]);
	} while (count == REPORTS);
}

/* --- records --------------------------------------------------------------------------------- */

enum sent { SENT, NOT_NOW, REFUSED };

static enum sent hand_to_producer(struct api_sender *sender, struct outgoing_record *outgoing,
    struct producer_topic *topic, int32_t partitions)
{
	size_t key_length = strlen(outgoing->record.key);
	struct producer_record record = {.topic = topic,
	    .partition = partitioner_of_key(outgoing->record.key, key_length, partitions),
	    .key = outgoing->record.key,
	    .key_length = key_length,
	    .payload = outgoing->record.value,
	    .payload_length = outgoing->record.length,
	    .opaque = outgoing};
	struct err err;

	outgoing->partition = record.partition;
	if (producer_send(sender->producer, &record, &err))
		return SENT;
	/* The queue is full, or the producer broke: later it may work. */
	if (err.kind != ERR_REJECT)
		return NOT_NOW;
	tell_failed_outcome(outgoing, "too_large", err.message);
	return REFUSED;
}

static enum sent send_outgoing(struct api_sender *sender, struct outgoing_record *outgoing)
{
	struct known_topic known =
	    topic_metadata_get(sender->metadata, outgoing->record.topic, TOPIC_AGE_MS);
	struct producer_topic *topic;
	struct err err;

	/* A topic that is missing may be created yet; give_up_late_records says so in the end. */
	if (known.state != TOPIC_THERE)
		return NOT_NOW;
	topic = producer_topic(sender->producer, outgoing->record.topic, &err);
	if (!topic && err.kind == ERR_REJECT) {
		tell_failed_outcome(outgoing, "no_topic", err.message);
		return REFUSED;
	}
	if (!topic || !producer_knows(sender->producer, topic, known.partitions, PRODUCER_PAUSE_MS))
		return NOT_NOW;
	return hand_to_producer(sender, outgoing, topic, known.partitions);
}

/* Topics of which a record could not be sent in this turn: later records must not pass it. */
struct held_topics {
	const char **names;
	int count;
};

static void hold_topic(struct held_topics *held, const char *topic)
{
	held->names = xrealloc(held->names, (size_t)(held->count + 1) * sizeof *held->names);
	held->names[held->count++] = topic;
}

static bool is_topic_held(const struct held_topics *held, const char *topic)
{
	for (int i = 0; i < held->count; i++)
		if (text_equal(held->names[i], topic))
			return true;
	return false;
}

static void send_records_in_order(struct api_sender *sender, struct held_topics *held)
{
	struct outgoing_record *outgoing, *next;

	DL_FOREACH_SAFE(sender->waiting, outgoing, next)
	{
		enum sent sent;

		if (is_topic_held(held, outgoing->record.topic))
			continue;
		/* A record on trial has the producer to itself: then its refusal has one cause. */
		if (sender->alone || (outgoing->alone && sender->flying))
			return;
		sent = send_outgoing(sender, outgoing);
		if (sent == NOT_NOW) {
			hold_topic(held, outgoing->record.topic);
			sender->again = true;
			continue;
		}

		DL_DELETE(sender->waiting, outgoing);
		if (sent == REFUSED) {
			free_outgoing(outgoing);
			continue;
		}
		DL_APPEND(sender->flying, outgoing);
		sender->alone = outgoing->alone;
	}
}

/*
 * Sends records in their order: after one that cannot be sent now, only records for other topics
 * are sent. A record on trial is sent when no other record is in flight, and no other is sent until
 * its outcome.
 */
static void send_waiting(struct api_sender *sender, int64_t now)
{
	struct held_topics held = {0};

	if (!have_producer(sender, now) || sender->broken_since)
		return;
	send_records_in_order(sender, &held);
	free(held.names);
}

static bool take_arrived(struct api_sender *sender)
{
	bool ending;

	pthread_mutex_lock(&sender->mutex);
	DL_CONCAT(sender->waiting, sender->arrived);
	sender->arrived = NULL;
	ending = sender->ending;
	pthread_mutex_unlock(&sender->mutex);
	return ending;
}

/* --- the thread ------------------------------------------------------------------------------ */

static void wait_for_sender_events(struct api_sender *sender)
{
	struct pollfd fds[] = {{.fd = sender->wake_fd, .events = POLLIN},
	    {.fd = sender->producer ? producer_fd(sender->producer) : -1, .events = POLLIN}};
	bool busy = sender->waiting || sender->flying;
	eventfd_t count;

	poll(fds, 2, sender->again ? AGAIN_MS : busy ? TURN_MS / 4 : TURN_MS);
	sender->again = false;
	(void)eventfd_read(sender->wake_fd, &count); /* fails when nobody called */
}

/* Records whose outcome was reported come first in the list. */
static bool is_busy(const struct api_sender *sender)
{
	return sender->waiting || sender->failed || (sender->flying && !sender->flying->prev->told);
}

static void *run_api_sender(void *context)
{
	struct api_sender *sender = context;
	bool ending = false;

	while (!ending || is_busy(sender)) {
		int64_t now;

		wait_for_sender_events(sender);
		ending = take_arrived(sender);
		now = clock_ms();
		read_reports(sender);
		/* Reports come first: an acknowledged record is not late. */
		give_up_late_records(sender, now);
		mind_producer(sender, now);
		send_waiting(sender, now);
	}
	return NULL;
}

struct api_sender *api_sender_start(
    const struct kafka_settings *kafka, struct topic_metadata *metadata, struct err *err)
{
	struct api_sender *sender = xcalloc(1, sizeof *sender);

	sender->kafka = kafka;
	sender->metadata = metadata;
	pthread_mutex_init(&sender->mutex, NULL);
	sender->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (sender->wake_fd < 0) {
		err_set(err, ERR_FATAL, "no eventfd: %s", strerror(errno));
		goto fail;
	}
	topic_metadata_watch(metadata, sender->wake_fd);
	if (pthread_create(&sender->thread, NULL, run_api_sender, sender) == 0)
		return sender;
	err_set(err, ERR_FATAL, "no thread for the records of the HTTP interface");
	topic_metadata_unwatch(metadata, sender->wake_fd);
	close(sender->wake_fd);
fail:
	pthread_mutex_destroy(&sender->mutex);
	free(sender);
	return NULL;
}

static void wake_api_sender(struct api_sender *sender)
{
	/* Fails only when the counter is full, and then it is readable all the same. */
	if (eventfd_write(sender->wake_fd, 1) != 0)
		return;
}

void api_sender_put(struct api_sender *sender, const struct api_record *record)
{
	struct outgoing_record *outgoing = xcalloc(1, sizeof *outgoing);

	outgoing->record = *record;
	pthread_mutex_lock(&sender->mutex);
	/* Drawn under the lock: take_back_records returns to the order of these numbers. */
	outgoing->number = sender->count++;
	DL_APPEND(sender->arrived, outgoing);
	pthread_mutex_unlock(&sender->mutex);
	wake_api_sender(sender);
}

void api_sender_stop(struct api_sender *sender)
{
	if (!sender)
		return;

	pthread_mutex_lock(&sender->mutex);
	sender->ending = true;
	pthread_mutex_unlock(&sender->mutex);
	wake_api_sender(sender);
	pthread_join(sender->thread, NULL);
	topic_metadata_unwatch(sender->metadata, sender->wake_fd);
	drop_sender_producer(sender); /* also moves its records back to `waiting` */
	close(sender->wake_fd);
	pthread_mutex_destroy(&sender->mutex);
	free(sender);
}
