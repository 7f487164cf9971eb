#pragma once
/*
 * The keeper of one database, on two threads. One does the upkeep of the message table (upkeep.h),
 * which may copy rows for minutes. The other does what the publishers wait for, whatever the first
 * one is at: it looks, on a connection of its own, which publishers there are and how much each
 * shard has left to publish, and does the upkeep of the log (log_upkeep.h), without which the
 * publishers would stand still some day. They wait for a Postgres that is away, with back-off.
 *
 * Made and ended by one thread (the daemon's main one); the other functions may be called from any.
 */
#include "config.h"

struct keeper;

/*
 * Writes to event_fd (8 bytes) whenever it has looked at the publishers. config and event_fd
 * outlive it.
 */
struct keeper *keeper_start(const struct config *config, const struct config_postgres *postgres,
    int event_fd, struct err *err);
/* Asks it to end, and cancels what it has under way; returns at once. */
void keeper_stop(struct keeper *keeper);
/* Waits for it and frees everything. NULL is fine. */
void keeper_join(struct keeper *keeper);

/* Takes the reloadable values, which are copied. */
void keeper_retune(struct keeper *keeper, const struct config_postgres *postgres);
/* Look at the publishers now. */
void keeper_look(struct keeper *keeper);

/* How many shards the publisher has as last seen; 0: the database has no such publisher; -1: not
 * seen yet. */
int keeper_shards(struct keeper *keeper, const struct config_publisher *publisher);
/* Grows with every look that the server answered. */
int64_t keeper_looks(struct keeper *keeper);

struct keeper_status {
	bool ended;
	int64_t turn_ms;    /* clock_ms of the last turn of its loops: the older one */
	char error[1024];   /* "" or why there is no connection now */
	char problem[1024]; /* "" or why upkeep could not do its work, or who holds its lock */
};
struct keeper_status keeper_status(struct keeper *keeper);
