#pragma once
/* What catalog.c (the background look-ups) and catalog_questions.c (the blocking ones) share. */
#include <librdkafka/rdkafka.h>
#include "catalog.h"

/*
 * The client is exchanged for a new one now and then: who asks with it borrows the catalog, saying
 * how many topics it is to hear of, and gives it back with OWNED(catalog_return).
 */
struct catalog *catalog_borrow(struct catalog *catalog, int topics);
void catalog_return(struct catalog **catalog);
rd_kafka_t *catalog_handle(const struct catalog *catalog); /* while it is borrowed */
