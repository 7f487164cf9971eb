#pragma once
/*
 * The archiver of one database: writes each detached partition that waits (archives.h) to a file in
 * archive_path, reads the file again, and then drops the table. A step that fails (a full disk, a
 * server that is away) leaves the rows in the table, is logged once and tried again.
 *
 * Any number of processes may have one; each archive is written by one at a time. Owned by one
 * thread, since a step may take minutes and the upkeep of the tables must not wait for it.
 */
#include "config.h"

struct archiver;

/* Does not connect. `postgres` must outlive it. stop_fd: readable once a step must end soon. */
struct archiver *archiver_start(const struct postgres_settings *postgres, int stop_fd);
void archiver_stop(struct archiver *archiver); /* NULL is fine */

/* Archives what waits, and returns when to come back (clock_ms). Does nothing without archive_path.
 */
int64_t archiver_step(struct archiver *archiver, int64_t now_ms, int64_t interval_ms);

/* Why the last step failed; "". From the thread of archiver_step, valid until its next call. */
const char *archiver_problem(const struct archiver *archiver);
