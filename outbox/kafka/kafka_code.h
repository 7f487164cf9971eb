#pragma once
/* A table of error codes of Kafka and librdkafka, and the meaning that each has for a caller. */
#include <librdkafka/rdkafka.h>
#include <stddef.h>

struct kafka_code {
	rd_kafka_resp_err_t code;
	int meaning;
};

static inline int kafka_code_meaning(
    const struct kafka_code *codes, size_t count, rd_kafka_resp_err_t code, int otherwise)
{
	for (size_t i = 0; i < count; i++)
		if (codes[i].code == code)
			return codes[i].meaning;
	return otherwise;
}
