#pragma once
/*
 * Looks for partitions that no member of a consumer group owns. librdkafka's group leader divides
 * the partitions that it knows when a rebalance begins. If a topic changes during the rebalance (it
 * gets partitions, or is deleted and created again), the leader may divide an old list, notices no
 * further change, and the other partitions have no owner until the next rebalance.
 *
 * Some seconds after each assignment, and now and then after that, the watch compares the group's
 * assignments (DescribeConsumerGroups) with the number of partitions of each topic. Private to this
 * folder; used by the thread that polls the consumer.
 */
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include "errors.h"

struct unowned_watch;

/* Copies group and topics; `handle` must outlive it. */
struct unowned_watch *unowned_watch_create(
    rd_kafka_t *handle, const char *group, const rd_kafka_topic_partition_list_t *topics);
void unowned_watch_destroy(struct unowned_watch *watch); /* NULL is fine */

/* The consumer must be replaced: librdkafka would abort the process when the coordinator is back.
 */
bool unowned_watch_is_stale(const struct unowned_watch *watch);

/* The consumer has received its partitions, or none. */
void unowned_watch_assigned(struct unowned_watch *watch);

/*
 * Called often. If a partition has no owner, logs it, leaves the group and joins it again, which
 * makes the leader divide all partitions; if that does not help, the pause until the next time
 * doubles. A member with group.instance.id does not leave, and the broker then starts no rebalance
 * unless it is the leader. Blocks only for a request of metadata, up to 2 s, twice a minute. False:
 * librdkafka refuses the subscription.
 */
bool unowned_watch_step(struct unowned_watch *watch, struct err *err) MUST_CHECK;
