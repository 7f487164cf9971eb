#include "group.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "consumer_private.h"
#include "fetch_wake.h"
#include "client_files.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"
#include "unowned.h"

/*
 * Rebalances come as events in the same queue as records: the reading thread meets them in order,
 * and may take its time with the answer. Only the eager protocol is used, which revokes all
 * partitions before it assigns any: after that, no member needs the records that were read before.
 */
enum { READY_MESSAGES = 5000, READY_BYTES = 1 << 20, ASK_AGAIN_MS = 200 };

/* See group_position and group_at_end. */
struct position {
	int64_t offset;
	bool at_end;
};

struct group {
	rd_kafka_t *handle;
	rd_kafka_queue_t *queue;
	char *topic;
	struct unowned_watch *unowned;
	struct group_callbacks callbacks;
	/* an assignment that the caller could not answer yet; NULL: none */
	rd_kafka_topic_partition_list_t *unanswered;
	int64_t ask_at;
	rd_kafka_event_t **events; /* records that the caller has not released */
	int event_count, event_room;
	struct fetch_wake *wake;
	struct position *positions; /* by partition */
	int32_t position_count;
};

static rd_kafka_conf_t *make_group_conf(
    const struct kafka_settings *kafka, const char *name, struct err *err)
{
	static const char *const defaults[] = {"fetch.wait.max.ms", "100", "fetch.error.backoff.ms",
	    "50", "fetch.message.max.bytes", "1048576", NULL};
	rd_kafka_conf_t *conf = kafka_conf_reader(kafka, "read_committed", "error", defaults, err);

	if (!conf)
		return NULL;
	/* Eager strategies only: take_rebalance gives up all partitions at each revocation. */
	if (kafka_conf_bound_ready(conf, READY_MESSAGES, READY_BYTES, err) &&
	    kafka_conf_set(conf, "group.id", name, err) &&
	    kafka_conf_set(conf, "partition.assignment.strategy", "range,roundrobin", err) &&
	    kafka_conf_set(conf, "enable.auto.offset.store", "false", err)) {
		rd_kafka_conf_set_events(
		    conf, RD_KAFKA_EVENT_REBALANCE | RD_KAFKA_EVENT_FETCH | RD_KAFKA_EVENT_ERROR);
		return conf;
	}
	rd_kafka_conf_destroy(conf);
	return NULL;
}

static bool subscribe_group(struct group *group, const char *name, struct err *err)
{
	rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);

	rd_kafka_topic_partition_list_add(topics, group->topic, RD_KAFKA_PARTITION_UA);
	group->unowned = unowned_watch_create(group->handle, name, topics);
	rd_kafka_resp_err_t code = rd_kafka_subscribe(group->handle, topics);
	rd_kafka_topic_partition_list_destroy(topics);
	return code == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_client_failed(err, code, group->topic);
}

struct group *group_create(const struct kafka_settings *kafka, const char *name, const char *topic,
    const struct group_callbacks *callbacks, struct err *err)
{
	struct group *group = xcalloc(1, sizeof *group);

	group->topic = xstrdup(topic);
	group->callbacks = *callbacks;
	group->handle =
	    kafka_client_open(RD_KAFKA_CONSUMER, make_group_conf(kafka, name, err), kafka, err);
	if (!group->handle)
		goto fail;
	group->wake = fetch_wake_create(group->handle, READY_MESSAGES, READY_BYTES);
	rd_kafka_poll_set_consumer(group->handle);
	group->queue = rd_kafka_queue_get_consumer(group->handle);
	if (subscribe_group(group, name, err))
		return group;
fail:
	group_destroy(group, 0);
	return NULL;
}

bool group_is_stale(const struct group *group)
{
	return client_files_is_stale(group->handle) || unowned_watch_is_stale(group->unowned);
}

static void forget_assignment(struct group *group)
{
	if (group->unanswered)
		rd_kafka_topic_partition_list_destroy(group->unanswered);
	group->unanswered = NULL;
}

void group_destroy(struct group *group, int wait_ms)
{
	if (!group)
		return;

	group_release(group);
	forget_assignment(group);
	/* The end of a client needs its events and queues to be freed before. */
	if (group->handle)
		rd_kafka_assign(group->handle, NULL);
	unowned_watch_destroy(group->unowned);
	fetch_wake_destroy(group->wake);
	if (group->queue)
		rd_kafka_queue_destroy(group->queue);
	kafka_client_close(group->handle, wait_ms); /* leaves the group */
	free(group->events);
	free(group->positions);
	free(group->topic);
	free(group);
}

/* --- positions ---------------------------------------------------------------------------------
 */

static const struct position unknown = {.offset = -1};

static void forget_positions(struct group *group)
{
	for (int32_t i = 0; i < group->position_count; i++)
		group->positions[i] = unknown;
}

static void note_position(struct group *group, int32_t partition, int64_t offset, bool at_end)
{
	if (partition >= group->position_count) {
		int32_t count = partition + 1;

		group->positions =
		    xrealloc(group->positions, (size_t)count * sizeof *group->positions);
		for (int32_t i = group->position_count; i < count; i++)
			group->positions[i] = unknown;
		group->position_count = count;
	}
	group->positions[partition] = (struct position){offset, at_end};
}

static const struct position *position_of(const struct group *group, int32_t partition)
{
	return partition < group->position_count ? &group->positions[partition] : &unknown;
}

int64_t group_position(const struct group *group, int32_t partition)
{
	return position_of(group, partition)->offset;
}

bool group_at_end(const struct group *group, int32_t partition)
{
	return position_of(group, partition)->at_end;
}

/* --- rebalances --------------------------------------------------------------------------------
 */

static int64_t group_kafka_offset(int64_t offset)
{
	return offset == GROUP_BEGINNING ? RD_KAFKA_OFFSET_BEGINNING : offset;
}

/* Answers the assignment that waits. */
static bool answer_assignment(struct group *group, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = group->unanswered;
	struct group_place *places = xcalloc((size_t)list->cnt + 1, sizeof *places);
	rd_kafka_resp_err_t code;
	bool known;

	for (int i = 0; i < list->cnt; i++)
		places[i].partition = list->elems[i].partition;
	known = group->callbacks.assigned(group->callbacks.context, places, list->cnt, err);
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = group_kafka_offset(places[i].offset);
	free(places);
	group->ask_at = clock_ms() + ASK_AGAIN_MS;
	/* The assignment remains unanswered, and group_read calls again after ASK_AGAIN_MS. */
	if (!known)
		return false;
	code = rd_kafka_assign(group->handle, list);
	forget_assignment(group);
	return code == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_client_failed(err, code, group->topic);
}

static void take_rebalance(struct group *group, rd_kafka_event_t *event)
{
	forget_assignment(group);
	forget_positions(group);
	if (rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		group->unanswered =
		    rd_kafka_topic_partition_list_copy(rd_kafka_event_topic_partition_list(event));
		group->ask_at = 0;
		unowned_watch_assigned(group->unowned);
		return;
	}
	group->callbacks.revoked(group->callbacks.context);
	rd_kafka_assign(group->handle, NULL);
}

/* --- records -----------------------------------------------------------------------------------
 */

void group_release(struct group *group)
{
	for (int i = 0; i < group->event_count; i++)
		rd_kafka_event_destroy(group->events[i]);
	group->event_count = 0;
}

/* The end of a partition comes as an error, too. */
static void note_end(struct group *group, rd_kafka_event_t *event)
{
	rd_kafka_topic_partition_t *end = rd_kafka_event_topic_partition(event);

	if (!end)
		return;
	note_position(group, end->partition, end->offset, true);
	rd_kafka_topic_partition_destroy(end);
}

static bool take_group_error(struct group *group, rd_kafka_event_t *event, struct err *err)
{
	rd_kafka_resp_err_t code = rd_kafka_event_error(event);

	if (code == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
		note_end(group, event);
		return true;
	}
	char text[768];
	kafka_client_explain(
	    group->handle, code, rd_kafka_event_error_string(event), text, sizeof text);
	err_set(err, kafka_error_kind(code), "topic %s: %s", group->topic, text);
	if (code == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET)
		err->kind = ERR_FATAL;
	return false;
}

/* A message may be an error as well. */
static bool take_group_message(struct group *group, const rd_kafka_message_t *message,
    struct consumer_record *ret_record, bool *ret_some, struct err *err)
{
	if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
		note_position(group, message->partition, message->offset + 1, false);
		*ret_record = consumer_record_of((rd_kafka_message_t *)message);
		fetch_wake_note(group->wake, 1, message->len + message->key_len);
		*ret_some = true;
		return true;
	}

	err_set(err, kafka_error_kind(message->err), "topic %s [%d]: %s (%s)", group->topic,
	    message->partition, rd_kafka_message_errstr(message), rd_kafka_err2name(message->err));
	/* A retry cannot bring the offset back; only a group_seek helps. */
	if (message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET)
		err->kind = ERR_FATAL;
	return false;
}

static void keep_event(struct group *group, rd_kafka_event_t *event)
{
	if (group->event_count == group->event_room) {
		group->event_room = group->event_room ? 2 * group->event_room : 256;
		group->events =
		    xrealloc(group->events, (size_t)group->event_room * sizeof *group->events);
	}
	group->events[group->event_count++] = event;
}

static bool take_group_event(struct group *group, rd_kafka_event_t *event,
    struct consumer_record *ret_record, bool *ret_some, struct err *err)
{
	const rd_kafka_message_t *message;
	bool well = true;

	switch (rd_kafka_event_type(event)) {
	case RD_KAFKA_EVENT_REBALANCE:
		take_rebalance(group, event);
		break;
	case RD_KAFKA_EVENT_FETCH:
		message = rd_kafka_event_message_next(event);
		well = !message || take_group_message(group, message, ret_record, ret_some, err);
		break;
	case RD_KAFKA_EVENT_ERROR:
		well = take_group_error(group, event, err);
		break;
	default:
		break;
	}
	if (*ret_some)
		keep_event(group, event); /* the record is in it */
	else
		rd_kafka_event_destroy(event);
	return well;
}

bool group_read(struct group *group, int timeout_ms, struct consumer_record *ret_record,
    bool *ret_some, struct err *err)
{
	int64_t until = clock_ms() + timeout_ms;
	bool rebalanced = false;

	*ret_some = false;
	fetch_wake_look(group->wake, group->queue);
	if (!unowned_watch_step(group->unowned, err))
		return false;
	if (group->unanswered && clock_ms() >= group->ask_at && !answer_assignment(group, err))
		return false;
	/*
	 * The end of one partition comes again and again, with records of other partitions behind
	 * it.
	 */
	while (!*ret_some && !rebalanced) {
		int64_t left = until - clock_ms();
		rd_kafka_event_t *event =
		    rd_kafka_queue_poll(group->queue, left > 0 ? (int)left : 0);

		if (!event)
			return true;
		rebalanced = rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE;
		if (!take_group_event(group, event, ret_record, ret_some, err))
			return false;
	}
	return true;
}

/* --- places ------------------------------------------------------------------------------------
 */

static rd_kafka_topic_partition_list_t *list_of_group_places(
    const struct group *group, const struct group_place *places, int count)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);

	for (int i = 0; i < count; i++)
		rd_kafka_topic_partition_list_add(list, group->topic, places[i].partition)->offset =
		    group_kafka_offset(places[i].offset);
	return list;
}

/*
 * Seeks by a new assignment: librdkafka no longer fetches a partition whose offset did not exist,
 * and rd_kafka_seek_partitions refuses it.
 */
bool group_seek(struct group *group, const struct group_place *places, int count, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = list_of_group_places(group, places, count);
	rd_kafka_resp_err_t code = rd_kafka_assign(group->handle, list);

	forget_positions(group);
	rd_kafka_topic_partition_list_destroy(list);
	return code == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_client_failed(err, code, group->topic);
}

bool group_ends(
    struct group *group, struct group_place *places, int count, int timeout_ms, struct err *err)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
	rd_kafka_resp_err_t code, first;

	for (int i = 0; i < count; i++)
		rd_kafka_topic_partition_list_add(list, group->topic, places[i].partition)->offset =
		    RD_KAFKA_OFFSET_END;
	first = code = rd_kafka_offsets_for_times(group->handle, list, timeout_ms);
	for (int i = 0; i < count; i++) {
		/* After a request that failed as a whole, no partition has a code of its own. */
		rd_kafka_resp_err_t own = code ? code : list->elems[i].err;

		places[i].offset = own ? -1 : list->elems[i].offset;
		first = first ? first : own;
	}
	rd_kafka_topic_partition_list_destroy(list);
	return first == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_client_failed(err, first, group->topic);
}

void group_note(struct group *group, const struct group_place *places, int count)
{
	rd_kafka_topic_partition_list_t *list = list_of_group_places(group, places, count);

	rd_kafka_commit(group->handle, list, 1); /* the result does not matter */
	rd_kafka_topic_partition_list_destroy(list);
}
