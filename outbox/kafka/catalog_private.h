#pragma once
/* What catalog.c (the background look-ups) and catalog_questions.c (the blocking ones) share. */
#include <librdkafka/rdkafka.h>
#include "catalog.h"

/*
 * The catalog replaces its client from time to time. A caller that queries with the client borrows
 * the catalog, passes the number of topics of its query, and returns it with OWNED(catalog_return).
 */
struct catalog *catalog_borrow(struct catalog *catalog, int topics);
void catalog_return(struct catalog **catalog);
rd_kafka_t *catalog_handle(const struct catalog *catalog); /* while it is borrowed */
