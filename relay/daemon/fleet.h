#pragma once
/*
 * The publishers of a process: one for each shard of each publisher of the configuration. A
 * publisher that was split is started anew with its new shards, one that was dropped is let go, and
 * comes back when the database has it again.
 *
 * Owned by the daemon's main thread; fleet_ready and fleet_live may be called from any.
 */
#include <poll.h>
#include "topic_metadata.h"
#include "config.h"
#include "upkeep_worker.h"
#include "text.h"
#include "topic_checks.h"

struct fleet;

struct fleet_options {
	const struct config *config; /* all of this outlives the fleet */
	struct topic_metadata *const
	    *topic_metadata; /* as config->kafka; NULL for one that no publisher uses */
	struct topic_checks *const *topic_checks; /* the same */
	struct upkeep_worker *const
	    *upkeep_workers; /* as config->postgres; NULL for one that no publisher uses */
	const char *owner;
	bool drain;
};

struct fleet *fleet_create(const struct fleet_options *options);
/* After fleet_stop and fleet_is_over, or before fleet_start. NULL is fine. */
void fleet_destroy(struct fleet *fleet);

/* shards: of each publisher. Fails on what cannot work at all; what was started by then is to be
 * stopped. */
bool fleet_start(struct fleet *fleet, const int *shards, struct err *err) MUST_CHECK;

/* Looks for ends and for publishers that changed. To be called when an fd of fleet_fds calls, or an
 * upkeep worker. */
void fleet_step(struct fleet *fleet, int64_t now);
/* Appends the publishers' event fds; room for at most max. Returns how many. */
int fleet_fds(const struct fleet *fleet, struct pollfd *fds, int max);

/* Clean handover: returns at once, fleet_is_over tells when it is done. */
void fleet_stop(struct fleet *fleet);
/* Nothing runs any more and nothing is to be started: stopped, or with `drain` nothing more can be
 * published. */
bool fleet_is_over(const struct fleet *fleet);

/*
 * With `drain`: true when a publisher ended behind a record that Kafka refuses; *err (ERR_REJECT)
 * names it.
 */
bool fleet_is_refused(const struct fleet *fleet, struct err *err);
/* True when a shard could not be released because its database is away; *err names it. */
bool fleet_is_abandoned(const struct fleet *fleet, struct err *err);

/* Takes the reloadable values; fresh stays alive until the next call. */
void fleet_retune(struct fleet *fleet, const struct config *fresh);

/* One line a shard; false: one of them is in trouble. */
bool fleet_ready(struct fleet *fleet, struct text *report);
bool fleet_live(struct fleet *fleet, int64_t now, struct text *report);
