#include "subscription.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "clock.h"
#include "consumer_private.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"

/*
 * A rebalance is met in rd_kafka_consumer_poll. What is given is noted there and answered after
 * that, by as many steps as it takes to learn what is committed; what is taken away is let go at
 * once.
 *
 * Records come by a queue of their own, to which those of the partitions are forwarded, and in
 * bulk: rd_kafka_consume_callback_queue takes the queue's lock once and not for each record, and
 * yet looks at each in its turn whether its partition was taken away or paused meanwhile, as the
 * calls that return an array do not (they skip offsets, up to 2.1). They want a queue that nothing
 * but records comes by.
 */
enum {
	ANSWER_MS = 5000,
	COMMIT_MS = 10000,
	WAKE_MS = 50,
	READY_MESSAGES = 10000,
	READY_BYTES = 4 << 20
};

struct subscription {
	rd_kafka_t *handle;
	rd_kafka_queue_t *events, *records;
	int fd;
	int64_t patience_ms;
	struct subscription_callbacks callbacks;
	rd_kafka_topic_partition_list_t *unanswered; /* an assignment; NULL: none */
	bool filled;                                 /* librdkafka has stopped fetching */
	size_t length;                               /* of a record, by the last read */
};

/* A read. */
struct reading {
	struct subscription *subscription;
	subscription_see *see;
	void *context;
	int count;
	size_t bytes;
	bool failed;
	struct err *err;
};

/* --- rebalances ----------------------------------------------------------------------------- */

static void forget_unanswered(struct subscription *subscription)
{
	if (subscription->unanswered)
		rd_kafka_topic_partition_list_destroy(subscription->unanswered);
	subscription->unanswered = NULL;
}

static void on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
    rd_kafka_topic_partition_list_t *partitions, void *context)
{
	struct subscription *subscription = context;
	forget_unanswered(subscription);
	if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		subscription->unanswered = rd_kafka_topic_partition_list_copy(partitions);
		return;
	}
	subscription->callbacks.revoked(
	    subscription->callbacks.context, rd_kafka_assignment_lost(handle));
	rd_kafka_assign(handle, NULL);
}

static int64_t kafka_offset(int64_t offset)
{
	return offset == SUBSCRIPTION_BEGINNING ? RD_KAFKA_OFFSET_BEGINNING
	       : offset == SUBSCRIPTION_END     ? RD_KAFKA_OFFSET_END
						: offset;
}

/* A copy that ends with a NUL, as librdkafka's does not. */
static char *text_of(const rd_kafka_topic_partition_t *element)
{
	return xformat("%.*s", (int)element->metadata_size,
	    element->metadata ? (const char *)element->metadata : "");
}

static struct subscription_place *places_of(const rd_kafka_topic_partition_list_t *list)
{
	struct subscription_place *places = xcalloc((size_t)list->cnt + 1, sizeof *places);
	for (int i = 0; i < list->cnt; i++) {
		const rd_kafka_topic_partition_t *element = &list->elems[i];
		places[i] = (struct subscription_place){element->topic, element->partition,
		    element->offset < 0 ? SUBSCRIPTION_NONE : element->offset, text_of(element)};
	}
	return places;
}

static void free_places(struct subscription_place *places, int count)
{
	for (int i = 0; i < count; i++)
		free((char *)places[i].text);
	free(places);
}

static bool ask_committed(
    struct subscription *subscription, rd_kafka_topic_partition_list_t *list, struct err *err)
{
	rd_kafka_resp_err_t code = rd_kafka_committed(subscription->handle, list, ANSWER_MS);
	for (int i = 0; i < list->cnt && !code; i++)
		code = list->elems[i].err;
	return !code || kafka_client_failed(err, code, "the committed offsets");
}

static void forward(struct subscription *subscription, const rd_kafka_topic_partition_list_t *list)
{
	for (int i = 0; i < list->cnt; i++) {
		rd_kafka_queue_t *queue = rd_kafka_queue_get_partition(
		    subscription->handle, list->elems[i].topic, list->elems[i].partition);
		rd_kafka_queue_forward(queue, subscription->records);
		rd_kafka_queue_destroy(queue);
	}
}

static bool answer(struct subscription *subscription, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = subscription->unanswered;
	if (!ask_committed(subscription, list, err))
		return false;
	struct subscription_place *places = places_of(list);
	bool known = subscription->callbacks.assigned(
	    subscription->callbacks.context, places, list->cnt, err);
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = kafka_offset(places[i].offset);
	free_places(places, list->cnt);
	if (!known)
		return false;
	forward(subscription, list);
	rd_kafka_resp_err_t code = rd_kafka_assign(subscription->handle, list);
	/* One that was paused when it went is so still when it comes back. */
	rd_kafka_resume_partitions(subscription->handle, list);
	forget_unanswered(subscription);
	return !code || kafka_client_failed(err, code, "the assignment");
}

static void on_commit(rd_kafka_t *handle, rd_kafka_resp_err_t code,
    rd_kafka_topic_partition_list_t *offsets, void *context)
{
	struct subscription *subscription = context;
	struct err err;
	(void)handle;
	for (int i = 0; !code && offsets && i < offsets->cnt; i++)
		code = offsets->elems[i].err;
	if (!code || code == RD_KAFKA_RESP_ERR__NO_OFFSET)
		return;
	kafka_client_failed(&err, code, "offsets are not committed");
	subscription->callbacks.not_committed(subscription->callbacks.context, &err);
}

/* --- life ----------------------------------------------------------------------------------- */

static rd_kafka_conf_t *make_conf(
    const struct subscription_settings *settings, void *context, struct err *err)
{
	static const char *const defaults[] = {"fetch.wait.max.ms", "100", "fetch.error.backoff.ms",
	    "50", "fetch.message.max.bytes", "131072", NULL};
	rd_kafka_conf_t *conf =
	    kafka_conf_reader(settings->kafka, "read_committed", "error", defaults, err);
	if (!conf)
		return NULL;
	if (kafka_conf_bound_ready(conf, READY_MESSAGES, READY_BYTES, err) &&
	    kafka_conf_set(conf, "group.id", settings->group, err) &&
	    kafka_conf_set(conf, "partition.assignment.strategy", "range,roundrobin", err) &&
	    kafka_conf_set(conf, "enable.partition.eof", "false", err) &&
	    kafka_conf_set(conf, "enable.auto.offset.store", "false", err)) {
		rd_kafka_conf_set_opaque(conf, context);
		rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
		rd_kafka_conf_set_offset_commit_cb(conf, on_commit);
		return conf;
	}
	rd_kafka_conf_destroy(conf);
	return NULL;
}

static int64_t patience_of(rd_kafka_conf_t *conf)
{
	char text[32] = "";
	size_t size = sizeof text;
	int64_t patience = 300000;
	if (conf)
		rd_kafka_conf_get(conf, "max.poll.interval.ms", text, &size);
	(void)text_to_int64(text, 1, INT64_MAX, &patience);
	return patience;
}

static bool subscribe(struct subscription *subscription, const char *const *topics, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	for (; *topics; topics++)
		rd_kafka_topic_partition_list_add(list, *topics, RD_KAFKA_PARTITION_UA);
	rd_kafka_resp_err_t code = rd_kafka_subscribe(subscription->handle, list);
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, "the topics");
}

static void tell_of(rd_kafka_queue_t *queue, int fd)
{
	rd_kafka_queue_io_event_enable(queue, fd, &(uint64_t){1}, sizeof(uint64_t));
}

struct subscription *subscription_create(const struct subscription_settings *settings,
    const struct subscription_callbacks *callbacks, struct err *err)
{
	struct subscription *subscription = xcalloc(1, sizeof *subscription);
	rd_kafka_conf_t *conf = make_conf(settings, subscription, err);
	subscription->callbacks = *callbacks;
	subscription->patience_ms = patience_of(conf);
	subscription->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	subscription->handle = kafka_client_open(RD_KAFKA_CONSUMER, conf, settings->kafka, err);
	if (!subscription->handle)
		goto fail;
	if (subscription->fd < 0) {
		err_set(err, ERR_RETRY, "no eventfd for a consumer: %s", strerror(errno));
		goto fail;
	}
	rd_kafka_poll_set_consumer(subscription->handle);
	subscription->events = rd_kafka_queue_get_consumer(subscription->handle);
	subscription->records = rd_kafka_queue_new(subscription->handle);
	tell_of(subscription->events, subscription->fd);
	tell_of(subscription->records, subscription->fd);
	if (subscribe(subscription, settings->topics, err))
		return subscription;
fail:
	subscription_destroy(subscription, 0);
	return NULL;
}

void subscription_close(struct subscription *subscription)
{
	rd_kafka_consumer_close(subscription->handle);
}

static void drop_queue(rd_kafka_queue_t *queue)
{
	if (!queue)
		return;
	rd_kafka_queue_io_event_enable(queue, -1, NULL, 0);
	rd_kafka_queue_destroy(queue);
}

void subscription_destroy(struct subscription *subscription, int wait_ms)
{
	if (!subscription)
		return;
	forget_unanswered(subscription);
	drop_queue(subscription->events);
	drop_queue(subscription->records);
	kafka_client_close(subscription->handle, wait_ms);
	if (subscription->fd >= 0)
		close(subscription->fd);
	free(subscription);
}

/* --- records -------------------------------------------------------------------------------- */

static bool take_error(
    struct subscription *subscription, const rd_kafka_message_t *message, struct err *err)
{
	const struct subscription_callbacks *callbacks = &subscription->callbacks;
	const char *topic = message->rkt ? rd_kafka_topic_name(message->rkt) : "";
	char text[512];
	switch (message->err) {
	case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
		callbacks->out_of_range(callbacks->context, topic, message->partition);
		return true;
	case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
	case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
	case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		callbacks->missing(callbacks->context, topic, message->partition);
		return true;
	case RD_KAFKA_RESP_ERR__FATAL:
		rd_kafka_fatal_error(subscription->handle, text, sizeof text);
		return err_set(err, ERR_FATAL, "the consumer is at its end: %s", text);
	default:
		return err_set(err, kafka_error_kind(message->err), "%s%s%s (%s)", topic,
		    topic[0] ? ": " : "", rd_kafka_message_errstr(message),
		    rd_kafka_err2name(message->err));
	}
}

/*
 * With so much ready librdkafka stops fetching, and its threads look whether that is still so after
 * up to a second, however soon it was taken. A question to the leaders wakes them, while there is
 * still enough to go on with.
 */
static void wake_fetchers(struct subscription *subscription)
{
	size_t ready = rd_kafka_queue_length(subscription->records);
	size_t most = READY_BYTES / (subscription->length + 1);
	rd_kafka_topic_partition_list_t *list;
	most = most < READY_MESSAGES ? most : READY_MESSAGES;
	if (ready >= most)
		subscription->filled = true;
	if (!subscription->filled || ready > most / 2)
		return;
	subscription->filled = false;
	if (rd_kafka_assignment(subscription->handle, &list))
		return;
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = RD_KAFKA_OFFSET_END;
	rd_kafka_offsets_for_times(subscription->handle, list, WAKE_MS); /* whatever it says */
	rd_kafka_topic_partition_list_destroy(list);
}

static void take(rd_kafka_message_t *message, void *context)
{
	struct reading *reading = context;
	struct subscription *subscription = reading->subscription;
	if (message->err) {
		reading->failed = !take_error(subscription, message, reading->err);
		if (reading->failed)
			rd_kafka_yield(subscription->handle);
		return;
	}
	reading->count++;
	reading->bytes += message->key_len + message->len;
	const struct consumer_record record = consumer_record_of(message);
	if (!reading->see(reading->context, &record))
		rd_kafka_yield(subscription->handle); /* what is left stays in the queue */
}

bool subscription_step(struct subscription *subscription, struct err *err)
{
	rd_kafka_message_t *message = rd_kafka_consumer_poll(subscription->handle, 0);
	bool well = !message || !message->err || take_error(subscription, message, err);
	if (message)
		rd_kafka_message_destroy(message);
	return well && (!subscription->unanswered || answer(subscription, err));
}

bool subscription_read(struct subscription *subscription, subscription_see *see, void *context,
    int *ret_count, struct err *err)
{
	struct reading reading = {
	    .subscription = subscription, .see = see, .context = context, .err = err};
	wake_fetchers(subscription);
	rd_kafka_consume_callback_queue(subscription->records, 0, take, &reading);
	*ret_count = reading.count;
	if (reading.count)
		subscription->length = reading.bytes / (size_t)reading.count;
	return !reading.failed;
}

int64_t subscription_patience_ms(const struct subscription *subscription)
{
	return subscription->patience_ms;
}

int subscription_fd(const struct subscription *subscription)
{
	return subscription->fd;
}

/* --- places --------------------------------------------------------------------------------- */

static rd_kafka_topic_partition_list_t *list_of(
    const struct subscription_place *places, int count, bool texts)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
	for (int i = 0; i < count; i++) {
		rd_kafka_topic_partition_t *element =
		    rd_kafka_topic_partition_list_add(list, places[i].topic, places[i].partition);
		element->offset = kafka_offset(places[i].offset);
		if (!texts || !places[i].text || !places[i].text[0])
			continue;
		element->metadata = xstrdup(places[i].text); /* librdkafka frees it */
		element->metadata_size = strlen(places[i].text);
	}
	return list;
}

bool subscription_pause(struct subscription *subscription, const struct subscription_place *place,
    bool pause, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = list_of(place, 1, false);
	rd_kafka_resp_err_t code = pause ? rd_kafka_pause_partitions(subscription->handle, list)
					 : rd_kafka_resume_partitions(subscription->handle, list);
	if (!code)
		code = list->elems[0].err;
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, place->topic);
}

/* rd_kafka_commit itself has no limit when brokers are away. */
static rd_kafka_resp_err_t commit_and_wait(
    struct subscription *subscription, const rd_kafka_topic_partition_list_t *list)
{
	rd_kafka_queue_t *queue = rd_kafka_queue_new(subscription->handle);
	rd_kafka_resp_err_t code =
	    rd_kafka_commit_queue(subscription->handle, list, queue, NULL, NULL);
	rd_kafka_event_t *event = code ? NULL : rd_kafka_queue_poll(queue, COMMIT_MS);
	if (!code)
		code = event ? rd_kafka_event_error(event) : RD_KAFKA_RESP_ERR__TIMED_OUT;
	const rd_kafka_topic_partition_list_t *answers =
	    event ? rd_kafka_event_topic_partition_list(event) : NULL;
	for (int i = 0; !code && answers && i < answers->cnt; i++)
		code = answers->elems[i].err;
	if (event)
		rd_kafka_event_destroy(event);
	rd_kafka_queue_destroy(queue);
	return code;
}

bool subscription_again(struct subscription *subscription, struct err *err)
{
	rd_kafka_topic_partition_list_t *list;
	rd_kafka_resp_err_t code = rd_kafka_assignment(subscription->handle, &list);
	if (code)
		return kafka_client_failed(err, code, "the assignment");
	forget_unanswered(subscription);
	subscription->unanswered = list;
	code = rd_kafka_assign(subscription->handle, NULL);
	return !code || kafka_client_failed(err, code, "the assignment");
}

bool subscription_commit(struct subscription *subscription, const struct subscription_place *places,
    int count, bool wait, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = list_of(places, count, true);
	rd_kafka_resp_err_t code = wait ? commit_and_wait(subscription, list)
					: rd_kafka_commit(subscription->handle, list, 1);
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, "offsets are not committed");
}

bool subscription_range(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t time_ms, int64_t *ret_low, int64_t *ret_at, int64_t *ret_high, struct err *err)
{
	rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
	    subscription->handle, topic, partition, ret_low, ret_high, ANSWER_MS);
	if (code)
		return kafka_client_failed(err, code, topic);
	const struct subscription_place place = {topic, partition, time_ms, NULL};
	rd_kafka_topic_partition_list_t *list = list_of(&place, 1, false);
	list->elems[0].offset = time_ms > 0 ? time_ms : 0;
	code = rd_kafka_offsets_for_times(subscription->handle, list, ANSWER_MS);
	if (!code)
		code = list->elems[0].err;
	*ret_at = list->elems[0].offset < 0 ? *ret_high : list->elems[0].offset;
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, topic);
}
