#pragma once
/*
 * `outbox-relay run`: everything is started in layer order and stopped in reverse.
 *
 * Configuration and log; the checks of each Postgres; then, with signals blocked, for each cluster
 * the topic metadata and its checks, for each database an upkeep worker, the admin endpoint, and
 * last the publishers.
 *
 * SIGTERM, SIGINT: clean handover; a second one ends the process at once with status 75, as does a
 * handover that takes longer than the longest lease and some seconds. SIGHUP: reload.
 */
#include <stdbool.h>
#include "errors.h"
#include "metrics.h"

extern const struct metric_table process_metric_table;

struct daemon_options {
	const char *config_path; /* NULL: environment alone */
	bool drain;              /* publish the stored messages, then end */
};

/*
 * Blocks until it ends. True: after a clean handover, or when all is drained. False: *err says why
 * it could not start, that a signal ended it before all was drained (ERR_RETRY), or that a refused
 * record keeps it from draining (ERR_REJECT).
 */
bool daemon_run(const struct daemon_options *options, struct err *err) MUST_CHECK;
