#pragma once
/* Shared by topic_metadata.c (background look-ups) and topic_metadata_requests.c (blocking ones).
 */
#include <librdkafka/rdkafka.h>
#include "topic_metadata.h"

/*
 * The background thread replaces the client from time to time. A caller that queries with the
 * client borrows it first, passes the number of topics of its query, and returns it with
 * OWNED(topic_metadata_return).
 */
struct topic_metadata *topic_metadata_borrow(struct topic_metadata *metadata, int topics);
void topic_metadata_return(struct topic_metadata **metadata);
rd_kafka_t *topic_metadata_handle(const struct topic_metadata *metadata); /* while it is borrowed */
