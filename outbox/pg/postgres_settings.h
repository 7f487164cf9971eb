#pragma once
/*
 * The settings of a database with an outbox: its address, and the upkeep of its message table.
 * Plain data. The caller fills the struct and owns it, with every string. It must stay unchanged
 * and alive as long as any object that was made from it. Any number of threads may read it.
 */
#include <stdint.h>

/* DOORBELL_ON: also where max_prepared_transactions is set. */
enum doorbell_use { DOORBELL_AUTO, DOORBELL_ON, DOORBELL_OFF };
enum retention { RETENTION_DROP, RETENTION_DETACH, RETENTION_ARCHIVE };

struct postgres_settings {
	char *name; /* names the database in messages; first, as in each named section */
	char *dsn;  /* libpq conninfo or URI; "" means PG* variables alone */
	char *password_command; /* prints the password of each connection; "": the dsn has it */
	int64_t password_timeout_ms; /* the time that the command has */
	char *schema;                /* default "outbox"; passes schema_text_check */
	enum doorbell_use doorbell;  /* writers wake sleeping shards; else these only poll */
	/* upkeep of the message table */
	int64_t partition_every_ms; /* width of a partition, default 1d */
	int64_t partitions_ahead;   /* default 1 */
	int64_t retain_ms;          /* how long published rows stay, default 3d */
	enum retention retention;   /* drop | detach | archive */
	char *archive_path;         /* the folder of archived partitions; "": none */
	int64_t upkeep_interval_ms; /* default 60s */
};
