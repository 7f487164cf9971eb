#include "log_upkeep.h"
#include <stdlib.h>
#include "backoff.h"
#include "clock.h"
#include "logging.h"
#include "partitions.h"
#include "text.h"
#include "upkeep_lock.h"
#include "upkeep_metrics.h"

enum {
	CONNECT_TIMEOUT_MS = 5000,
	/*
	 * The next partition is made when the one in use is half full: 500,000 rows, minutes at the
	 * highest rate.
	 */
	LONGEST_INTERVAL_MS = 15000,
	BUSY_RETRY_MS = 5000, /* each try keeps the owners waiting for 15 ms at most */
};

struct log_upkeep {
	const struct postgres_settings *postgres;
	struct pg *pg; /* NULL: not connected */
	struct backoff backoff;
	struct upkeep_lock lock;
	char problem[1024];
};

static int64_t least_time(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static bool tend_log(struct log_upkeep *upkeep, bool *ret_busy, struct err *err)
{
	const struct postgres_settings *postgres = upkeep->postgres;
	int changes[PARTITION_OUTCOMES];

	if (!upkeep->pg)
		upkeep->pg =
		    pg_connect(postgres->dsn, "outbox-relay log upkeep", CONNECT_TIMEOUT_MS, err);
	if (!upkeep->pg)
		return false;

	bool all = partition_log_upkeep(upkeep->pg, postgres->schema, changes, err);
	for (int i = 0; i < PARTITION_OUTCOMES; i++)
		partition_count(postgres->name, "log", (enum partition_outcome)i, changes[i]);
	*ret_busy = changes[PARTITION_BUSY] > 0;
	return all && upkeep_lock_look(&upkeep->lock, upkeep->pg, postgres, *ret_busy, err);
}

static void note_log_problem(const struct log_upkeep *upkeep)
{
	upkeep_metrics_problem(upkeep->postgres->name, "log", upkeep->problem, upkeep->lock.holder);
}

static int64_t note_log_failure(struct log_upkeep *upkeep, const struct err *err, int64_t now_ms)
{
	/* The same failure is logged once, not at each try. */
	if (!text_equal(upkeep->problem, err->message))
		log_warn("log_upkeep_failed", {"database", LOG_TEXT(upkeep->postgres->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence",
			LOG_TEXT(
			    "the log's partitions stay as they are, and a publisher is blocked "
			    "where the last one ends; tried again")});

	text_copy(upkeep->problem, sizeof upkeep->problem, err->message);
	note_log_problem(upkeep);
	pg_destroy(upkeep->pg);
	upkeep->pg = NULL;
	return now_ms + least_time(backoff_next_ms(&upkeep->backoff), LONGEST_INTERVAL_MS);
}

int64_t log_upkeep_step(struct log_upkeep *upkeep, int64_t now_ms, int64_t interval_ms)
{
	struct err err;
	bool busy = false;

	if (!tend_log(upkeep, &busy, &err))
		return note_log_failure(upkeep, &err, now_ms);
	if (*upkeep->problem)
		log_info("log_upkeep_recovered", {"database", LOG_TEXT(upkeep->postgres->name)});
	*upkeep->problem = '\0';
	note_log_problem(upkeep);
	backoff_reset(&upkeep->backoff);
	return now_ms + least_time(interval_ms, busy ? BUSY_RETRY_MS : LONGEST_INTERVAL_MS);
}

struct log_upkeep *log_upkeep_start(const struct postgres_settings *postgres)
{
	struct log_upkeep *upkeep = xcalloc(1, sizeof *upkeep);
	upkeep->postgres = postgres;
	upkeep->backoff = (struct backoff){.first_ms = 1000,
	    .cap_ms = LONGEST_INTERVAL_MS,
	    .jitter = 0.2,
	    .seed = (uint64_t)clock_random()};
	return upkeep;
}

void log_upkeep_stop(struct log_upkeep *upkeep)
{
	if (!upkeep)
		return;
	pg_destroy(upkeep->pg);
	free(upkeep);
}

const char *log_upkeep_problem(const struct log_upkeep *upkeep)
{
	return *upkeep->problem ? upkeep->problem : upkeep->lock.holder;
}
