#pragma once
/*
 * Programs in the way of librdkafka's own examples, with which `bench` compares: a member of a
 * group that reads a topic and does nothing with it, and a producer. They block.
 */
#include <stdint.h>
#include "errors.h"
#include "kafka_settings.h"

/* Reads so many records; *ret_span_us: from the first to the last. ERR_RETRY: none came for long.
 */
bool bare_consume(const struct kafka_settings *kafka, const char *topic, const char *group,
    int64_t count, int64_t *ret_span_us, struct err *err) MUST_CHECK;
/*
 * Produces a record to each partition of the topics PREFIX-0, PREFIX-1 and so on. *ret_bytes: the
 * memory of the process once all are acknowledged.
 */
bool bare_open(const struct kafka_settings *kafka, const char *prefix, int64_t topics,
    int partitions, int64_t *ret_bytes, struct err *err) MUST_CHECK;
