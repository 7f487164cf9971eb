#pragma once
/*
 * The doorbell of one database: a session and a thread that drive the core (bell.h) for all shard
 * workers of the process that publish from the database. The session must be direct: behind a
 * pooler that changes sessions there is no doorbell.
 *
 * Made and ended by one thread (the daemon's main one), before and after the shard workers; any
 * thread may call the other functions.
 */
#include "bell.h"
#include "errors.h"
#include "metrics.h"
#include "postgres_settings.h"

struct doorbell;

extern const struct metric_table doorbell_metric_table;

/* The settings must outlive the doorbell. ERR_FATAL: no thread. */
struct doorbell *doorbell_start(const struct postgres_settings *settings, struct err *err);
/* Ends the thread, closes the session and so releases the lock. NULL is fine. */
void doorbell_destroy(struct doorbell *doorbell);
/* Takes over the reloadable values of a new configuration. */
void doorbell_retune(struct doorbell *doorbell, const struct postgres_settings *settings);

struct doorbell_status {
	struct bell_status bell;
	char problem[256]; /* BELL_OFF: why; "": not known yet */
};
struct doorbell_status doorbell_status(struct doorbell *doorbell);

/*
 * A seat for a shard worker. The doorbell writes to wake_fd (an eventfd) when its shard must look
 * at once. poll_busy_ms: the worker's; rings wake the workers no more often than the smallest one.
 */
int doorbell_join(struct doorbell *doorbell, int wake_fd, int64_t poll_busy_ms);
void doorbell_leave(struct doorbell *doorbell, int seat);
/* The worker's poll_busy has changed. */
void doorbell_set_pause(struct doorbell *doorbell, int seat, int64_t poll_busy_ms);
/* Whether the shard must look at once; true once for each time. */
bool doorbell_take_wake(struct doorbell *doorbell, int seat);
/* See bell_own, bell_look_begins, bell_look_ends and bell_rows_came. */
void doorbell_own(struct doorbell *doorbell, int seat, bool owns);
void doorbell_look_begins(struct doorbell *doorbell, int seat);
void doorbell_look_ends(struct doorbell *doorbell, int seat, bool found);
void doorbell_rows_came(struct doorbell *doorbell, int seat);
/* The shard may poll every BELL_POLL_MS. */
bool doorbell_may_doze(struct doorbell *doorbell, int seat);

/* The number of the sleep that goes on; 0: the shards do not sleep. No message comes during one. */
int64_t doorbell_sleep(struct doorbell *doorbell);
