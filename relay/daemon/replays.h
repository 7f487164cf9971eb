#pragma once
/*
 * Carries out the replays of one database that the HTTP interface has noted, one after the other,
 * on a thread of its own. Any process may do it: whichever takes a replay has a lease, and after
 * its end another process goes on. Waits, with back-off, for a database or a cluster that is away.
 */
#include "config.h"
#include "topic_metadata.h"

struct replays;

/* topic_metadata: as config->kafka. All arguments outlive it. */
struct replays *replays_start(const struct config *config, const struct postgres_settings *postgres,
    struct topic_metadata *const *topic_metadata, struct err *err);
/* Gives a running replay back, and returns at once. NULL is fine, as below. */
void replays_stop(struct replays *replays);
/* Stops, waits for the end and frees everything. */
void replays_destroy(struct replays *replays);
