#pragma once
/*
 * librdkafka's mock cluster as an embedded broker to try things out: no durability, no
 * transactions, 5 MiB a partition, no CreateTopics or DescribeConfigs. A topic that anybody asks
 * about is there at once, with 4 partitions: librdkafka has no setting for that number.
 */
#include "errors.h"

struct dev_broker;

/*
 * partitions: the number for topics for which dev_broker_topic gets none. port: the first broker's;
 * the others have the next ones. 0 takes free ports.
 */
struct dev_broker *dev_broker_create(int brokers, int partitions, int port, struct err *err);
void dev_broker_destroy(struct dev_broker *broker);
/* "127.0.0.1:port,…"; owned by the broker. */
const char *dev_broker_bootstrap(const struct dev_broker *broker);
/* Makes a topic now; partitions 0: the usual number. ERR_REJECT when it exists. */
bool dev_broker_topic(
    struct dev_broker *broker, const char *name, int partitions, struct err *err) MUST_CHECK;
