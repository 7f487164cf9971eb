#pragma once
/*
 * A member of a group that reads a topic and does nothing with it, in the way of librdkafka's own
 * examples: what the inbox is compared with in `bench`. Blocks.
 */
#include "config.h"

/* Reads so many records; *ret_span_us: from the first to the last. ERR_RETRY: none came for long.
 */
bool bare_consume(const struct config_kafka *kafka, const char *topic, const char *group,
    int64_t count, int64_t *ret_span_us, struct err *err) MUST_CHECK;
