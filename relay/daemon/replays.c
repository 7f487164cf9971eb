#include "replays.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "backoff.h"
#include "cleanup.h"
#include "clock.h"
#include "database.h"
#include "logging.h"
#include "pg.h"
#include "replay_run.h"
#include "sql_files.h"

enum {
	CONNECT_MS = 5000,
	LOOK_MS = 5000,
	LAST_NOTE_MS = 3000, /* a stop waits so long for records under way and their note */
};

struct replays {
	const struct config *config;
	const struct postgres_settings *postgres;
	struct topic_metadata *const *topic_metadata;
	int stop_fd;  /* readable: give the replay back */
	int limit_fd; /* readable: the running statement is interrupted */
	pthread_t thread;
	/* of the thread */
	struct pg *pg;
	struct backoff backoff;
	bool failing; /* the failure was logged */
};

/* --- one replay ------------------------------------------------------------------------------ */

static struct topic_metadata *metadata_of(
    const struct replays *replays, const struct publisher_settings *publisher)
{
	return replays->topic_metadata[publisher->kafka - replays->config->kafka];
}

static void log_replay_end(const struct replay *replay, bool done, const struct err *err)
{
	if (done)
		log_info("replay_finished", {"replay", LOG_INT(replay->id)},
		    {"rows", LOG_INT(replay->done)});
	else if (err->kind == ERR_FENCED)
		log_info("replay_left", {"replay", LOG_INT(replay->id)},
		    {"reason", LOG_TEXT(err->message)});
	else if (err->kind == ERR_REJECT)
		log_warn("replay_failed", {"replay", LOG_INT(replay->id)},
		    {"error", LOG_TEXT(err->message)},
		    {"cure", LOG_TEXT("remove the cause, and resume the replay")});
	else
		log_warn("replay_interrupted", {"replay", LOG_INT(replay->id)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("a relay goes on with it")});
}

/* False: it did not end, and is tried again later. */
static bool carry_out_replay(
    struct replays *replays, const struct config_publisher *publisher, int64_t id)
{
	const struct progress_watch nobody = {0};
	struct replay replay;
	struct err err;
	bool done;

	replay_init(&replay, &publisher->settings);
	replay.id = id;
	replay.by_relay = true;
	done = replay_take(&replay, replays->pg, replays->config, &err);
	if (done) {
		log_info("replay_begun", {"replay", LOG_INT(id)}, {"done", LOG_INT(replay.done)},
		    {"rows", LOG_INT(replay.total)});
		done = replay_run(&replay, replays->pg, metadata_of(replays, replay.publisher),
		    &nobody, replays->stop_fd, &err);
	}
	log_replay_end(&replay, done, &err);
	replay_finish(&replay);
	return done || err.kind == ERR_FENCED || err.kind == ERR_REJECT;
}

/* --- the look -------------------------------------------------------------------------------- */

static bool has_to_stop(const struct replays *replays)
{
	struct pollfd stop = {.fd = replays->stop_fd, .events = POLLIN};

	return poll(&stop, 1, 0) > 0;
}

/* A publisher that this process does not have is for another one. */
static bool carry_out_due(struct replays *replays, const struct pg_result *rows)
{
	bool ended = true;

	for (int i = 0; i < pg_rows(rows) && ended && !has_to_stop(replays); i++) {
		const struct config_publisher *publisher =
		    config_find_publisher(replays->config, pg_value(rows, i, 1));

		if (publisher && publisher->settings.postgres == replays->postgres)
			ended = carry_out_replay(replays, publisher, pg_int(rows, i, 0));
	}
	return ended;
}

static bool look_for_replays(struct replays *replays)
{
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;
	struct err err;

	if (!replays->pg)
		replays->pg =
		    pg_connect(replays->postgres->dsn, "outbox-relay replays", CONNECT_MS, &err);
	if (replays->pg)
		rows =
		    database_query(replays->pg, replays->postgres, sql_replay_due, NULL, 0, &err);
	if (rows) {
		replays->failing = false;
		return carry_out_due(replays, rows);
	}

	pg_destroy(replays->pg);
	replays->pg = NULL;
	/* one warning for an outage */
	if (!replays->failing && !has_to_stop(replays))
		log_warn("replays_unknown", {"postgres", LOG_TEXT(replays->postgres->name)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("noted replays wait; it is tried again")});
	replays->failing = true;
	return false;
}

static void *run_replays(void *context)
{
	struct replays *replays = context;

	pg_interrupt_by(replays->limit_fd);
	while (!has_to_stop(replays)) {
		struct pollfd stop = {.fd = replays->stop_fd, .events = POLLIN};
		int64_t wait = LOOK_MS;

		if (look_for_replays(replays))
			backoff_reset(&replays->backoff);
		else
			wait += backoff_next_ms(&replays->backoff);
		/* the connection may have been lost in the middle of a replay */
		if (replays->pg && pg_state(replays->pg) != PG_IDLE) {
			pg_destroy(replays->pg);
			replays->pg = NULL;
		}
		poll(&stop, 1, (int)wait);
	}
	pg_destroy(replays->pg);
	return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static void free_replays(struct replays *replays)
{
	if (replays->stop_fd >= 0)
		close(replays->stop_fd);
	if (replays->limit_fd >= 0)
		close(replays->limit_fd);
	free(replays);
}

struct replays *replays_start(const struct config *config, const struct postgres_settings *postgres,
    struct topic_metadata *const *topic_metadata, struct err *err)
{
	struct replays *replays = xcalloc(1, sizeof *replays);
	int error;

	*replays = (struct replays){.config = config,
	    .postgres = postgres,
	    .topic_metadata = topic_metadata,
	    .stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
	    .limit_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC),
	    .backoff = {.first_ms = 1000,
		.cap_ms = 30000,
		.jitter = 0.3,
		.seed = (uint64_t)clock_random()}};
	error = replays->stop_fd < 0 || replays->limit_fd < 0
		    ? errno
		    : pthread_create(&replays->thread, NULL, run_replays, replays);
	if (error == 0)
		return replays;

	err_set(err, ERR_RETRY, "no thread for the replays of postgres %s: %s", postgres->name,
	    strerror(error));
	free_replays(replays);
	return NULL;
}

void replays_stop(struct replays *replays)
{
	if (!replays)
		return;
	if (eventfd_write(replays->stop_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(replays->postgres->name)});
	pg_interrupt_in(replays->limit_fd, LAST_NOTE_MS);
}

void replays_destroy(struct replays *replays)
{
	if (!replays)
		return;
	replays_stop(replays);
	pthread_join(replays->thread, NULL);
	free_replays(replays);
}
