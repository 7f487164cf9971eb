#include "subscription.h"

#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "clock.h"
#include "consumer_private.h"
#include "fetch_wake.h"
#include "client_files.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"
#include "unowned.h"

/*
 * A rebalance happens inside rd_kafka_consumer_poll. Assigned partitions are noted there and
 * answered later, in as many steps as it takes to learn their committed offsets. Revoked partitions
 * are released at once.
 *
 * Records come by a queue of their own, to which the queues of the partitions are forwarded, and in
 * bulk: rd_kafka_consume_callback_queue takes the queue's lock once instead of for each record, and
 * yet checks for each record whether its partition was revoked or paused meanwhile. The calls that
 * return an array do not check that (they skip offsets, up to 2.1). These calls need a queue that
 * carries nothing except records.
 */
enum {
	ANSWER_MS = 5000,
	LEADER_MS = 2000, /* only a partition's leader knows the answer */
	COMMIT_MS = 10000,
	ASK_AGAIN_MS = 1000, /* after a commit that failed */
	READY_MESSAGES = 10000,
	READY_BYTES = 4 << 20
};

struct subscription {
	rd_kafka_t *handle;
	rd_kafka_queue_t *events, *records;
	int fd;
	struct subscription_callbacks callbacks;
	struct unowned_watch *unowned;
	rd_kafka_topic_partition_list_t *given; /* the assignment; NULL: none */
	bool unanswered;                        /* its beginning is not known yet */
	/* clock_ms: when it was given, stepped last, asked the coordinator what it has granted
	 * since, and is to ask it again */
	int64_t given_ms, stepped_ms, granted_ms, ask_at;
	int64_t session_ms, patience_ms; /* session.timeout.ms, max.poll.interval.ms */
	struct fetch_wake *wake;
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

static void forget_given(struct subscription *subscription)
{
	if (subscription->given)
		rd_kafka_topic_partition_list_destroy(subscription->given);
	subscription->given = NULL;
	subscription->unanswered = false;
}

static void on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
    rd_kafka_topic_partition_list_t *partitions, void *context)
{
	struct subscription *subscription = context;

	forget_given(subscription);
	if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		subscription->given = rd_kafka_topic_partition_list_copy(partitions);
		subscription->unanswered = true;
		subscription->given_ms = clock_ms();
		subscription->ask_at = subscription->granted_ms = 0;
		if (subscription->unowned)
			unowned_watch_assigned(subscription->unowned);
		return;
	}
	subscription->callbacks.revoked(
	    subscription->callbacks.context, rd_kafka_assignment_lost(handle));
	rd_kafka_assign(handle, NULL);
}

static int64_t subscription_kafka_offset(int64_t offset)
{
	return offset == SUBSCRIPTION_BEGINNING ? RD_KAFKA_OFFSET_BEGINNING
	       : offset == SUBSCRIPTION_END     ? RD_KAFKA_OFFSET_END
						: offset;
}

/* A copy that ends with a NUL, as librdkafka's does not. */
static char *copy_offset_text(const rd_kafka_topic_partition_t *element)
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
		    element->offset < 0 ? SUBSCRIPTION_NONE : element->offset,
		    copy_offset_text(element)};
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

static void forward_partition_queues(
    struct subscription *subscription, const rd_kafka_topic_partition_list_t *list)
{
	for (int i = 0; i < list->cnt; i++) {
		rd_kafka_queue_t *queue = rd_kafka_queue_get_partition(
		    subscription->handle, list->elems[i].topic, list->elems[i].partition);
		rd_kafka_queue_forward(queue, subscription->records);
		rd_kafka_queue_destroy(queue);
	}
}

/* Those that have one. */
static rd_kafka_topic_partition_list_t *list_with_offsets(
    const struct subscription_place *places, int count)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
	for (int i = 0; i < count; i++)
		if (places[i].offset != SUBSCRIPTION_NONE)
			rd_kafka_topic_partition_list_add(
			    list, places[i].topic, places[i].partition)
			    ->offset = subscription_kafka_offset(places[i].offset);
	return list;
}

/*
 * librdkafka forwards a partition's queue until the partition is no longer read, and does not
 * forward it again. Its thread stops all partitions before it answers the next request.
 */
static void stop_reading(struct subscription *subscription)
{
	rd_kafka_topic_partition_list_t *none;
	rd_kafka_assign(subscription->handle, NULL);
	if (rd_kafka_assignment(subscription->handle, &none) == 0)
		rd_kafka_topic_partition_list_destroy(none);
}

static bool assign_partitions(
    struct subscription *subscription, rd_kafka_topic_partition_list_t *list, struct err *err)
{
	stop_reading(subscription);
	forward_partition_queues(subscription, list);
	rd_kafka_resp_err_t code = rd_kafka_assign(subscription->handle, list);
	/* One that was paused when it went is so still when it comes back. */
	rd_kafka_resume_partitions(subscription->handle, list);
	return !code || kafka_client_failed(err, code, "the assignment");
}

static bool answer_rebalance(struct subscription *subscription, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = subscription->given;
	if (!ask_committed(subscription, list, err))
		return false;
	struct subscription_place *places = places_of(list);
	bool known = subscription->callbacks.assigned(
	    subscription->callbacks.context, places, list->cnt, err);
	subscription->unanswered = !known;
	known = known && subscription_begin(subscription, places, list->cnt, err);
	free_places(places, list->cnt);
	return known;
}

/* --- grants of the coordinator -------------------------------------------------------------- */

static int64_t sooner_deadline(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

/*
 * The coordinator accepts commits of members only. So its answer to a commit shows that this was a
 * member at the time of the request, and is one for session.timeout.ms from then on.
 */
static void note_granted(struct subscription *subscription, int64_t asked_ms)
{
	if (asked_ms >= subscription->given_ms && asked_ms > subscription->granted_ms)
		subscription->granted_ms = asked_ms;
}

/* context: the time of the request. Kafka refuses a topic that no longer exists separately. */
static void on_commit(rd_kafka_t *handle, rd_kafka_resp_err_t code,
    rd_kafka_topic_partition_list_t *offsets, void *context)
{
	struct subscription *subscription = rd_kafka_opaque(handle);
	struct err err;

	for (int i = 0; !code && offsets && i < offsets->cnt; i++)
		if (!offsets->elems[i].err)
			note_granted(subscription, (int64_t)(intptr_t)context);
	for (int i = 0; !code && offsets && i < offsets->cnt; i++)
		code = offsets->elems[i].err;
	if (!code || code == RD_KAFKA_RESP_ERR__NO_OFFSET)
		return;

	subscription->ask_at = sooner_deadline(subscription->ask_at, clock_ms() + ASK_AGAIN_MS);
	kafka_client_failed(&err, code, "offsets are not committed");
	subscription->callbacks.not_committed(subscription->callbacks.context, &err);
}

int64_t subscription_held_until(const struct subscription *subscription)
{
	return sooner_deadline(subscription->granted_ms + subscription->session_ms * 9 / 10,
	    subscription->stepped_ms + subscription->patience_ms * 9 / 10);
}

bool subscription_is_to_ask(const struct subscription *subscription)
{
	return clock_ms() >= subscription->ask_at;
}

/* --- life ----------------------------------------------------------------------------------- */

static rd_kafka_conf_t *make_subscription_conf(
    const struct subscription_settings *settings, void *context, struct err *err)
{
	static const char *const defaults[] = {"fetch.wait.max.ms", "100", "fetch.error.backoff.ms",
	    "50", "fetch.message.max.bytes", "524288", NULL};
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
		return conf;
	}
	rd_kafka_conf_destroy(conf);
	return NULL;
}

static int64_t configured_number(const rd_kafka_conf_t *conf, const char *name)
{
	char text[32] = "";
	size_t size = sizeof text;
	int64_t number = 0;
	if (conf)
		rd_kafka_conf_get(conf, name, text, &size);
	(void)text_to_int64(text, 1, INT64_MAX, &number);
	return number;
}

static void tell_of(rd_kafka_queue_t *queue, int fd)
{
	rd_kafka_queue_io_event_enable(queue, fd, &(uint64_t){1}, sizeof(uint64_t));
}

struct subscription *subscription_create(const struct subscription_settings *settings,
    const struct subscription_callbacks *callbacks, struct err *err)
{
	struct subscription *subscription = xcalloc(1, sizeof *subscription);
	rd_kafka_conf_t *conf = make_subscription_conf(settings, subscription, err);

	subscription->callbacks = *callbacks;
	subscription->session_ms = configured_number(conf, "session.timeout.ms");
	subscription->patience_ms = configured_number(conf, "max.poll.interval.ms");
	subscription->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	subscription->handle = kafka_client_open(RD_KAFKA_CONSUMER, conf, settings->kafka, err);
	if (!subscription->handle)
		goto fail;
	if (subscription->fd < 0) {
		err_set(err, ERR_RETRY, "no eventfd for a consumer: %s", strerror(errno));
		goto fail;
	}
	subscription->wake = fetch_wake_create(subscription->handle, READY_MESSAGES, READY_BYTES);
	rd_kafka_poll_set_consumer(subscription->handle);
	subscription->events = rd_kafka_queue_get_consumer(subscription->handle);
	subscription->records = rd_kafka_queue_new(subscription->handle);
	tell_of(subscription->events, subscription->fd);
	tell_of(subscription->records, subscription->fd);
	return subscription;
fail:
	subscription_destroy(subscription, 0);
	return NULL;
}

bool subscription_join(struct subscription *subscription,
    const struct subscription_settings *settings, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	for (const char *const *topic = settings->topics; *topic; topic++)
		rd_kafka_topic_partition_list_add(list, *topic, RD_KAFKA_PARTITION_UA);
	subscription->unowned = unowned_watch_create(subscription->handle, settings->group, list);
	rd_kafka_resp_err_t code = rd_kafka_subscribe(subscription->handle, list);
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, "the topics");
}

bool subscription_is_stale(const struct subscription *subscription)
{
	return client_files_is_stale(subscription->handle) ||
	       (subscription->unowned && unowned_watch_is_stale(subscription->unowned));
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
	forget_given(subscription);
	unowned_watch_destroy(subscription->unowned);
	subscription->unowned = NULL; /* closing the client may still call on_rebalance */

	fetch_wake_destroy(subscription->wake);
	/* librdkafka's threads end only after the last queue is gone. */
	drop_queue(subscription->events);
	drop_queue(subscription->records);
	kafka_client_close(subscription->handle, wait_ms);
	if (subscription->fd >= 0)
		close(subscription->fd);
	free(subscription);
}

/* --- records -------------------------------------------------------------------------------- */

static bool take_subscription_error(
    struct subscription *subscription, const rd_kafka_message_t *message, struct err *err)
{
	const struct subscription_callbacks *callbacks = &subscription->callbacks;
	const char *topic = message->rkt ? rd_kafka_topic_name(message->rkt) : "";
	char text[600];

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
		kafka_client_explain(subscription->handle, message->err,
		    rd_kafka_message_errstr(message), text, sizeof text);
		return err_set(err, kafka_error_kind(message->err), "%s%s%s", topic,
		    topic[0] ? ": " : "", text);
	}
}

static void take_subscription_message(rd_kafka_message_t *message, void *context)
{
	struct reading *reading = context;
	struct subscription *subscription = reading->subscription;

	if (message->err) {
		reading->failed = !take_subscription_error(subscription, message, reading->err);
		if (reading->failed)
			rd_kafka_yield(subscription->handle);
		return;
	}
	reading->count++;
	reading->bytes += message->key_len + message->len;
	const struct consumer_record record = consumer_record_of(message);
	if (!reading->see(reading->context, &record))
		rd_kafka_yield(subscription->handle); /* the others stay in the queue */
}

bool subscription_step(struct subscription *subscription, struct err *err)
{
	subscription->stepped_ms = clock_ms();
	rd_kafka_message_t *message = rd_kafka_consumer_poll(subscription->handle, 0);
	bool well =
	    !message || !message->err || take_subscription_error(subscription, message, err);
	if (message)
		rd_kafka_message_destroy(message);

	well = unowned_watch_step(subscription->unowned, err) && well;
	return well && (!subscription->unanswered || answer_rebalance(subscription, err));
}

bool subscription_read(struct subscription *subscription, subscription_see *see, void *context,
    int *ret_count, struct err *err)
{
	struct reading reading = {
	    .subscription = subscription, .see = see, .context = context, .err = err};
	fetch_wake_look(subscription->wake, subscription->records);
	rd_kafka_consume_callback_queue(
	    subscription->records, 0, take_subscription_message, &reading);
	*ret_count = reading.count;
	fetch_wake_note(subscription->wake, (size_t)reading.count, reading.bytes);
	return !reading.failed;
}

int subscription_fd(const struct subscription *subscription)
{
	return subscription->fd;
}

/* --- places --------------------------------------------------------------------------------- */

static rd_kafka_topic_partition_list_t *list_of_subscription_places(
    const struct subscription_place *places, int count, bool texts)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
	for (int i = 0; i < count; i++) {
		rd_kafka_topic_partition_t *element =
		    rd_kafka_topic_partition_list_add(list, places[i].topic, places[i].partition);
		element->offset = subscription_kafka_offset(places[i].offset);
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
	rd_kafka_topic_partition_list_t *list = list_of_subscription_places(place, 1, false);
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
	subscription->unanswered = subscription->given;
	rd_kafka_resp_err_t code = rd_kafka_assign(subscription->handle, NULL);
	return !code || kafka_client_failed(err, code, "the assignment");
}

bool subscription_begin(struct subscription *subscription, const struct subscription_place *places,
    int count, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = list_with_offsets(places, count);
	bool begun = assign_partitions(subscription, list, err);
	rd_kafka_topic_partition_list_destroy(list);
	return begun;
}

bool subscription_commit(struct subscription *subscription, const struct subscription_place *places,
    int count, bool wait, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = list_of_subscription_places(places, count, true);
	int64_t asked_ms = clock_ms();
	subscription->ask_at = asked_ms + subscription->session_ms / 3;
	rd_kafka_resp_err_t code =
	    wait ? commit_and_wait(subscription, list)
		 : rd_kafka_commit_queue(subscription->handle, list, subscription->events,
		       on_commit, (void *)(intptr_t)asked_ms);
	if (wait && !code)
		note_granted(subscription, asked_ms);
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, "offsets are not committed");
}

/* time_ms: or RD_KAFKA_OFFSET_BEGINNING, _END. rd_kafka_query_watermark_offsets keeps no time limit
 * while the leader is away. */
static bool ask_offset(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t time_ms, int64_t *ret_offset, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *place =
	    rd_kafka_topic_partition_list_add(list, topic, partition);
	place->offset = time_ms;
	rd_kafka_resp_err_t code =
	    rd_kafka_offsets_for_times(subscription->handle, list, LEADER_MS);
	if (!code)
		code = place->err;
	*ret_offset = place->offset;
	rd_kafka_topic_partition_list_destroy(list);
	return !code || kafka_client_failed(err, code, topic);
}

bool subscription_range(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t *ret_low, int64_t *ret_high, struct err *err)
{
	return ask_offset(
		   subscription, topic, partition, RD_KAFKA_OFFSET_BEGINNING, ret_low, err) &&
	       ask_offset(subscription, topic, partition, RD_KAFKA_OFFSET_END, ret_high, err);
}

bool subscription_at(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t time_ms, int64_t *ret_offset, struct err *err)
{
	if (!ask_offset(subscription, topic, partition, time_ms > 0 ? time_ms : 0, ret_offset, err))
		return false;
	if (*ret_offset < 0)
		*ret_offset = INT64_MAX;
	return true;
}
