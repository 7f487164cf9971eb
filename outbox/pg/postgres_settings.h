#pragma once
/*
 * The settings of a database with an outbox: how it is reached, and how its message table is kept.
 * Plain data. Whoever fills it owns every string, and keeps all of it unchanged and alive for as
 * long as something that was made from it. Any number of threads may read it.
 */
#include <stdint.h>

enum retention { RETENTION_DROP, RETENTION_DETACH };

struct postgres_settings {
	char *name; /* of the database, for messages; the first member, as in each named section */
	char *dsn;  /* libpq conninfo or URI; "" means PG* variables alone */
	char *schema; /* default "outbox"; passes schema_text_check */
	/* upkeep of the message table */
	int64_t partition_every_ms; /* width of a partition, default 1d */
	int64_t partitions_ahead;   /* default 1 */
	int64_t retain_ms;          /* how long published rows stay, default 3d */
	enum retention retention;   /* drop | detach */
	int64_t upkeep_interval_ms; /* default 60s */
};
