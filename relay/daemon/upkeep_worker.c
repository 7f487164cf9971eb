#include "upkeep_worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "archiver.h"
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
 * The maximum number of unpublished rows that are counted one by one; a larger backlog is estimated
 * from ids. The same maximum holds for the parked and for the scheduled rows of a publisher.
 */
#define COUNT_BOUND "100000"

enum {
	CONNECT_MS = 5000,
	LOOK_MS = 15000,
	IDS_MS = 2000,
	REST_IDS_MS = 20000, /* of the sequence alone */
	REST_LOOK_MS = 60000,
	ADVERTISE_MS = 3600000,
	REST_LOG_MS = 300000, /* the log gets a row for each renewal of a lease only */
	REST_INTERVALS = 5,   /* at most so many times as rare as upkeep_interval */
	LONGEST_SLEEP_MS = 3600000
};

/* As a thread's last turn: it waits for work, and so cannot be stalled. */
#define TURN_WAITS INT64_MAX

struct backlog_metrics {
	struct metric *unpublished_rows, *unpublished_age;
	struct metric *parked_rows, *scheduled_rows, *scheduled_late;
};
#define SERIES(member) METRIC_FIELD(struct backlog_metrics, member)
#define SHARD "shard", "the number of the shard"

static const struct metric_row backlog_rows[] = {
    {"relay_unpublished_rows", METRIC_GAUGE, SERIES(unpublished_rows),
	"Rows that are not published yet. Up to 100,000 are counted; a larger number is estimated "
	"from the ids.",
	.labels = {{SHARD}}},
    {"relay_unpublished_age_seconds", METRIC_GAUGE, SERIES(unpublished_age),
	"Age of the oldest row that is not published yet, whether it was read or not.",
	.labels = {{SHARD}}, .alert = "above the delay that your consumers accept"},
    {"relay_parked_rows", METRIC_GAUGE, SERIES(parked_rows),
	"Parked rows, by their state. At most 100,000 of a publisher are counted.",
	.labels = {{"state",
	    "[`waiting`, `dead`, `stalled`, `paused`, `free`, `behind`](commands.md#parked-list)"}},
	.alert = "above 0 with the state `dead` or `stalled`: "
		 "[parked messages](../guide/parked.md)"},
    {"relay_scheduled_rows", METRIC_GAUGE, SERIES(scheduled_rows),
	"Rows that wait for their deliver_at. At most 100,000 of a publisher are counted."},
    {"relay_scheduled_late_seconds", METRIC_GAUGE, SERIES(scheduled_late),
	"Time since the first scheduled row became due.",
	.alert = "above some seconds: due rows are not published"},
};

const struct metric_table backlog_metric_table = {
    .title = "Backlog of a publisher",
    .about = "Every process reads these numbers from the database, for all shards of its "
	     "publishers.",
    .labels = {{"publisher", "the name of the publisher"}},
    METRIC_ROWS_OF(backlog_rows),
};

struct upkeep_worker {
	const struct config *config;
	struct backlog_metrics metrics;
	const struct postgres_settings *postgres;
	struct doorbell *doorbell; /* NULL: none */
	const char *process;
	int event_fd, stop_fd; /* stop_fd: readable once it is to end */
	pthread_t thread, log_thread, archive_thread;
	/* of the log's thread */
	struct log_upkeep *log_upkeep;
	struct pg *pg;
	struct backoff backoff;
	int64_t advertise_at; /* when to note the URL of the process */
	int64_t look_at, looked_at, ids_at, ids_rest_at, ids_rest_until;
	bool empty; /* the newest look found every publisher, and no row that waits */
	struct id_watch ids;
	int64_t sleep; /* the doorbell's, when the ids were watched; 0: it did not sleep */
	bool lost;     /* the loss was logged, and the connection not restored since */
	/* of the archiver's */
	struct archiver *archiver;
	/* of the tables' */
	struct upkeep *upkeep;
	int64_t upkeep_at, upkeep_rest_at; /* the next step; the same while the doorbell sleeps */

	pthread_mutex_t mutex; /* guards what follows */
	bool rests;            /* is_at_rest, when the ids were watched */
	pthread_cond_t changed;
	bool stop, retuned;
	int running; /* threads */
	struct postgres_settings settings;
	struct upkeep_worker_status status;
	int64_t log_at, log_turn_ms; /* as look_at and status.turn_ms */
	char log_problem[1024];      /* as status.problem */
	int64_t archive_at;          /* as look_at; 0: a partition may have been detached */
	char archive_problem[1024];
	int *shards; /* one for each publisher of config; see upkeep_worker_shards */
	/* Requests for a look: how many came, came before the newest look, and were answered. */
	int64_t requests, taken_requests, answered_requests;
};

static struct pg_result *ask_worker_database(struct upkeep_worker *worker, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	return schema_query(worker->pg, worker->postgres->schema, sql, params, count, err);
}

/* --- the look ------------------------------------------------------------------------------- */

static void note_unpublished(
    const struct upkeep_worker *worker, const char *publisher, const char *shard, int64_t rows)
{
	metric_set(
	    METRIC_LABELLED(worker->metrics.unpublished_rows, publisher, shard), (double)rows);
}

static void note_oldest(
    const struct upkeep_worker *worker, const char *publisher, const char *shard, int64_t age_ms)
{
	metric_set(METRIC_LABELLED(worker->metrics.unpublished_age, publisher, shard),
	    (double)age_ms / 1000);
}

/* Columns of backlogs.sql. An age of -1 is unknown, and the metric keeps its last one. */
static void read_shard_backlog(
    struct upkeep_worker *worker, const char *publisher, const struct pg_result *rows, int i)
{
	enum { MORE = 1, ESTIMATED, AGE_MS, SHARD_NUMBER = 6 };
	int64_t estimated = pg_int(rows, i, ESTIMATED), age_ms = pg_int(rows, i, AGE_MS);

	note_unpublished(worker, publisher, pg_value(rows, i, SHARD_NUMBER), estimated);
	if (age_ms >= 0)
		note_oldest(worker, publisher, pg_value(rows, i, SHARD_NUMBER), age_ms);
	worker->empty &= estimated == 0 && !text_equal(pg_value(rows, i, MORE), "t");
}

static bool count_publisher_backlog(struct upkeep_worker *worker,
    const struct publisher_settings *publisher, int shards, struct err *err)
{
	const struct pg_param params[] = {{publisher->name}, {COUNT_BOUND}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_worker_database(worker, sql_backlogs, params, 2, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		read_shard_backlog(worker, publisher->name, rows, i);
	worker->empty &= rows && pg_rows(rows) == shards;
	return rows != NULL;
}

/* A shard that no longer exists has nothing left to publish. */
static void clear_backlog(
    const struct upkeep_worker *worker, const char *publisher, int from, int to)
{
	for (int i = from; i < to; i++) {
		owned_text char *shard = xformat("%d", i);

		note_unpublished(worker, publisher, shard, 0);
		note_oldest(worker, publisher, shard, 0);
	}
}

static void note_publishers(struct upkeep_worker *worker, const struct pg_result *rows)
{
	pthread_mutex_lock(&worker->mutex);
	for (int i = 0; i < worker->config->publisher_count; i++) {
		const struct config_publisher *publisher = &worker->config->publishers[i];
		int shards = publisher->settings.postgres == worker->postgres
				 ? schema_publisher_shards(rows, publisher->settings.name)
				 : 0;

		clear_backlog(worker, publisher->settings.name, shards, worker->shards[i]);
		worker->shards[i] = shards;
		worker->empty &= shards > 0 || publisher->settings.postgres != worker->postgres;
	}
	worker->answered_requests = worker->taken_requests;
	pthread_mutex_unlock(&worker->mutex);
	/* Fails only when the counter is full, and then it is readable all the same. */
	if (eventfd_write(worker->event_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(worker->postgres->name)});
}

static bool count_backlogs(struct upkeep_worker *worker, struct err *err)
{
	for (int i = 0; i < worker->config->publisher_count; i++) {
		const struct publisher_settings *publisher =
		    &worker->config->publishers[i].settings;

		if (publisher->postgres == worker->postgres &&
		    !count_publisher_backlog(worker, publisher, worker->shards[i], err))
			return false;
	}
	return true;
}

static void note_parked(struct upkeep_worker *worker, const struct pg_result *rows, int i)
{
	static const char *const states[] = {
	    "waiting", "dead", "stalled", "paused", "free", "behind"};

	for (int k = 0; k < (int)(sizeof states / sizeof *states); k++) {
		worker->empty &= pg_int(rows, i, k + 1) == 0;
		metric_set(
		    METRIC_LABELLED(worker->metrics.parked_rows, pg_value(rows, i, 0), states[k]),
		    (double)pg_int(rows, i, k + 1));
	}
}

static void note_scheduled(struct upkeep_worker *worker, const struct pg_result *rows, int i)
{
	const char *publisher = pg_value(rows, i, 0);

	worker->empty &= pg_int(rows, i, 1) == 0;
	metric_set(
	    METRIC_LABELLED(worker->metrics.scheduled_rows, publisher), (double)pg_int(rows, i, 1));
	metric_set(METRIC_LABELLED(worker->metrics.scheduled_late, publisher),
	    (double)pg_int(rows, i, 3) / 1000);
}

/* Calls `note` for each of the publishers that are configured. */
static bool count_kept(struct upkeep_worker *worker, const char *sql,
    void (*note)(struct upkeep_worker *worker, const struct pg_result *rows, int i),
    struct err *err)
{
	const struct pg_param params[] = {{COUNT_BOUND}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_worker_database(worker, sql, params, 1, err);

	for (int i = 0; rows && i < pg_rows(rows); i++) {
		const struct config_publisher *publisher =
		    config_find_publisher(worker->config, pg_value(rows, i, 0));

		/* The database may have publishers that this process does not have. */
		if (publisher && publisher->settings.postgres == worker->postgres)
			note(worker, rows, i);
	}
	return rows != NULL;
}

/* The planner must not scan all published rows to find the unpublished ones. */
static bool look_at_publishers(struct upkeep_worker *worker, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_worker_database(worker, sql_publishers, NULL, 0, err);

	if (!rows)
		return false;
	worker->empty = true;
	note_publishers(worker, rows);
	/* Counting up to 100,000 rows costs the server tens of milliseconds. */
	if (!worker->config->admin_listen[0])
		return true; /* nobody can read the metrics */
	if (!pg_script(worker->pg, sql_backlog_begin, err))
		return false;
	if (count_backlogs(worker, err) &&
	    count_kept(worker, sql_parked_states, note_parked, err) &&
	    count_kept(worker, sql_scheduled_states, note_scheduled, err))
		return pg_script(worker->pg, "commit", err);
	/* lock_not_available: the figures stay what they were */
	return text_equal(pg_sqlstate(worker->pg), "55P03") &&
	       pg_script(worker->pg, "rollback", err);
}

/* --- the connection ------------------------------------------------------------------------- */

static void note_look_error(struct upkeep_worker *worker, const char *error)
{
	pthread_mutex_lock(&worker->mutex);
	text_copy(worker->status.error, sizeof worker->status.error, error);
	pthread_mutex_unlock(&worker->mutex);
}

static void lose_look_connection(struct upkeep_worker *worker, const struct err *err)
{
	note_look_error(worker, err->message);
	pg_destroy(worker->pg);
	worker->pg = NULL;
	/* One warning for an outage. */
	if (!worker->lost)
		log_warn("look_failed", {"postgres", LOG_TEXT(worker->postgres->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence",
			LOG_TEXT("publishers and lag are as last seen; it is tried again")});
	worker->lost = true;
}

/* Without the URL only a link is missing, so any other error than a lost session is a warning. */
static bool note_process_url(struct upkeep_worker *worker, struct err *err)
{
	const struct pg_param params[] = {{worker->process}, {worker->config->api.advertise}};
	OWNED(owned_pg_result_destroy) struct pg_result *noted = NULL;

	if (!worker->config->api.advertise[0] || clock_ms() < worker->advertise_at)
		return true;
	worker->advertise_at = clock_ms() + ADVERTISE_MS;
	noted = ask_worker_database(worker, sql_process_note, params, 2, err);
	if (noted || pg_state(worker->pg) == PG_LOST)
		return noted != NULL;
	log_warn("advertise_failed", {"postgres", LOG_TEXT(worker->postgres->name)},
	    {"error", LOG_TEXT(err->message)},
	    {"consequence", LOG_TEXT("consoles have no link to this process; it is tried again in "
				     "an hour")});
	return true;
}

static bool connect_and_look(struct upkeep_worker *worker, struct err *err)
{
	if (!worker->pg) {
		worker->pg = pg_connect(
		    worker->postgres->dsn, "outbox-relay upkeep worker", CONNECT_MS, err);
		id_watch_reconnects(&worker->ids);
		/* a database that was restored has no row of this process */
		worker->advertise_at = 0;
	}
	return worker->pg && note_process_url(worker, err) && look_at_publishers(worker, err);
}

/* No message has come since the ids were watched last, so the last counts still hold. */
static bool is_at_rest(const struct upkeep_worker *worker)
{
	int64_t sleep = worker->doorbell ? doorbell_sleep(worker->doorbell) : 0;
	return sleep && sleep == worker->sleep;
}

/* Returns the time of the next look. */
static int64_t step_look(struct upkeep_worker *worker)
{
	struct err err;

	worker->looked_at = clock_ms();
	if (!connect_and_look(worker, &err)) {
		lose_look_connection(worker, &err);
		return clock_ms() + backoff_next_ms(&worker->backoff);
	}
	backoff_reset(&worker->backoff);
	if (worker->lost)
		log_info("look_works_again", {"postgres", LOG_TEXT(worker->postgres->name)});
	worker->lost = false;
	note_look_error(worker, "");
	return clock_ms() + (is_at_rest(worker) && worker->empty ? REST_LOOK_MS : LOOK_MS);
}

/* When messages come again, the work that was put off at rest is done soon. */
static void tell_rest(struct upkeep_worker *worker, bool rests)
{
	int64_t soon = clock_ms() + LOOK_MS;

	pthread_mutex_lock(&worker->mutex);
	if (worker->rests && !rests) {
		worker->log_at = worker->log_at < soon ? worker->log_at : soon;
		pthread_cond_broadcast(&worker->changed); /* the thread of the tables */
	}
	worker->rests = rests;
	pthread_mutex_unlock(&worker->mutex);
}

/* On the connection of the look: without one, the look connects first. */
static int64_t step_ids(struct upkeep_worker *worker)
{
	struct err err;

	bool rested = is_at_rest(worker), rests = rested && clock_ms() < worker->ids_rest_until;

	tell_rest(worker, rested);
	worker->sleep = worker->doorbell ? doorbell_sleep(worker->doorbell) : 0;
	if (!rests)
		worker->ids_rest_until = clock_ms() + REST_LOOK_MS;
	/* The next look was put off as nothing changed. */
	if (!rested && worker->look_at > worker->looked_at + LOOK_MS)
		worker->look_at = worker->looked_at + LOOK_MS;
	if (rests && clock_ms() < worker->ids_rest_at)
		return clock_ms() + IDS_MS;
	worker->ids_rest_at = clock_ms() + REST_IDS_MS;
	if (worker->pg && !id_watch_step(&worker->ids, worker->pg, rests, &err))
		lose_look_connection(worker, &err);
	return clock_ms() + IDS_MS;
}

/* --- the loop ------------------------------------------------------------------------------- */

/* Sleeps until `due` or until something changes. Call it with the mutex. */
static void sleep_until(struct upkeep_worker *worker, int64_t due)
{
	int64_t wait = due - clock_ms();
	struct timespec at;

	wait = wait < 0 ? 0 : wait < LONGEST_SLEEP_MS ? wait : LONGEST_SLEEP_MS;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += (at.tv_nsec / 1000000 + wait) / 1000;
	at.tv_nsec = (at.tv_nsec / 1000000 + wait) % 1000 * 1000000;
	pthread_cond_timedwait(&worker->changed, &worker->mutex, &at);
}

/* False: the worker must end. Takes over requests that came meanwhile. */
static bool wait_for_upkeep_work(struct upkeep_worker *worker)
{
	bool stop;

	pthread_mutex_lock(&worker->mutex);
	worker->status.turn_ms = TURN_WAITS;
	while (!worker->stop && !worker->retuned) {
		int64_t due = worker->rests ? worker->upkeep_rest_at : worker->upkeep_at;

		if (due <= clock_ms())
			break;
		sleep_until(worker, due);
	}
	worker->status.turn_ms = clock_ms();
	stop = worker->stop;
	/* Here and not in upkeep_worker_retune: this thread owns the upkeep. */
	if (worker->retuned)
		upkeep_reload(worker->upkeep, &worker->settings);
	worker->retuned = false;
	pthread_mutex_unlock(&worker->mutex);
	return !stop;
}

/* The interval of upkeep at rest, `most` at most. */
static int64_t rest_interval(int64_t interval, int64_t most)
{
	int64_t rest = interval * REST_INTERVALS;
	return rest < most ? rest : most;
}

/*
 * The step after this one, at rest: rare, but early enough for partitions of a short period. A
 * problem, or work that was left over, is not put off.
 */
static int64_t upkeep_at_rest(const struct upkeep_worker *worker, int64_t at)
{
	int64_t interval = worker->settings.upkeep_interval_ms;
	int64_t rest = rest_interval(interval, worker->settings.partition_every_ms / 4);
	bool early = at < clock_ms() + interval / 2 || worker->status.problem[0];

	return early || rest < interval ? at : at + rest - interval;
}

static void note_upkeep(struct upkeep_worker *worker, int64_t at)
{
	const struct upkeep_status *upkeep = upkeep_status(worker->upkeep);

	pthread_mutex_lock(&worker->mutex);
	text_copy(worker->status.problem, sizeof worker->status.problem,
	    upkeep->problem[0] ? upkeep->problem : upkeep->lock_holder);
	worker->upkeep_at = at;
	worker->upkeep_rest_at = upkeep_at_rest(worker, at);
	/* the archiver begins at once with a partition that this step has detached */
	worker->archive_at = 0;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
}

/* False: it is to end. */
static bool wait_for_log_work(struct upkeep_worker *worker)
{
	bool stop;

	pthread_mutex_lock(&worker->mutex);
	worker->log_turn_ms = TURN_WAITS;
	for (;;) {
		int64_t due = worker->look_at < worker->log_at ? worker->look_at : worker->log_at;

		due = worker->ids_at < due ? worker->ids_at : due;
		if (worker->stop || worker->requests > worker->taken_requests || due <= clock_ms())
			break;
		sleep_until(worker, due);
	}
	worker->log_turn_ms = clock_ms();
	stop = worker->stop;
	/* Taken before the look, so that a request during the look causes another one. */
	if (worker->requests > worker->taken_requests)
		worker->look_at = 0;
	worker->taken_requests = worker->requests;
	pthread_mutex_unlock(&worker->mutex);
	return !stop;
}

static void step_log_partitions(struct upkeep_worker *worker)
{
	int64_t interval, at;
	bool due;

	pthread_mutex_lock(&worker->mutex);
	interval = worker->settings.upkeep_interval_ms;
	due = worker->log_at <= clock_ms();
	pthread_mutex_unlock(&worker->mutex);
	if (!due)
		return;
	/* Without the mutex: the step waits for the server. */
	at = log_upkeep_step(worker->log_upkeep, clock_ms(), interval);
	pthread_mutex_lock(&worker->mutex);
	/* A problem is not put off. */
	if (worker->rests && !log_upkeep_problem(worker->log_upkeep)[0])
		at = clock_ms() + rest_interval(interval, REST_LOG_MS);
	worker->log_at = at;
	text_copy(worker->log_problem, sizeof worker->log_problem,
	    log_upkeep_problem(worker->log_upkeep));
	pthread_mutex_unlock(&worker->mutex);
}

static void end_worker_thread(struct upkeep_worker *worker)
{
	pthread_mutex_lock(&worker->mutex);
	worker->running--;
	worker->status.ended = worker->running == 0;
	pthread_mutex_unlock(&worker->mutex);
	if (eventfd_write(worker->event_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(worker->postgres->name)});
}

static void *run_table_upkeep(void *context)
{
	struct upkeep_worker *worker = context;

	pg_interrupt_by(worker->stop_fd);
	while (wait_for_upkeep_work(worker)) {
		int64_t at = upkeep_step(worker->upkeep, clock_ms());
		note_upkeep(worker, at);
	}
	end_worker_thread(worker);
	return NULL;
}

/* False: it is to end. */
static bool wait_for_archive_work(struct upkeep_worker *worker, int64_t *ret_interval)
{
	bool stop;

	pthread_mutex_lock(&worker->mutex);
	while (!worker->stop && worker->archive_at > clock_ms())
		sleep_until(worker, worker->archive_at);
	/* before the step: a partition that is detached meanwhile causes another one */
	worker->archive_at = INT64_MAX;
	*ret_interval = worker->settings.upkeep_interval_ms;
	stop = worker->stop;
	pthread_mutex_unlock(&worker->mutex);
	return !stop;
}

/* Its steps may take minutes, and nothing waits for them: they are no turns of the worker. */
static void *run_archiver(void *context)
{
	struct upkeep_worker *worker = context;
	int64_t interval;

	pg_interrupt_by(worker->stop_fd);
	while (wait_for_archive_work(worker, &interval)) {
		int64_t at = archiver_step(worker->archiver, clock_ms(), interval);

		pthread_mutex_lock(&worker->mutex);
		if (at < worker->archive_at)
			worker->archive_at = at;
		text_copy(worker->archive_problem, sizeof worker->archive_problem,
		    archiver_problem(worker->archiver));
		pthread_mutex_unlock(&worker->mutex);
	}
	end_worker_thread(worker);
	return NULL;
}

static void *run_looks_and_log(void *context)
{
	struct upkeep_worker *worker = context;

	pg_interrupt_by(worker->stop_fd);
	while (wait_for_log_work(worker)) {
		if (worker->look_at <= clock_ms())
			worker->look_at = step_look(worker);
		if (worker->ids_at <= clock_ms())
			worker->ids_at = step_ids(worker);
		step_log_partitions(worker);
	}
	end_worker_thread(worker);
	return NULL;
}

static void free_upkeep_worker(struct upkeep_worker *worker)
{
	upkeep_stop(worker->upkeep);
	log_upkeep_stop(worker->log_upkeep);
	archiver_stop(worker->archiver);
	pg_destroy(worker->pg);
	if (worker->stop_fd >= 0)
		close(worker->stop_fd);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->mutex);
	free(worker->shards);
	free(worker);
}

static void init_worker_locks(struct upkeep_worker *worker)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&worker->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&worker->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

static void wake_upkeep_worker(struct upkeep_worker *worker, bool *flag)
{
	pthread_mutex_lock(&worker->mutex);
	*flag = true;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
}

/* All threads or none. Returns 0 or an errno. */
static int start_worker_threads(struct upkeep_worker *worker)
{
	int error;

	/* Before the threads: one of them may end before the other exists. */
	worker->running = 3;
	error = pthread_create(&worker->log_thread, NULL, run_looks_and_log, worker);
	if (error != 0)
		return error;
	error = pthread_create(&worker->thread, NULL, run_table_upkeep, worker);
	if (error == 0) {
		error = pthread_create(&worker->archive_thread, NULL, run_archiver, worker);
		if (error == 0)
			return 0;
		upkeep_worker_stop(worker);
		pthread_join(worker->thread, NULL);
	}
	upkeep_worker_stop(worker);
	pthread_join(worker->log_thread, NULL);
	return error;
}

struct upkeep_worker *upkeep_worker_start(const struct config *config,
    const struct postgres_settings *postgres, struct doorbell *doorbell, const char *process,
    int event_fd, struct err *err)
{
	struct upkeep_worker *worker = xcalloc(1, sizeof *worker);
	int error;

	worker->config = config;
	metric_series_all(&backlog_metric_table, NULL, &worker->metrics, NULL);
	worker->postgres = postgres;
	worker->doorbell = doorbell;
	worker->process = process;
	worker->event_fd = event_fd;
	worker->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	worker->upkeep = upkeep_start(postgres);
	worker->log_upkeep = log_upkeep_start(postgres);
	worker->archiver = archiver_start(postgres, worker->stop_fd);
	id_watch_init(&worker->ids, postgres->name, postgres->schema);
	worker->backoff = (struct backoff){
	    .first_ms = 200, .cap_ms = 10000, .jitter = 0.3, .seed = (uint64_t)clock_random()};
	worker->settings = *postgres;
	worker->status.turn_ms = worker->log_turn_ms = clock_ms();
	worker->shards = xcalloc((size_t)config->publisher_count, sizeof *worker->shards);
	/* Not 0, which would say that the database has no such publisher. */
	for (int i = 0; i < config->publisher_count; i++)
		worker->shards[i] = -1;

	init_worker_locks(worker);
	error = start_worker_threads(worker);
	if (error == 0)
		return worker;
	err_set(err, ERR_RETRY, "no thread for the upkeep of postgres %s: %s", postgres->name,
	    strerror(error));
	free_upkeep_worker(worker);
	return NULL;
}

void upkeep_worker_stop(struct upkeep_worker *worker)
{
	wake_upkeep_worker(worker, &worker->stop);
	/* If the write fails, the end waits for the running statement. */
	if (eventfd_write(worker->stop_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(worker->postgres->name)});
}

int64_t upkeep_worker_look(struct upkeep_worker *worker)
{
	int64_t request;

	pthread_mutex_lock(&worker->mutex);
	request = ++worker->requests;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->mutex);
	return request;
}

void upkeep_worker_retune(struct upkeep_worker *worker, const struct postgres_settings *postgres)
{
	pthread_mutex_lock(&worker->mutex);
	worker->settings = *postgres;
	/* The fresh configuration will be freed; its strings do not change without a restart. */
	worker->settings.name = worker->postgres->name;
	worker->settings.dsn = worker->postgres->dsn;
	worker->settings.schema = worker->postgres->schema;
	worker->settings.archive_path = worker->postgres->archive_path;
	worker->log_at = 0;
	pthread_mutex_unlock(&worker->mutex);
	wake_upkeep_worker(worker, &worker->retuned);
}

void upkeep_worker_join(struct upkeep_worker *worker)
{
	if (!worker)
		return;
	pthread_join(worker->thread, NULL);
	pthread_join(worker->log_thread, NULL);
	pthread_join(worker->archive_thread, NULL);
	free_upkeep_worker(worker);
}

int upkeep_worker_shards(struct upkeep_worker *worker, const struct config_publisher *publisher)
{
	int shards;

	pthread_mutex_lock(&worker->mutex);
	shards = worker->shards[publisher - worker->config->publishers];
	pthread_mutex_unlock(&worker->mutex);
	return shards;
}

bool upkeep_worker_is_answered(struct upkeep_worker *worker, int64_t request)
{
	bool answered;

	pthread_mutex_lock(&worker->mutex);
	answered = worker->answered_requests >= request;
	pthread_mutex_unlock(&worker->mutex);
	return answered;
}

struct upkeep_worker_status upkeep_worker_status(struct upkeep_worker *worker)
{
	struct upkeep_worker_status status;

	pthread_mutex_lock(&worker->mutex);
	status = worker->status;
	if (worker->log_turn_ms < status.turn_ms)
		status.turn_ms = worker->log_turn_ms;
	if (status.turn_ms == TURN_WAITS)
		status.turn_ms = clock_ms();
	if (worker->log_problem[0])
		text_copy(status.problem, sizeof status.problem, worker->log_problem);
	else if (!status.problem[0] && worker->archive_problem[0])
		snprintf(status.problem, sizeof status.problem, "archive: %.1000s",
		    worker->archive_problem);
	pthread_mutex_unlock(&worker->mutex);
	return status;
}
