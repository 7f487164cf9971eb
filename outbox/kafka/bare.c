#include "bare.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "text.h"

enum { POLL_MS = 100, LONG_MS = 60000, CLOSE_MS = 5000 };

static rd_kafka_t *join_group(
    const struct kafka_settings *kafka, const char *topic, const char *group, struct err *err)
{
	static const char *const defaults[] = {NULL};
	rd_kafka_conf_t *conf =
	    kafka_conf_reader(kafka, "read_committed", "earliest", defaults, err);
	rd_kafka_topic_partition_list_t *topics;
	rd_kafka_t *handle;

	if (!conf)
		return NULL;
	if (!kafka_conf_set(conf, "group.id", group, err)) {
		rd_kafka_conf_destroy(conf);
		return NULL;
	}
	handle = kafka_client_open(RD_KAFKA_CONSUMER, conf, kafka, err);
	if (!handle)
		return NULL;

	rd_kafka_poll_set_consumer(handle);
	topics = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
	rd_kafka_subscribe(handle, topics);
	rd_kafka_topic_partition_list_destroy(topics);
	return handle;
}

static bool read_whole_topic(
    rd_kafka_t *handle, int64_t count, int64_t *ret_span_us, struct err *err)
{
	int64_t first_us = 0, silent_ms = 0;

	for (int64_t read = 0; read < count && silent_ms < LONG_MS;) {
		rd_kafka_message_t *message = rd_kafka_consumer_poll(handle, POLL_MS);
		silent_ms = message ? 0 : silent_ms + POLL_MS;

		/*
		 * The span begins with the first record, so that joining the group is not measured.
		 */
		if (message && !message->err && read++ == 0)
			first_us = clock_us();
		if (message)
			rd_kafka_message_destroy(message);
	}
	*ret_span_us = clock_us() - first_us;
	return silent_ms < LONG_MS ||
	       err_set(err, ERR_RETRY, "no record came for %d s", LONG_MS / 1000);
}

bool bare_consume(const struct kafka_settings *kafka, const char *topic, const char *group,
    int64_t count, int64_t *ret_span_us, struct err *err)
{
	rd_kafka_t *handle = join_group(kafka, topic, group, err);
	bool good = handle && read_whole_topic(handle, count, ret_span_us, err);
	if (handle)
		rd_kafka_consumer_close(handle);
	kafka_client_close(handle, CLOSE_MS);
	return good;
}

static bool produce_one_each(
    rd_kafka_t *handle, const char *name, int partitions, int64_t *failed, struct err *err)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
	for (int32_t p = 0; topic && p < partitions; p++)
		if (rd_kafka_produce(
			topic, p, RD_KAFKA_MSG_F_COPY, (char *)"x", 1, NULL, 0, failed) != 0)
			return kafka_client_failed(err, rd_kafka_last_error(), name);
	rd_kafka_poll(handle, 0);
	return topic || kafka_client_failed(err, rd_kafka_last_error(), name);
}

static void count_failure(rd_kafka_t *handle, const rd_kafka_message_t *report, void *context)
{
	int64_t *failed = report->_private;
	(void)handle;
	(void)context;
	*failed += report->err != RD_KAFKA_RESP_ERR_NO_ERROR;
}

static bool read_resident_bytes(int64_t *ret_bytes, struct err *err)
{
	owned_file FILE *file = fopen("/proc/self/statm", "re");
	long long pages = 0;
	if (!file || fscanf(file, "%*s %lld", &pages) != 1)
		return err_set(err, ERR_FATAL, "/proc/self/statm cannot be read");
	*ret_bytes = pages * sysconf(_SC_PAGESIZE);
	return true;
}

static bool produce_to_all(rd_kafka_t *handle, const char *prefix, int64_t topics, int partitions,
    int64_t *ret_bytes, struct err *err)
{
	int64_t failed = 0;
	for (int64_t i = 0; i < topics; i++) {
		owned_text char *name = xformat("%s-%lld", prefix, (long long)i);
		if (!produce_one_each(handle, name, partitions, &failed, err))
			return false;
	}
	if (rd_kafka_flush(handle, 5 * LONG_MS) != RD_KAFKA_RESP_ERR_NO_ERROR || failed)
		return err_set(err, ERR_RETRY, "%lld records were not taken, and %d not answered",
		    (long long)failed, rd_kafka_outq_len(handle));
	return read_resident_bytes(ret_bytes, err);
}

bool bare_open(const struct kafka_settings *kafka, const char *prefix, int64_t topics,
    int partitions, int64_t *ret_bytes, struct err *err)
{
	rd_kafka_conf_t *conf = kafka_conf_client(kafka, err);

	if (!conf)
		return false;

	rd_kafka_conf_set_dr_msg_cb(conf, count_failure);
	if (!kafka_conf_set(conf, "enable.idempotence", "true", err)) {
		rd_kafka_conf_destroy(conf);
		return false;
	}
	rd_kafka_t *handle = kafka_client_open(RD_KAFKA_PRODUCER, conf, kafka, err);
	bool good = handle && produce_to_all(handle, prefix, topics, partitions, ret_bytes, err);
	kafka_client_close(handle, CLOSE_MS);
	return good;
}
