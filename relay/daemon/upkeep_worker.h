#pragma once
/*
 * The upkeep worker of one database, on three threads. The first thread does the upkeep of the
 * message table (upkeep.h), which may copy rows for minutes. The publishers wait for the work of
 * the second thread, so it never waits for the first: on a connection of its own it looks which
 * publishers there are and how much each shard has left to publish, and it does the upkeep of the
 * log (log_upkeep.h), without which the publishers would stop in the end. The third one archives
 * detached partitions (archiver.h), which takes as long as their rows take to a disk. All wait,
 * with back-off, for a Postgres that is away.
 *
 * Made and ended by one thread (the daemon's main one); the other functions may be called from any.
 */
#include "config.h"
#include "doorbell.h"

struct upkeep_worker;

extern const struct metric_table backlog_metric_table;

/*
 * Writes to event_fd (8 bytes) whenever it has looked at the publishers. While the doorbell (NULL:
 * none) shows that no message comes, some of its work waits. With [api] advertise, the database
 * gets the URL of the process, whose name is that of its leases. All arguments outlive it.
 */
struct upkeep_worker *upkeep_worker_start(const struct config *config,
    const struct postgres_settings *postgres, struct doorbell *doorbell, const char *process,
    int event_fd, struct err *err);
/* Asks the worker to end, and cancels its running statements; returns at once. */
void upkeep_worker_stop(struct upkeep_worker *worker);
/* Waits for the worker and frees everything. NULL is fine. */
void upkeep_worker_join(struct upkeep_worker *worker);

/* Takes the reloadable values, which are copied. */
void upkeep_worker_retune(struct upkeep_worker *worker, const struct postgres_settings *postgres);
/*
 * Asks for a look at the publishers now, and returns the number of the request. The request is
 * answered by a look that began after it: upkeep_worker_shards is then no older than the request.
 */
int64_t upkeep_worker_look(struct upkeep_worker *worker);
bool upkeep_worker_is_answered(struct upkeep_worker *worker, int64_t request);

/* How many shards the publisher has as last seen; 0: the database has no such publisher; -1: not
 * seen yet. */
int upkeep_worker_shards(struct upkeep_worker *worker, const struct config_publisher *publisher);

struct upkeep_worker_status {
	bool ended;
	int64_t turn_ms;    /* clock_ms of the last turn of its loops: the older one */
	char error[1024];   /* why there is no connection now; "" */
	char problem[1024]; /* why upkeep could not do its work, or who holds its lock; "" */
};
struct upkeep_worker_status upkeep_worker_status(struct upkeep_worker *worker);
