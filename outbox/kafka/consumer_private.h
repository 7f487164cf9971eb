#pragma once
/* Declarations that consumer.c and tail.c share. */
#include <librdkafka/rdkafka.h>
#include "consumer.h"

/* Points into the message. */
struct consumer_record consumer_record_of(rd_kafka_message_t *message);
