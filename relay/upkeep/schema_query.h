#pragma once
/* Queries that more than one of the files here and above need. Blocking. */
#include "pg.h"

/* A statement of sql/queries on a schema of any name; rows in text form, NULL on error. */
struct pg_result *schema_query(struct pg *pg, const char *schema, const char *sql,
    const struct pg_param *params, int count, struct err *err);

/* From the rows of publishers.sql: how many shards the publisher has; 0: there is no such
 * publisher. */
int schema_publisher_shards(const struct pg_result *publishers, const char *name);
