#pragma once
/*
 * The upkeep of one database's log: makes its partitions ahead and drops those that nothing looks
 * back at. The log has no default partition, so that a publisher is blocked where the last one
 * ends. Therefore delays or failures in the upkeep of the message table must not affect this
 * upkeep: it has a connection of its own and is to be called by another thread.
 *
 * Any number of processes may do it at once. Owned by one thread; a step blocks while it talks to
 * the server (connecting: 5 s at most).
 */
#include "config.h"

struct log_upkeep;

/* Does not connect. `postgres` must outlive it: name, dsn and schema are read. */
struct log_upkeep *log_upkeep_start(const struct postgres_settings *postgres);
void log_upkeep_stop(struct log_upkeep *upkeep); /* NULL is fine */

/*
 * Does what is due, never fails (a failure is logged and tried again), and returns when to come
 * back: after interval_ms, but never later than 15 s. Times are clock_ms.
 */
int64_t log_upkeep_step(struct log_upkeep *upkeep, int64_t now_ms, int64_t interval_ms);

/* Why the last step failed, or who holds the lock of upkeep; "". From the thread of
 * log_upkeep_step, valid until the next step. */
const char *log_upkeep_problem(const struct log_upkeep *upkeep);
