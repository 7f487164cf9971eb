#pragma once
/* Sends the rows of a replay that this process has, until they are out or a signal comes. */
#include "topic_metadata.h"
#include "progress_watch.h"
#include "replay_row.h"

/*
 * Progress is noted at least once a second. At any end, the acknowledged rows are noted and the
 * replay is given back, if the database answers. False: *err says why, and how to go on. SIGINT and
 * SIGTERM must be blocked.
 */
bool replay_run(struct replay *replay, struct pg *pg, struct topic_metadata *metadata,
    const struct progress_watch *watch, struct err *err) MUST_CHECK;
