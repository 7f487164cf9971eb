#pragma once
/* What catalog.c (the background look-ups) and catalog_questions.c (the blocking ones) share. */
#include <librdkafka/rdkafka.h>
#include "catalog.h"

rd_kafka_t *catalog_handle(const struct catalog *catalog);
