#include "bare.h"

#include <librdkafka/rdkafka.h>
#include "clock.h"
#include "kafka_client.h"
#include "kafka_conf.h"

enum { POLL_MS = 100, LONG_MS = 60000, CLOSE_MS = 5000 };

static rd_kafka_t *join(
    const struct config_kafka *kafka, const char *topic, const char *group, struct err *err)
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

static bool read_all(rd_kafka_t *handle, int64_t count, int64_t *ret_span_us, struct err *err)
{
	int64_t first_us = 0, silent_ms = 0;
	for (int64_t read = 0; read < count && silent_ms < LONG_MS;) {
		rd_kafka_message_t *message = rd_kafka_consumer_poll(handle, POLL_MS);
		silent_ms = message ? 0 : silent_ms + POLL_MS;
		if (message && !message->err && read++ == 0)
			first_us = clock_us();
		if (message)
			rd_kafka_message_destroy(message);
	}
	*ret_span_us = clock_us() - first_us;
	return silent_ms < LONG_MS ||
	       err_set(err, ERR_RETRY, "no record came for %d s", LONG_MS / 1000);
}

bool bare_consume(const struct config_kafka *kafka, const char *topic, const char *group,
    int64_t count, int64_t *ret_span_us, struct err *err)
{
	rd_kafka_t *handle = join(kafka, topic, group, err);
	bool good = handle && read_all(handle, count, ret_span_us, err);
	if (handle)
		rd_kafka_consumer_close(handle);
	kafka_client_close(handle, CLOSE_MS);
	return good;
}
