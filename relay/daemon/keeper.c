#include "keeper.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "backoff.h"
#include "cleanup.h"
#include "clock.h"
#include "id_watch.h"
#include "log_upkeep.h"
#include "logging.h"
#include "metrics.h"
#include "pg.h"
#include "schema_query.h"
#include "sql_files.h"
#include "text.h"
#include "upkeep.h"

/*
 * So many unpublished rows are counted one by one; beyond it ids say how many there are about. Of
 * the parked and of the scheduled rows of a publisher as many are counted, and no more.
 */
#define COUNT_BOUND "100000"

enum { CONNECT_MS = 5000, LOOK_MS = 15000, IDS_MS = 2000, LONGEST_SLEEP_MS = 1000 };

static const struct metric_family unpublished_rows = {.name = "relay_unpublished_rows",
    .type = METRIC_GAUGE,
    .help = "Rows not published yet: counted up to 100,000, beyond that estimated by ids.",
    .labels = {"publisher", "shard"}};
static const struct metric_family unpublished_age = {.name = "relay_unpublished_age_seconds",
    .type = METRIC_GAUGE,
    .help = "Age of the oldest row that is not published yet, read or not.",
    .labels = {"publisher", "shard"}};

static const struct metric_family parked_rows = {.name = "relay_parked_rows",
    .type = METRIC_GAUGE,
    .help = "Parked rows by state; of each publisher the first 100,000 are counted.",
    .labels = {"publisher", "state"}};
static const struct metric_family scheduled_rows = {.name = "relay_scheduled_rows",
    .type = METRIC_GAUGE,
    .help = "Rows that wait for their deliver_at; of each publisher the first 100,000 are counted.",
    .labels = {"publisher"}};
static const struct metric_family scheduled_late = {.name = "relay_scheduled_late_seconds",
    .type = METRIC_GAUGE,
    .help = "For how long the first of them has been due.",
    .labels = {"publisher"}};

struct keeper {
	const struct config *config;
	const struct config_postgres *postgres;
	int event_fd, stop_fd; /* stop_fd: readable once it is to end */
	pthread_t thread, log_thread;
	/* of the log's thread */
	struct log_upkeep *log_upkeep;
	struct pg *pg;
	struct backoff backoff;
	int64_t look_at, ids_at;
	struct id_watch ids;
	bool lost; /* logged, and not mended since */
	/* of the other */
	struct upkeep *upkeep;
	int64_t upkeep_at;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t changed;
	bool stop, look_asked, retuned;
	int running; /* threads */
	struct config_postgres settings;
	struct keeper_status status;
	int64_t log_at, log_turn_ms; /* as look_at and status.turn_ms */
	char log_problem[1024];      /* as status.problem */
	int *shards;                 /* of each publisher of config; see keeper_shards */
	int64_t looks;
};

static struct pg_result *ask(struct keeper *keeper, const char *sql, const struct pg_param *params,
    int count, struct err *err)
{
	return schema_query(keeper->pg, keeper->postgres->schema, sql, params, count, err);
}

/* --- the look ------------------------------------------------------------------------------- */

static void note_backlog(const char *publisher, const char *shard, const struct pg_result *row)
{
	const char *const labels[] = {publisher, shard};

	metric_set(metric_series(&unpublished_rows, labels), (double)pg_int(row, 0, 2));
	metric_set(metric_series(&unpublished_age, labels), (double)pg_int(row, 0, 3) / 1000);
}

static bool count_backlog(
    struct keeper *keeper, const struct config_publisher *publisher, int shards, struct err *err)
{
	for (int i = 0; i < shards; i++) {
		owned_text char *shard = xformat("%d", i);
		const struct pg_param params[] = {{publisher->name}, {shard}, {COUNT_BOUND}};
		OWNED(owned_pg_result_destroy)
		struct pg_result *row = ask(keeper, sql_backlog, params, 3, err);

		if (!row)
			return false;
		if (pg_rows(row) == 1)
			note_backlog(publisher->name, shard, row);
	}
	return true;
}

/* A shard that is no more has nothing left to publish. */
static void clear_backlog(const char *publisher, int from, int to)
{
	for (int i = from; i < to; i++) {
		owned_text char *shard = xformat("%d", i);
		const char *const labels[] = {publisher, shard};

		metric_set(metric_series(&unpublished_rows, labels), 0);
		metric_set(metric_series(&unpublished_age, labels), 0);
	}
}

static void note_publishers(struct keeper *keeper, const struct pg_result *rows)
{
	pthread_mutex_lock(&keeper->mutex);
	for (int i = 0; i < keeper->config->publisher_count; i++) {
		const struct config_publisher *publisher = &keeper->config->publishers[i];
		int shards = publisher->postgres == keeper->postgres
				 ? schema_publisher_shards(rows, publisher->name)
				 : 0;

		clear_backlog(publisher->name, shards, keeper->shards[i]);
		keeper->shards[i] = shards;
	}
	keeper->looks++;
	pthread_mutex_unlock(&keeper->mutex);
	/* Fails only when the counter is full, and then it is readable all the same. */
	if (eventfd_write(keeper->event_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(keeper->postgres->name)});
}

static bool count_backlogs(struct keeper *keeper, struct err *err)
{
	for (int i = 0; i < keeper->config->publisher_count; i++) {
		const struct config_publisher *publisher = &keeper->config->publishers[i];

		if (publisher->postgres == keeper->postgres &&
		    !count_backlog(keeper, publisher, keeper->shards[i], err))
			return false;
	}
	return true;
}

static void note_parked(const struct pg_result *rows, int i)
{
	static const char *const states[] = {"waiting", "dead", "stalled", "free", "behind"};

	for (int k = 0; k < (int)(sizeof states / sizeof *states); k++) {
		const char *const labels[] = {pg_value(rows, i, 0), states[k]};

		metric_set(metric_series(&parked_rows, labels), (double)pg_int(rows, i, k + 1));
	}
}

static void note_scheduled(const struct pg_result *rows, int i)
{
	const char *const labels[] = {pg_value(rows, i, 0)};

	metric_set(metric_series(&scheduled_rows, labels), (double)pg_int(rows, i, 1));
	metric_set(metric_series(&scheduled_late, labels), (double)pg_int(rows, i, 3) / 1000);
}

/* Calls `note` for each of the publishers that are configured. */
static bool count_kept(struct keeper *keeper, const char *sql,
    void (*note)(const struct pg_result *rows, int i), struct err *err)
{
	const struct pg_param params[] = {{COUNT_BOUND}};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = ask(keeper, sql, params, 1, err);

	for (int i = 0; rows && i < pg_rows(rows); i++) {
		const struct config_publisher *publisher =
		    config_find_publisher(keeper->config, pg_value(rows, i, 0));

		if (publisher && publisher->postgres == keeper->postgres)
			note(rows, i);
	}
	return rows != NULL;
}

/* The planner must not read everything published to find what is not. */
static bool look(struct keeper *keeper, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask(keeper, sql_publishers, NULL, 0, err);

	if (!rows)
		return false;
	note_publishers(keeper, rows);
	if (!pg_script(keeper->pg, sql_backlog_begin, err))
		return false;
	if (count_backlogs(keeper, err) &&
	    count_kept(keeper, sql_parked_states, note_parked, err) &&
	    count_kept(keeper, sql_scheduled_states, note_scheduled, err))
		return pg_script(keeper->pg, "commit", err);
	/* lock_not_available: the figures stay what they were */
	return text_equal(pg_sqlstate(keeper->pg), "55P03") &&
	       pg_script(keeper->pg, "rollback", err);
}

/* --- the connection ------------------------------------------------------------------------- */

static void note_error(struct keeper *keeper, const char *error)
{
	pthread_mutex_lock(&keeper->mutex);
	text_copy(keeper->status.error, sizeof keeper->status.error, error);
	pthread_mutex_unlock(&keeper->mutex);
}

static void lose(struct keeper *keeper, const struct err *err)
{
	note_error(keeper, err->message);
	pg_destroy(keeper->pg);
	keeper->pg = NULL;
	if (!keeper->lost)
		log_warn("look_failed", {"postgres", LOG_TEXT(keeper->postgres->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence",
			LOG_TEXT("publishers and lag are as last seen; it is tried again")});
	keeper->lost = true;
}

static bool connect_and_look(struct keeper *keeper, struct err *err)
{
	if (!keeper->pg)
		keeper->pg =
		    pg_connect(keeper->postgres->dsn, "outbox-relay keeper", CONNECT_MS, err);
	return keeper->pg && look(keeper, err);
}

/* Returns when to come back. */
static int64_t step_look(struct keeper *keeper)
{
	struct err err;

	if (!connect_and_look(keeper, &err)) {
		lose(keeper, &err);
		return clock_ms() + backoff_next_ms(&keeper->backoff);
	}
	backoff_reset(&keeper->backoff);
	if (keeper->lost)
		log_info("look_works_again", {"postgres", LOG_TEXT(keeper->postgres->name)});
	keeper->lost = false;
	note_error(keeper, "");
	return clock_ms() + LOOK_MS;
}

/* On the connection of the look: without one, the look connects first. */
static int64_t step_ids(struct keeper *keeper)
{
	struct err err;

	if (keeper->pg && !id_watch_step(&keeper->ids, keeper->pg, &err))
		lose(keeper, &err);
	return clock_ms() + IDS_MS;
}

/* --- the loop ------------------------------------------------------------------------------- */

/* Until then, until something is asked for, or for a moment. With the mutex. */
static void sleep_until(struct keeper *keeper, int64_t due)
{
	int64_t wait = due - clock_ms();
	struct timespec at;

	wait = wait < LONGEST_SLEEP_MS ? wait : LONGEST_SLEEP_MS;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += (at.tv_nsec / 1000000 + wait) / 1000;
	at.tv_nsec = (at.tv_nsec / 1000000 + wait) % 1000 * 1000000;
	pthread_cond_timedwait(&keeper->changed, &keeper->mutex, &at);
}

/* False: it is to end. Takes over what was asked for meanwhile. */
static bool wait_for_work(struct keeper *keeper)
{
	bool stop;

	pthread_mutex_lock(&keeper->mutex);
	keeper->status.turn_ms = clock_ms();
	while (!keeper->stop && !keeper->retuned && keeper->upkeep_at > clock_ms()) {
		sleep_until(keeper, keeper->upkeep_at);
		keeper->status.turn_ms = clock_ms();
	}
	stop = keeper->stop;
	if (keeper->retuned) {
		upkeep_reload(keeper->upkeep, &keeper->settings);
		keeper->upkeep_at = 0;
	}
	keeper->retuned = false;
	pthread_mutex_unlock(&keeper->mutex);
	return !stop;
}

static void note_upkeep(struct keeper *keeper)
{
	const struct upkeep_status *upkeep = upkeep_status(keeper->upkeep);

	pthread_mutex_lock(&keeper->mutex);
	text_copy(keeper->status.problem, sizeof keeper->status.problem,
	    upkeep->problem[0] ? upkeep->problem : upkeep->lock_holder);
	pthread_mutex_unlock(&keeper->mutex);
}

/* False: it is to end. */
static bool wait_for_log_work(struct keeper *keeper)
{
	bool stop;

	pthread_mutex_lock(&keeper->mutex);
	keeper->log_turn_ms = clock_ms();
	for (;;) {
		int64_t due = keeper->look_at < keeper->log_at ? keeper->look_at : keeper->log_at;

		due = keeper->ids_at < due ? keeper->ids_at : due;
		if (keeper->stop || keeper->look_asked || due <= clock_ms())
			break;
		sleep_until(keeper, due);
		keeper->log_turn_ms = clock_ms();
	}
	stop = keeper->stop;
	if (keeper->look_asked)
		keeper->look_at = 0;
	keeper->look_asked = false;
	pthread_mutex_unlock(&keeper->mutex);
	return !stop;
}

static void step_log(struct keeper *keeper)
{
	int64_t interval, at;
	bool due;

	pthread_mutex_lock(&keeper->mutex);
	interval = keeper->settings.upkeep_interval_ms;
	due = keeper->log_at <= clock_ms();
	pthread_mutex_unlock(&keeper->mutex);
	if (!due)
		return;
	at = log_upkeep_step(keeper->log_upkeep, clock_ms(), interval);
	pthread_mutex_lock(&keeper->mutex);
	keeper->log_at = at;
	text_copy(keeper->log_problem, sizeof keeper->log_problem,
	    log_upkeep_problem(keeper->log_upkeep));
	pthread_mutex_unlock(&keeper->mutex);
}

static void end(struct keeper *keeper)
{
	pthread_mutex_lock(&keeper->mutex);
	keeper->running--;
	keeper->status.ended = keeper->running == 0;
	pthread_mutex_unlock(&keeper->mutex);
	if (eventfd_write(keeper->event_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(keeper->postgres->name)});
}

static void *run(void *context)
{
	struct keeper *keeper = context;

	pg_interrupt_by(keeper->stop_fd);
	while (wait_for_work(keeper)) {
		keeper->upkeep_at = upkeep_step(keeper->upkeep, clock_ms());
		note_upkeep(keeper);
	}
	end(keeper);
	return NULL;
}

static void *run_log(void *context)
{
	struct keeper *keeper = context;

	pg_interrupt_by(keeper->stop_fd);
	while (wait_for_log_work(keeper)) {
		if (keeper->look_at <= clock_ms())
			keeper->look_at = step_look(keeper);
		if (keeper->ids_at <= clock_ms())
			keeper->ids_at = step_ids(keeper);
		step_log(keeper);
	}
	end(keeper);
	return NULL;
}

static void keeper_free(struct keeper *keeper)
{
	upkeep_stop(keeper->upkeep);
	log_upkeep_stop(keeper->log_upkeep);
	pg_destroy(keeper->pg);
	if (keeper->stop_fd >= 0)
		close(keeper->stop_fd);
	pthread_cond_destroy(&keeper->changed);
	pthread_mutex_destroy(&keeper->mutex);
	free(keeper->shards);
	free(keeper);
}

static void init_locks(struct keeper *keeper)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&keeper->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&keeper->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

static void wake(struct keeper *keeper, bool *flag)
{
	pthread_mutex_lock(&keeper->mutex);
	*flag = true;
	pthread_cond_broadcast(&keeper->changed);
	pthread_mutex_unlock(&keeper->mutex);
}

/* Both threads or none. Returns 0 or an errno. */
static int start_threads(struct keeper *keeper)
{
	int error;

	keeper->running = 2;
	error = pthread_create(&keeper->log_thread, NULL, run_log, keeper);
	if (error != 0)
		return error;
	error = pthread_create(&keeper->thread, NULL, run, keeper);
	if (error == 0)
		return 0;
	keeper_stop(keeper);
	pthread_join(keeper->log_thread, NULL);
	return error;
}

struct keeper *keeper_start(const struct config *config, const struct config_postgres *postgres,
    int event_fd, struct err *err)
{
	struct keeper *keeper = xcalloc(1, sizeof *keeper);
	int error;

	keeper->config = config;
	keeper->postgres = postgres;
	keeper->event_fd = event_fd;
	keeper->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	keeper->upkeep = upkeep_start(postgres);
	keeper->log_upkeep = log_upkeep_start(postgres);
	id_watch_init(&keeper->ids, postgres->name, postgres->schema);
	keeper->backoff = (struct backoff){
	    .first_ms = 200, .cap_ms = 10000, .jitter = 0.3, .seed = (uint64_t)clock_random()};
	keeper->settings = *postgres;
	keeper->status.turn_ms = keeper->log_turn_ms = clock_ms();
	keeper->shards = xcalloc((size_t)config->publisher_count, sizeof *keeper->shards);
	for (int i = 0; i < config->publisher_count; i++)
		keeper->shards[i] = -1;
	init_locks(keeper);
	error = start_threads(keeper);
	if (error == 0)
		return keeper;
	err_set(err, ERR_RETRY, "no thread for the upkeep of postgres %s: %s", postgres->name,
	    strerror(error));
	keeper_free(keeper);
	return NULL;
}

void keeper_stop(struct keeper *keeper)
{
	wake(keeper, &keeper->stop);
	/* Without it a statement under way is waited for. */
	if (eventfd_write(keeper->stop_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(keeper->postgres->name)});
}

void keeper_look(struct keeper *keeper)
{
	wake(keeper, &keeper->look_asked);
}

void keeper_retune(struct keeper *keeper, const struct config_postgres *postgres)
{
	pthread_mutex_lock(&keeper->mutex);
	keeper->settings = *postgres;
	/* The fresh configuration goes; its strings do not change without a restart. */
	keeper->settings.name = keeper->postgres->name;
	keeper->settings.dsn = keeper->postgres->dsn;
	keeper->settings.schema = keeper->postgres->schema;
	keeper->log_at = 0;
	pthread_mutex_unlock(&keeper->mutex);
	wake(keeper, &keeper->retuned);
}

void keeper_join(struct keeper *keeper)
{
	if (!keeper)
		return;
	pthread_join(keeper->thread, NULL);
	pthread_join(keeper->log_thread, NULL);
	keeper_free(keeper);
}

int keeper_shards(struct keeper *keeper, const struct config_publisher *publisher)
{
	int shards;

	pthread_mutex_lock(&keeper->mutex);
	shards = keeper->shards[publisher - keeper->config->publishers];
	pthread_mutex_unlock(&keeper->mutex);
	return shards;
}

int64_t keeper_looks(struct keeper *keeper)
{
	int64_t looks;

	pthread_mutex_lock(&keeper->mutex);
	looks = keeper->looks;
	pthread_mutex_unlock(&keeper->mutex);
	return looks;
}

struct keeper_status keeper_status(struct keeper *keeper)
{
	struct keeper_status status;

	pthread_mutex_lock(&keeper->mutex);
	status = keeper->status;
	if (keeper->log_turn_ms < status.turn_ms)
		status.turn_ms = keeper->log_turn_ms;
	if (keeper->log_problem[0])
		text_copy(status.problem, sizeof status.problem, keeper->log_problem);
	pthread_mutex_unlock(&keeper->mutex);
	return status;
}
