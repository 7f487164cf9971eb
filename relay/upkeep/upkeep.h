#pragma once
/*
 * The upkeep of one database's tables that are kept by time, the message table and the look-back's:
 * makes partitions ahead, drops or detaches them behind the retention, and moves rows out of the
 * default partition (the log's: log_upkeep.h); and deletes rows of the look-back's small tables
 * that are no longer needed, and jobs that ended long ago. Any number of processes may do it at
 * once. Findings are logged once, when they change, and shown by metrics. A failure in the upkeep
 * of one table does not stop that of the other.
 *
 * A partition that a publisher has not read to its end is not dropped, nor is any younger one; nor
 * is one with an undecided prepare. The event partition_held and the gauge relay_partition_held
 * tell of the first until it may go.
 *
 * Owned by one thread. It keeps its own connection between steps; a step blocks while it talks to
 * the server (connecting: 5 s at most).
 */
#include "config.h"
#include "partitions.h"

struct upkeep;

/* Does not connect. `postgres` must outlive it. */
struct upkeep *upkeep_start(const struct postgres_settings *postgres);
void upkeep_stop(struct upkeep *upkeep); /* NULL is fine */

/* Takes the reloadable values of a newly loaded configuration. */
void upkeep_reload(struct upkeep *upkeep, const struct postgres_settings *postgres);

/*
 * Does what is due, never fails (a failure is logged and tried again), and returns when to come
 * back: upkeep_interval, or sooner when a lock was busy. Times are clock_ms.
 */
int64_t upkeep_step(struct upkeep *upkeep, int64_t now_ms);

struct upkeep_table {
	int partitions;  /* without the default one */
	int64_t ahead_s; /* from now to the end of the last one; negative: inserts go to default */
	int64_t default_rows; /* counted up to 100,000 */
	char held[64];        /* the partition that is kept beyond the retention; "" */
	char holder[64];      /* by whom: see partition_holder */
};

struct upkeep_status {
	struct upkeep_table tables[PARTITION_TABLES]; /* as partition_tables */
	char problem[1024];                           /* why the last step failed; "" */
	const char *lock_holder; /* names the session that keeps upkeep from its lock; "" */
};
/* From the thread of upkeep_step. Valid until the next step. */
const struct upkeep_status *upkeep_status(const struct upkeep *upkeep);
