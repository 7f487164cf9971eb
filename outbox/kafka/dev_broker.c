#include "dev_broker.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

#include "dev_gate.h"
#include "logging.h"
#include "text.h"

struct dev_broker {
	rd_kafka_t *handle; /* only carries the cluster */
	rd_kafka_mock_cluster_t *cluster;
	struct dev_gate *gate; /* clients connect to it, not to the cluster */
	int brokers, partitions;
};

/* Its own "no bootstrap.servers" and each client's comings and goings are nobody's business. */
static void on_dev_broker_log(
    const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	(void)handle;
	(void)level;
	log_debug("dev_broker_log", {"facility", LOG_TEXT(facility)}, {"text", LOG_TEXT(text)});
}

struct dev_broker *dev_broker_create(int brokers, int partitions, int port, struct err *err)
{
	struct dev_broker *broker = xcalloc(1, sizeof *broker);
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char text[256];

	broker->brokers = brokers;
	broker->partitions = partitions;
	rd_kafka_conf_set_log_cb(conf, on_dev_broker_log);
	broker->handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
	if (!broker->handle) {
		rd_kafka_conf_destroy(conf);
		err_set(err, ERR_FATAL, "no embedded broker: %s", text);
		goto fail;
	}
	broker->cluster = rd_kafka_mock_cluster_new(broker->handle, brokers);
	if (!broker->cluster) {
		err_set(err, ERR_FATAL, "no embedded broker: librdkafka made no mock cluster of %d",
		    brokers);
		goto fail;
	}
	broker->gate =
	    dev_gate_create(rd_kafka_mock_cluster_bootstraps(broker->cluster), port, err);
	if (broker->gate)
		return broker;
fail:
	dev_broker_destroy(broker);
	return NULL;
}

void dev_broker_destroy(struct dev_broker *broker)
{
	if (!broker)
		return;
	dev_gate_destroy(broker->gate);
	if (broker->cluster)
		rd_kafka_mock_cluster_destroy(broker->cluster);
	if (broker->handle)
		rd_kafka_destroy(broker->handle);
	free(broker);
}

const char *dev_broker_bootstrap(const struct dev_broker *broker)
{
	return dev_gate_bootstrap(broker->gate);
}

bool dev_broker_topic(struct dev_broker *broker, const char *name, int partitions, struct err *err)
{
	rd_kafka_resp_err_t code = rd_kafka_mock_topic_create(broker->cluster, name,
	    partitions > 0 ? partitions : broker->partitions,
	    broker->brokers < 3 ? broker->brokers : 3);

	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		return true;
	return err_set(err, code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS ? ERR_REJECT : ERR_FATAL,
	    "topic %s on the embedded broker: %s", name, rd_kafka_err2str(code));
}
