#pragma once
/* Sends the rows of a replay that this process has, until they are out or it has to stop. */
#include "topic_metadata.h"
#include "progress_watch.h"
#include "replay_row.h"

/*
 * Progress is noted at least once a second. At any end, the acknowledged rows are noted and the
 * replay is given back, if the database answers. False: *err says why, and how to go on.
 *
 * stop_fd: stops when it is readable; -1: at SIGINT and SIGTERM, which must be blocked. A replay of
 * a relay (by_relay) goes on in another process, unless a row cannot be sent (ERR_REJECT).
 */
bool replay_run(struct replay *replay, struct pg *pg, struct topic_metadata *metadata,
    const struct progress_watch *watch, int stop_fd, struct err *err) MUST_CHECK;
