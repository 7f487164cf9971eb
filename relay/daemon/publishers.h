#pragma once
/*
 * The publishers of a process, each with one shard worker for each of its shards. A publisher that
 * was split is started again with its new shards. One that was dropped is stopped, and is started
 * again when the database has it again.
 *
 * Owned by the daemon's main thread; publishers_ready and publishers_live may be called from any.
 */
#include <poll.h>
#include "topic_metadata.h"
#include "config.h"
#include "doorbell.h"
#include "upkeep_worker.h"
#include "text.h"
#include "topic_checks.h"

struct publishers;

struct publishers_options {
	const struct config *config; /* these fields must outlive the publishers */
	struct topic_metadata *const
	    *topic_metadata; /* as config->kafka; NULL for one that no publisher uses */
	struct topic_checks *const *topic_checks; /* the same */
	struct upkeep_worker *const
	    *upkeep_workers; /* as config->postgres; NULL for one that no publisher uses */
	struct doorbell *const *doorbells; /* the same; NULL also with `drain` */
	const char *owner;
	bool drain;
};

struct publishers *publishers_create(const struct publishers_options *options);
/* After publishers_stop and publishers_is_over, or before publishers_start. NULL is fine. */
void publishers_destroy(struct publishers *publishers);

/* shards: of each publisher. On failure the caller stops the publishers that were started by then.
 */
bool publishers_start(struct publishers *publishers, const int *shards, struct err *err) MUST_CHECK;

/*
 * Handles ended shard workers and changed publishers. The caller calls it when an fd of
 * publishers_fds is readable, and when an upkeep worker has looked.
 */
void publishers_step(struct publishers *publishers, int64_t now);
/* Appends the event fds of the shard workers; room for at most max. Returns how many. */
int publishers_fds(const struct publishers *publishers, struct pollfd *fds, int max);

/* Clean handover: returns at once, publishers_is_over tells when it is done. */
void publishers_stop(struct publishers *publishers);
/* No shard worker runs and none will be started: all are stopped, or with `drain` nothing is left
 * to publish. */
bool publishers_is_over(const struct publishers *publishers);

/*
 * With `drain`: true when a publisher ended behind a record that Kafka refuses; *err (ERR_REJECT)
 * names it.
 */
bool publishers_is_refused(const struct publishers *publishers, struct err *err);
/* True when a shard could not be released because its database is away; *err names it. */
bool publishers_is_abandoned(const struct publishers *publishers, struct err *err);

/* Takes the reloadable values; fresh stays alive until the next call. */
void publishers_retune(struct publishers *publishers, const struct config *fresh);

/* One line a shard; false: one of them is in trouble. */
bool publishers_ready(struct publishers *publishers, struct text *report);
bool publishers_live(struct publishers *publishers, int64_t now, struct text *report);
