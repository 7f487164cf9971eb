/*
 * Blocking requests about topics, for doctor, verify and bench: settings, partitions without a
 * leader, the number of brokers, creating and deleting. Each function is independent of the others.
 */
#include "topic_metadata_private.h"

#include <stdlib.h>

#include "cleanup.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"

/* The smallest number of replicas over the partitions. */
static bool replication_factor(struct topic_metadata *metadata, const char *topic, int timeout_ms,
    int *ret_factor, struct err *err)
{
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *answer = NULL;
	rd_kafka_resp_err_t code =
	    kafka_client_topic(topic_metadata_handle(metadata), topic, timeout_ms, &answer);
	const struct rd_kafka_metadata_topic *found;

	if (kafka_client_is_missing(code))
		return err_set(err, ERR_REJECT, "topic %s does not exist", topic);
	if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
		return kafka_client_unanswered(err, topic_metadata_handle(metadata), code, topic);
	found = &answer->topics[0];
	*ret_factor = found->partition_cnt > 0 ? found->partitions[0].replica_cnt : 0;
	for (int i = 1; i < found->partition_cnt; i++)
		if (found->partitions[i].replica_cnt < *ret_factor)
			*ret_factor = found->partitions[i].replica_cnt;
	return true;
}

static void copy_settings(const rd_kafka_ConfigResource_t *resource, int factor,
    struct topic_setting **ret_settings, int *ret_count)
{
	size_t count = 0;
	const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(resource, &count);
	struct topic_setting *settings = xcalloc(count + 1, sizeof *settings);

	for (size_t i = 0; i < count; i++) {
		const char *value = rd_kafka_ConfigEntry_value(entries[i]);

		settings[i].name = xstrdup(rd_kafka_ConfigEntry_name(entries[i]));
		settings[i].value = xstrdup(value ? value : "");
	}
	settings[count].name = xstrdup("replication.factor");
	settings[count].value = xformat("%d", factor);
	*ret_settings = settings;
	*ret_count = (int)count + 1;
}

/* Waits for the one result of an admin request; NULL when it failed as a whole. */
static rd_kafka_event_t *admin_result(
    rd_kafka_queue_t *queue, int timeout_ms, const char *what, struct err *err)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(queue, timeout_ms);

	if (!event) {
		err_set(err, ERR_RETRY, "%s: no answer within %d ms", what, timeout_ms);
		return NULL;
	}
	if (!rd_kafka_event_error(event))
		return event;
	err_set(err, kafka_error_kind(rd_kafka_event_error(event)), "%s: %s", what,
	    rd_kafka_event_error_string(event));
	rd_kafka_event_destroy(event);
	return NULL;
}

static void release_queue(rd_kafka_queue_t **queue)
{
	rd_kafka_queue_destroy(*queue);
}
static void release_event(rd_kafka_event_t **event)
{
	rd_kafka_event_destroy(*event);
}
static void release_options(rd_kafka_AdminOptions_t **options)
{
	rd_kafka_AdminOptions_destroy(*options);
}

static rd_kafka_AdminOptions_t *admin_options(
    struct topic_metadata *metadata, rd_kafka_admin_op_t operation, int timeout_ms)
{
	rd_kafka_AdminOptions_t *options =
	    rd_kafka_AdminOptions_new(topic_metadata_handle(metadata), operation);
	char text[128];

	/* Out of librdkafka's range (0 … one hour) its default applies. */
	rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, text, sizeof text);
	return options;
}

bool topic_metadata_settings(struct topic_metadata *metadata, const char *topic, int timeout_ms,
    struct topic_setting **ret_settings, int *ret_count, struct err *err)
{
	/*
	 * Declared first and so returned last: queue and event must be freed before the client
	 * ends.
	 */
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 1);
	OWNED(release_queue)
	rd_kafka_queue_t *queue = rd_kafka_queue_new(topic_metadata_handle(borrowed));
	OWNED(release_options)
	rd_kafka_AdminOptions_t *options =
	    admin_options(metadata, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout_ms);
	OWNED(release_event) rd_kafka_event_t *event = NULL;
	rd_kafka_ConfigResource_t *asked;
	const rd_kafka_ConfigResource_t **found;
	size_t count = 0;
	int factor = 0;

	if (!replication_factor(metadata, topic, timeout_ms, &factor, err))
		return false;
	asked = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
	rd_kafka_DescribeConfigs(topic_metadata_handle(borrowed), &asked, 1, options, queue);
	rd_kafka_ConfigResource_destroy(asked);
	/* librdkafka answers by itself when the time is over; the second is for its scheduling. */
	event = admin_result(queue, timeout_ms + 1000, topic, err);
	if (!event)
		return false;
	found = rd_kafka_DescribeConfigs_result_resources(
	    rd_kafka_event_DescribeConfigs_result(event), &count);
	if (count != 1)
		return err_set(err, ERR_RETRY, "%s: the broker described %zu topics", topic, count);
	if (rd_kafka_ConfigResource_error(found[0]))
		return kafka_client_failed(err, rd_kafka_ConfigResource_error(found[0]), topic);
	copy_settings(found[0], factor, ret_settings, ret_count);
	return true;
}

void topic_metadata_settings_free(struct topic_setting *settings, int count)
{
	for (int i = 0; i < count; i++) {
		free(settings[i].name);
		free(settings[i].value);
	}
	free(settings);
}

bool topic_metadata_leaderless(struct topic_metadata *metadata, const char *topic, int timeout_ms,
    struct text *ret_numbers, int *ret_count, struct err *err)
{
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 0);
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *answer = NULL;
	rd_kafka_resp_err_t code =
	    kafka_client_topic(topic_metadata_handle(borrowed), topic, timeout_ms, &answer);

	*ret_count = 0;
	if (kafka_client_is_missing(code))
		return true;
	if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
		return kafka_client_unanswered(err, topic_metadata_handle(borrowed), code, topic);
	for (int i = 0; i < answer->topics[0].partition_cnt; i++)
		if (answer->topics[0].partitions[i].leader < 0)
			text_addf(ret_numbers, "%s%d", (*ret_count)++ ? ", " : "",
			    (int)answer->topics[0].partitions[i].id);
	return true;
}

bool topic_metadata_broker_count(
    struct topic_metadata *metadata, int timeout_ms, int *ret_count, struct err *err)
{
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 0);
	OWNED(kafka_client_free_metadata) const struct rd_kafka_metadata *answer = NULL;
	rd_kafka_resp_err_t code =
	    rd_kafka_metadata(topic_metadata_handle(borrowed), 0, NULL, &answer, timeout_ms);

	if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
		return kafka_client_unanswered(
		    err, topic_metadata_handle(borrowed), code, "the list of brokers");
	*ret_count = answer->broker_cnt;
	return true;
}

static bool ask_to_create(struct topic_metadata *metadata, rd_kafka_NewTopic_t *wanted,
    const char *topic, int timeout_ms, struct err *err)
{
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 1);
	OWNED(release_queue)
	rd_kafka_queue_t *queue = rd_kafka_queue_new(topic_metadata_handle(borrowed));
	OWNED(release_options)
	rd_kafka_AdminOptions_t *options =
	    admin_options(metadata, RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout_ms);
	OWNED(release_event) rd_kafka_event_t *event = NULL;
	const rd_kafka_topic_result_t **results;
	rd_kafka_resp_err_t code;
	size_t count = 0;

	rd_kafka_CreateTopics(topic_metadata_handle(borrowed), &wanted, 1, options, queue);
	event = admin_result(queue, timeout_ms + 1000, topic, err);
	if (!event)
		return false;
	results =
	    rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
	code = count == 1 ? rd_kafka_topic_result_error(results[0]) : RD_KAFKA_RESP_ERR__BAD_MSG;
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		return true;
	return err_set(err, kafka_error_kind(code), "topic %s: %s (%s)", topic,
	    count == 1 && rd_kafka_topic_result_error_string(results[0])
		? rd_kafka_topic_result_error_string(results[0])
		: rd_kafka_err2str(code),
	    rd_kafka_err2name(code));
}

bool topic_metadata_create_topic(struct topic_metadata *metadata, const char *topic, int partitions,
    int replication, const struct topic_setting *settings, int count, int timeout_ms,
    struct err *err)
{
	char text[256];
	rd_kafka_NewTopic_t *wanted =
	    rd_kafka_NewTopic_new(topic, partitions, replication, text, sizeof text);
	bool done;

	if (!wanted)
		return err_set(err, ERR_REJECT, "topic %s: %s", topic, text);
	for (int i = 0; i < count; i++)
		rd_kafka_NewTopic_set_config(wanted, settings[i].name, settings[i].value);
	done = ask_to_create(metadata, wanted, topic, timeout_ms, err);
	rd_kafka_NewTopic_destroy(wanted);
	return done;
}

bool topic_metadata_delete_topic(
    struct topic_metadata *metadata, const char *topic, int timeout_ms, struct err *err)
{
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 1);
	OWNED(release_queue)
	rd_kafka_queue_t *queue = rd_kafka_queue_new(topic_metadata_handle(borrowed));
	OWNED(release_options)
	rd_kafka_AdminOptions_t *options =
	    admin_options(metadata, RD_KAFKA_ADMIN_OP_DELETETOPICS, timeout_ms);
	OWNED(release_event) rd_kafka_event_t *event = NULL;
	rd_kafka_DeleteTopic_t *unwanted = rd_kafka_DeleteTopic_new(topic);
	const rd_kafka_topic_result_t **results;
	rd_kafka_resp_err_t code;
	size_t count = 0;

	rd_kafka_DeleteTopics(topic_metadata_handle(borrowed), &unwanted, 1, options, queue);
	rd_kafka_DeleteTopic_destroy(unwanted);
	event = admin_result(queue, timeout_ms + 1000, topic, err);
	if (!event)
		return false;
	results =
	    rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
	code = count == 1 ? rd_kafka_topic_result_error(results[0]) : RD_KAFKA_RESP_ERR__BAD_MSG;
	if (kafka_client_is_missing(code))
		return err_set(err, ERR_REJECT, "topic %s does not exist", topic);
	return code == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_client_failed(err, code, topic);
}
