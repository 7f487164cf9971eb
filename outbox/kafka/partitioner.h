#pragma once
/*
 * The partition that Kafka's Java client chooses for a key: toPositive(murmur2(key)) % count.
 * rd_kafka_msg_partitioner_murmur2_random wants a topic handle only to say whether a partition is
 * available for null keys; keyed records do not need it, so this is that formula (seed 0x9747b28c,
 * org.apache.kafka.common.utils.Utils.murmur2), checked against librdkafka's in the unit tests.
 */
#include <stddef.h>
#include <stdint.h>

/* count > 0, key not NULL (length may be 0). */
int32_t partitioner_of_key(const void *key, size_t length, int32_t count);
