#include "producer.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <uthash.h>

#include "cleanup.h"
#include "client_files.h"
#include "clock.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "logging.h"
#include "text.h"

/*
 * Delivery reports come as events on the client's main queue. librdkafka writes the eventfd when
 * that queue stops being empty, once until somebody reads the queue again. So the order in
 * producer_poll matters: it reads the eventfd only after it found the queue empty, and then checks
 * the queue again. Events between the two are found by the second check; later events write the
 * eventfd anew.
 */
struct producer_topic {
	rd_kafka_topic_t *handle;
	int32_t partitions; /* known to librdkafka at least; 0: never asked */
	UT_hash_handle hh;
	char name[];
};

/* Calls of a transactional producer wait for the broker in slices of this length. */
enum { SLICE_MS = 200 };

/*
 * The thread that makes blocking calls. `call` is set before the thread is woken, and the outcome
 * before it reports.
 */
struct caller {
	pthread_t thread;
	bool runs;
	int call_fd; /* -1: the producer has no transactions */
	enum producer_call call;
	atomic_int outcome; /* enum producer_outcome */
	atomic_bool ending;
	struct err why;
};

struct producer {
	rd_kafka_t *handle;
	rd_kafka_queue_t *queue;
	int wake_fd;
	rd_kafka_event_t *reports; /* the delivery event that is being handed out; NULL: none */
	struct producer_topic *topics;
	int closed; /* topics that librdkafka still holds */
	bool has_statistics;
	int64_t heard_ms;
	rd_kafka_resp_err_t given_up; /* the first record that failed, while librdkafka goes on */
	struct producer_figures figures;
	int64_t last_error_ms;
	char last_error[1024];
	char broker_error[512]; /* "" or "; why" of one of them */
	struct caller caller;
};

static void wake_producer_fd(int fd)
{
	/* Fails only when the counter is full, and then the fd is readable all the same. */
	if (eventfd_write(fd, 1) != 0)
		return;
}

/* --- transactions ---------------------------------------------------------------------------- */

static rd_kafka_error_t *call_once(struct producer *producer)
{
	return producer->caller.call == PRODUCER_INIT
		   ? rd_kafka_init_transactions(producer->handle, SLICE_MS)
		   : rd_kafka_commit_transaction(producer->handle, SLICE_MS);
}

/* Somebody else made a producer with the same transactional id. */
static enum err_kind kind_of_end(rd_kafka_resp_err_t code)
{
	return code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
		       code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH
		   ? ERR_FENCED
		   : ERR_RETRY;
}

/* A call whose slice is over goes on where it was when it is made again. */
static bool finish_call(struct producer *producer, struct err *err)
{
	static const char *const names[] = {"init_transactions", "commit_transaction"};
	rd_kafka_error_t *error;

	/*
	 * `ending` is checked after each slice: producer_destroy must not wait for brokers that are
	 * away.
	 */
	while ((error = call_once(producer)) &&
	       rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__TIMED_OUT &&
	       rd_kafka_error_is_retriable(error) && !atomic_load(&producer->caller.ending))
		rd_kafka_error_destroy(error);
	if (!error)
		/* Both calls end with an open transaction: records may follow at once. */
		error = rd_kafka_begin_transaction(producer->handle);
	if (!error)
		return true;
	err_set(err, kind_of_end(rd_kafka_error_code(error)), "%s: %s (%s)",
	    names[producer->caller.call], rd_kafka_error_string(error), rd_kafka_error_name(error));
	rd_kafka_error_destroy(error);
	return false;
}

static void *run_calls(void *context)
{
	struct producer *producer = context;
	struct caller *caller = &producer->caller;
	eventfd_t count;

	/* Any other outcome means that end_caller woke the thread, which then ends. */
	while (eventfd_read(caller->call_fd, &count) == 0 &&
	       atomic_load(&caller->outcome) == PRODUCER_CALLING) {
		bool done = finish_call(producer, &caller->why);

		atomic_store(&caller->outcome, done ? PRODUCER_DONE : PRODUCER_FAILED);
		wake_producer_fd(producer->wake_fd);
	}
	return NULL;
}

static bool start_caller(struct producer *producer, struct err *err)
{
	struct caller *caller = &producer->caller;

	caller->call_fd = eventfd(0, EFD_CLOEXEC);
	if (caller->call_fd < 0)
		return err_set(
		    err, ERR_RETRY, "no eventfd for a Kafka producer: %s", strerror(errno));
	caller->runs = pthread_create(&caller->thread, NULL, run_calls, producer) == 0;
	return caller->runs || err_set(err, ERR_RETRY, "no thread for a Kafka producer");
}

static void end_caller(struct caller *caller)
{
	atomic_store(&caller->ending, true);
	atomic_store(&caller->outcome, PRODUCER_NO_CALL);
	if (caller->runs) {
		wake_producer_fd(caller->call_fd);
		pthread_join(caller->thread, NULL);
	}
	if (caller->call_fd >= 0)
		close(caller->call_fd);
}

void producer_begin(struct producer *producer, enum producer_call call)
{
	producer->caller.call = call;
	atomic_store(&producer->caller.outcome, PRODUCER_CALLING);
	wake_producer_fd(producer->caller.call_fd);
}

enum producer_outcome producer_work(struct producer *producer, struct err *ret_why)
{
	enum producer_outcome outcome = atomic_load(&producer->caller.outcome);

	if (outcome == PRODUCER_FAILED)
		*ret_why = producer->caller.why;
	if (outcome == PRODUCER_FAILED || outcome == PRODUCER_DONE)
		atomic_store(&producer->caller.outcome, PRODUCER_NO_CALL);
	return outcome;
}

/* --- life ------------------------------------------------------------------------------------ */

struct producer *producer_create(const struct kafka_settings *kafka, const char *transactional_id,
    int64_t queue_bytes, int64_t queue_messages, int topics, struct err *err)
{
	return producer_create_lingering(
	    kafka, transactional_id, queue_bytes, queue_messages, topics, 0, err);
}

struct producer *producer_create_lingering(const struct kafka_settings *kafka,
    const char *transactional_id, int64_t queue_bytes, int64_t queue_messages, int topics,
    int64_t linger_ms, struct err *err)
{
	static const uint64_t one = 1;
	struct producer *producer = xcalloc(1, sizeof *producer);
	rd_kafka_conf_t *conf;

	producer->caller.call_fd = -1;
	producer->wake_fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	if (producer->wake_fd < 0) {
		err_set(err, ERR_RETRY, "no eventfd for a Kafka producer: %s", strerror(errno));
		goto fail;
	}
	producer->has_statistics = topics <= PRODUCER_FEW_TOPICS;
	conf = kafka_conf_producer(kafka, transactional_id, queue_bytes, queue_messages, err);
	if (conf && (!kafka_conf_linger(conf, kafka, linger_ms, err) ||
			(!producer->has_statistics &&
			    !kafka_conf_set(conf, "statistics.interval.ms", "0", err)))) {
		rd_kafka_conf_destroy(conf);
		goto fail;
	}
	producer->handle = kafka_client_open(RD_KAFKA_PRODUCER, conf, kafka, err);
	if (!producer->handle)
		goto fail;
	producer->queue = rd_kafka_queue_get_main(producer->handle);
	rd_kafka_queue_io_event_enable(producer->queue, producer->wake_fd, &one, sizeof one);
	if (transactional_id && !start_caller(producer, err))
		goto fail;
	return producer;
fail:
	producer_destroy(producer, 0);
	return NULL;
}

/*
 * Until librdkafka holds no record: a request that is being written may still read a payload, and
 * the caller frees payloads when producer_destroy returns. No broker is waited for. Purged again
 * each time round, because a record on its way from one of librdkafka's queues to the next is
 * missed.
 */
static void drop_everything(struct producer *producer, int wait_ms)
{
	int64_t slow_at = clock_ms() + wait_ms;

	/* Its records count in rd_kafka_outq_len until they are freed. */
	rd_kafka_event_destroy(producer->reports);
	producer->reports = NULL;
	while (rd_kafka_outq_len(producer->handle) > 0) {
		rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE |
						     RD_KAFKA_PURGE_F_INFLIGHT |
						     RD_KAFKA_PURGE_F_NON_BLOCKING);
		rd_kafka_event_destroy(rd_kafka_queue_poll(producer->queue, 10));
		if (clock_ms() < slow_at)
			continue;
		log_warn("kafka_purge_slow", {"client", LOG_TEXT(rd_kafka_name(producer->handle))},
		    {"records", LOG_INT(rd_kafka_outq_len(producer->handle))},
		    {"consequence",
			LOG_TEXT("the thread waits until librdkafka has given up its records")});
		slow_at = INT64_MAX;
	}
}

static void close_producer_topics(struct producer *producer)
{
	struct producer_topic *topic, *next;

	HASH_ITER(hh, producer->topics, topic, next)
	{
		HASH_DEL(producer->topics, topic);
		rd_kafka_topic_destroy(topic->handle);
		free(topic);
	}
}

void producer_close_topic(struct producer *producer, const char *name)
{
	struct producer_topic *topic;

	HASH_FIND_STR(producer->topics, name, topic);
	if (!topic)
		return;
	HASH_DEL(producer->topics, topic);
	rd_kafka_topic_destroy(topic->handle);
	free(topic);
	producer->closed++;
}

bool producer_is_bloated(const struct producer *producer)
{
	int open = (int)HASH_COUNT(producer->topics), held = open + producer->closed;

	return held > PRODUCER_FEW_TOPICS && (producer->has_statistics || producer->closed > open);
}

bool producer_is_stale(const struct producer *producer)
{
	return client_files_is_stale(producer->handle);
}

const char *producer_topic_name(const struct producer_topic *topic)
{
	return topic->name;
}

void producer_destroy(struct producer *producer, int wait_ms)
{
	if (!producer)
		return;

	end_caller(&producer->caller);
	if (producer->handle) {
		/* It would call a purge on purpose a fatal error. */
		rd_kafka_set_log_level(producer->handle, -1);
		drop_everything(producer, wait_ms);
		close_producer_topics(producer);
		/*
		 * Closing may go on in the background: nothing writes to the eventfd from now on.
		 */
		rd_kafka_queue_io_event_enable(producer->queue, -1, NULL, 0);
		rd_kafka_queue_destroy(producer->queue);
		if (!kafka_client_close(producer->handle, wait_ms))
			log_info("kafka_close_slow", {"waited_ms", LOG_INT(wait_ms)});
	}
	if (producer->wake_fd >= 0)
		close(producer->wake_fd);
	free(producer);
}

int producer_fd(const struct producer *producer)
{
	return producer->wake_fd;
}

bool producer_topic_is_valid(const char *name)
{
	size_t length =
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return length > 0 && length <= 249 && name[length] == '\0' && !text_equal(name, ".") &&
	       !text_equal(name, "..");
}

struct producer_topic *producer_topic(struct producer *producer, const char *name, struct err *err)
{
	struct producer_topic *topic;
	size_t length = strlen(name);

	HASH_FIND_STR(producer->topics, name, topic);
	if (topic)
		return topic;
	if (!producer_topic_is_valid(name)) {
		err_set(err, ERR_REJECT,
		    "\"%.249s\" is no topic name: Kafka allows 1 to 249 of a-z A-Z 0-9 . _ -",
		    name);
		return NULL;
	}
	topic = xcalloc(1, sizeof *topic + length + 1);
	memcpy(topic->name, name, length);
	topic->handle = rd_kafka_topic_new(producer->handle, name, NULL);
	if (!topic->handle) {
		err_set(
		    err, ERR_RETRY, "topic %s: %s", name, rd_kafka_err2str(rd_kafka_last_error()));
		free(topic);
		return NULL;
	}
	HASH_ADD_STR(producer->topics, name, topic);
	return topic;
}

bool producer_knows(
    struct producer *producer, struct producer_topic *topic, int32_t partitions, int wait_ms)
{
	const rd_kafka_metadata_t *answer = NULL;

	if (topic->partitions >= partitions || wait_ms == 0)
		return topic->partitions >= partitions;
	/* librdkafka keeps the answer: it updates its own picture of the topic. */
	if (rd_kafka_metadata(producer->handle, 0, topic->handle, &answer, wait_ms) !=
	    RD_KAFKA_RESP_ERR_NO_ERROR)
		return false;
	if (answer->topic_cnt == 1)
		topic->partitions = answer->topics[0].partition_cnt;
	rd_kafka_metadata_destroy(answer);
	return topic->partitions >= partitions;
}

static rd_kafka_headers_t *headers_of(const struct producer_record *record)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new((size_t)record->header_count);

	for (int i = 0; i < record->header_count; i++) {
		const struct producer_header *header = &record->headers[i];

		rd_kafka_header_add(headers, header->name, header->name_length, header->value,
		    header->value_length);
	}
	return headers;
}

static bool is_broken(const struct producer *producer)
{
	return producer->given_up || rd_kafka_fatal_error(producer->handle, NULL, 0);
}

static bool send_failed(
    const struct producer_record *record, rd_kafka_resp_err_t code, struct err *err)
{
	/* A partition that librdkafka does not know yet, a full queue, a broken producer: later. */
	return err_set(err, kafka_error_kind(code), "%s [%d]: %s (%s)",
	    rd_kafka_topic_name(record->topic->handle), record->partition, rd_kafka_err2str(code),
	    rd_kafka_err2name(code));
}

static rd_kafka_resp_err_t hand_to_librdkafka(
    struct producer *producer, const struct producer_record *record)
{
	rd_kafka_headers_t *headers = record->header_count > 0 ? headers_of(record) : NULL;
	rd_kafka_resp_err_t code =
	    rd_kafka_producev(producer->handle, RD_KAFKA_V_RKT(record->topic->handle),
		RD_KAFKA_V_PARTITION(record->partition), RD_KAFKA_V_MSGFLAGS(0),
		RD_KAFKA_V_VALUE((void *)record->payload, record->payload_length),
		RD_KAFKA_V_KEY(record->key, record->key_length),
		RD_KAFKA_V_TIMESTAMP(record->timestamp_ms), RD_KAFKA_V_HEADERS(headers),
		RD_KAFKA_V_OPAQUE(record->opaque), RD_KAFKA_V_END);

	/* The headers are librdkafka's only after a success. */
	if (code != RD_KAFKA_RESP_ERR_NO_ERROR && headers)
		rd_kafka_headers_destroy(headers);
	return code;
}

bool producer_send(struct producer *producer, const struct producer_record *record, struct err *err)
{
	rd_kafka_resp_err_t code =
	    producer->given_up ? RD_KAFKA_RESP_ERR__FATAL : hand_to_librdkafka(producer, record);

	return code == RD_KAFKA_RESP_ERR_NO_ERROR || send_failed(record, code, err);
}

static void take_producer_error(struct producer *producer, rd_kafka_event_t *event)
{
	rd_kafka_resp_err_t code = rd_kafka_event_error(event);
	const char *text = rd_kafka_event_error_string(event);
	char explained[sizeof producer->last_error];

	/* A password, a certificate: the log has one line about it. */
	if (kafka_client_explain(producer->handle, code, text, explained, sizeof explained)) {
		text_copy(producer->last_error, sizeof producer->last_error, explained);
		producer->last_error_ms = clock_ms();
		return;
	}
	/* A broker is not the cluster: when there is none left _ALL_BROKERS_DOWN follows. */
	if (code == RD_KAFKA_RESP_ERR__TRANSPORT || code == RD_KAFKA_RESP_ERR__RESOLVE) {
		snprintf(producer->broker_error, sizeof producer->broker_error, "; %s", text);
	} else {
		snprintf(producer->last_error, sizeof producer->last_error, "%s: %s%s",
		    rd_kafka_err2name(code), text,
		    code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ? producer->broker_error : "");
		producer->last_error_ms = clock_ms();
	}
	if (rd_kafka_event_error_is_fatal(event))
		return; /* routine: the caller that creates a new producer logs it */
	log_warn("kafka_error", {"client", LOG_TEXT(rd_kafka_name(producer->handle))},
	    {"code", LOG_TEXT(rd_kafka_err2name(code))}, {"text", LOG_TEXT(text)},
	    {"consequence", LOG_TEXT("librdkafka keeps trying")});
}

static int64_t statistics_number(const json_t *object, const char *name)
{
	return (int64_t)json_integer_value(json_object_get(object, name));
}

/* The slowest broker's average: the time that a record may wait. */
static int64_t slowest_rtt_us(json_t *brokers)
{
	const char *name;
	json_t *broker;
	int64_t slowest = 0;

	json_object_foreach(brokers, name, broker)
	{
		int64_t average = statistics_number(json_object_get(broker, "rtt"), "avg");

		slowest = average > slowest ? average : slowest;
	}
	return slowest;
}

static int64_t brokers_up(json_t *brokers)
{
	const char *name;
	json_t *broker;
	int64_t count = 0;

	json_object_foreach(brokers, name, broker)
	{
		const char *state = json_string_value(json_object_get(broker, "state"));

		count += text_equal(state, "UP");
	}
	return count;
}

static void take_statistics(struct producer *producer, rd_kafka_event_t *event)
{
	json_t *root = json_loads(rd_kafka_event_stats(event), 0, NULL);

	if (!root)
		return;
	producer->figures = (struct producer_figures){
	    .queue_messages = statistics_number(root, "msg_cnt"),
	    .queue_bytes = statistics_number(root, "msg_size"),
	    .requests = statistics_number(root, "tx"),
	    .bytes_sent = statistics_number(root, "tx_bytes"),
	    .broker_rtt_us = slowest_rtt_us(json_object_get(root, "brokers")),
	    .brokers_up = brokers_up(json_object_get(root, "brokers")),
	    .at_ms = clock_ms(),
	};
	json_decref(root);
}

/*
 * Gives back the records that wait to be sent, so that none of them passes a record that failed.
 * Once is not enough: a request that was in flight behind the refused one is answered "out of
 * order" and queued for a retry that a broken producer never makes. Records that wait for their
 * answer are left alone, since they may turn out to be written.
 */
static void give_back_queue(struct producer *producer)
{
	rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

/* Delivery events are kept, to be handed out; the others are dealt with here. */
static void take_producer_event(struct producer *producer, rd_kafka_event_t *event)
{
	switch (rd_kafka_event_type(event)) {
	case RD_KAFKA_EVENT_DR:
		producer->reports = event;
		return;
	case RD_KAFKA_EVENT_ERROR:
		take_producer_error(producer, event);
		break;
	case RD_KAFKA_EVENT_STATS:
		take_statistics(producer, event);
		break;
	default:
		break;
	}

	rd_kafka_event_destroy(event);
}

static bool is_purged(rd_kafka_resp_err_t code)
{
	return code == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
	       code == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT || code == RD_KAFKA_RESP_ERR__FATAL ||
	       code == RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE;
}

static struct producer_report report_of(
    struct producer *producer, const rd_kafka_message_t *message)
{
	struct producer_report report = {
	    .opaque = message->_private,
	    .offset = message->err ? -1 : message->offset,
	    .error = message->err,
	    .purged = is_purged(message->err),
	};

	/* librdkafka goes on after some failures, and later records would pass the failed one. */
	if (message->err && !report.purged && !producer->given_up) {
		producer->given_up = message->err;
		give_back_queue(producer);
	}
	return report;
}

static int hand_out_reports(struct producer *producer, struct producer_report *reports, int max)
{
	const rd_kafka_message_t *message;
	int count = 0;

	while (count < max && (message = rd_kafka_event_message_next(producer->reports)))
		reports[count++] = report_of(producer, message);
	if (count > 0 && reports[count - 1].error == 0)
		producer->heard_ms = clock_ms();
	if (count < max) {
		rd_kafka_event_destroy(producer->reports);
		producer->reports = NULL;
	}
	return count;
}

int producer_poll(struct producer *producer, struct producer_report *reports, int max)
{
	bool fd_was_read = false;
	int count = 0;

	if (is_broken(producer))
		give_back_queue(producer);
	while (count < max) {
		rd_kafka_event_t *event;
		eventfd_t ignored;

		if (producer->reports) {
			count += hand_out_reports(producer, reports + count, max - count);
			continue;
		}
		event = rd_kafka_queue_poll(producer->queue, 0);
		if (event) {
			take_producer_event(producer, event);
		} else if (fd_was_read) {
			return count;
		} else {
			/* EAGAIN: it was called without having been woken. */
			fd_was_read =
			    eventfd_read(producer->wake_fd, &ignored) == 0 || errno == EAGAIN;
		}
	}
	if (fd_was_read) /* stopped by max: there may be more, and nothing would say so */
		wake_producer_fd(producer->wake_fd);
	return count;
}

bool producer_is_fatal(const struct producer *producer, struct err *ret_why)
{
	char text[512];
	rd_kafka_resp_err_t code = rd_kafka_fatal_error(producer->handle, text, sizeof text);

	if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
		/* librdkafka does not count every failed record as fatal; report_of does. */
		code = producer->given_up;
		snprintf(text, sizeof text, "a record was given up: %s", rd_kafka_err2str(code));
	}
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		return false;
	err_set(ret_why, kind_of_end(code), "the producer is broken, a new one is needed: %s (%s)",
	    text, rd_kafka_err2name(code));
	return true;
}

int64_t producer_last_error(const struct producer *producer, char *ret_text, size_t size)
{
	snprintf(ret_text, size, "%s", producer->last_error);
	return producer->last_error_ms;
}

int64_t producer_heard(const struct producer *producer)
{
	return producer->heard_ms;
}

struct producer_figures producer_figures(const struct producer *producer)
{
	return producer->figures;
}

enum err_kind producer_error_kind(int32_t error)
{
	return kafka_error_kind(error);
}

const char *producer_error_text(int32_t error)
{
	return rd_kafka_err2str(error);
}
