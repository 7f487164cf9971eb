#include "job_worker.h"

#include <errno.h>
#include <inttypes.h>
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

enum {
	CONNECT_MS = 5000,
	LOOK_MS = 5000,
	LAST_NOTE_MS = 3000, /* a stop waits so long for records under way and their note */
};

struct job_worker {
	const struct job_kind *kind;
	struct job_place place; /* stop_fd is the worker's own */
	int limit_fd;           /* readable: the running statement is interrupted */
	int wake_fd;            /* readable: there may be a job */
	pthread_t thread;
	/* of the thread */
	struct backoff backoff;
	bool failing; /* the failure was logged */
};

bool job_has_to_stop(const struct job_place *place)
{
	struct pollfd stop = {.fd = place->stop_fd, .events = POLLIN};

	return poll(&stop, 1, 0) > 0;
}

/* --- one job --------------------------------------------------------------------------------- */

static bool is_left_to_others(const struct job *job, const struct err *why)
{
	return why->kind == ERR_FENCED || (why->kind == ERR_RETRY && job_has_to_stop(job->place));
}

void job_begins(const struct job *job)
{
	owned_text char *id = xformat("%s-%" PRId64, job->kind, job->row.id);

	log_info("job_begun", {"job", LOG_TEXT(id)}, {"of", LOG_TEXT(job->of)},
	    {"done", LOG_INT(job->row.done)});
}

bool job_ends(const struct job *job, bool done, const struct err *err)
{
	owned_text char *id = xformat("%s-%" PRId64, job->kind, job->row.id);

	if (done)
		log_info("job_finished", {"job", LOG_TEXT(id)}, {"done", LOG_INT(job->row.done)});
	else if (is_left_to_others(job, err))
		log_info("job_left", {"job", LOG_TEXT(id)}, {"reason", LOG_TEXT(err->message)});
	else if (err->kind == ERR_REJECT)
		log_warn("job_failed", {"job", LOG_TEXT(id)}, {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("remove the cause, and resume the job")});
	else
		log_warn("job_interrupted", {"job", LOG_TEXT(id)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("a relay goes on with it")});
	return done || err->kind == ERR_FENCED || err->kind == ERR_REJECT;
}

bool job_note(
    struct job *job, const char *state, const char *error, const json_t *more, struct err *err)
{
	return job_row_note(
	    &job->row, job->place->pg, job->place->postgres, state, error, more, err);
}

/* On a broken connection nothing can be noted, and the lease runs out by itself. */
static void give_back_job(struct job *job, const struct err *why)
{
	const char *state = why->kind == ERR_REJECT ? "stopped" : "released";
	const char *error = is_left_to_others(job, why) ? NULL : why->message;
	struct err ignored; /* the first error is reported */

	if (why->kind != ERR_FENCED && pg_state(job->place->pg) == PG_IDLE &&
	    !job_note(job, state, error, NULL, &ignored))
		log_debug("job_not_given_back", {"error", LOG_TEXT(ignored.message)});
}

bool job_carry_out(struct job *job, bool (*run)(void *context, struct err *err), void *context)
{
	struct err err;
	bool taken = false, done;

	done = job_row_take(&job->row, job->place->pg, job->place->postgres, &taken, &err);
	if (done && !taken)
		return true;
	if (done) {
		job_begins(job);
		done = run(context, &err);
		if (!done)
			give_back_job(job, &err);
	}
	return job_ends(job, done, &err);
}

/* --- the look -------------------------------------------------------------------------------- */

static bool carry_out_due(struct job_worker *worker, const struct pg_result *due)
{
	bool ended = true;

	for (int i = 0; i < pg_rows(due) && ended && !job_has_to_stop(&worker->place); i++)
		ended = worker->kind->carry_out(&worker->place, due, i);
	return ended;
}

static bool look_for_jobs(struct job_worker *worker)
{
	struct job_place *place = &worker->place;
	OWNED(owned_pg_result_destroy) struct pg_result *due = NULL;
	owned_text char *name = xformat("outbox-relay %s", worker->kind->name);
	struct err err;

	if (!place->pg)
		place->pg = pg_connect(place->postgres->dsn, name, CONNECT_MS, &err);
	if (place->pg)
		due = database_query(place->pg, place->postgres, worker->kind->due, NULL, 0, &err);
	if (due) {
		worker->failing = false;
		return carry_out_due(worker, due);
	}

	pg_destroy(place->pg);
	place->pg = NULL;
	/* one warning for an outage */
	if (!worker->failing && !job_has_to_stop(place))
		log_warn("jobs_unknown", {"kind", LOG_TEXT(worker->kind->name)},
		    {"postgres", LOG_TEXT(place->postgres->name)}, {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("stored jobs wait; it is tried again")});
	worker->failing = true;
	return false;
}

static void *run_jobs(void *context)
{
	struct job_worker *worker = context;
	struct job_place *place = &worker->place;

	pg_interrupt_by(worker->limit_fd);
	while (!job_has_to_stop(place)) {
		struct pollfd wakers[] = {{.fd = place->stop_fd, .events = POLLIN},
		    {.fd = worker->wake_fd, .events = POLLIN}};
		int64_t wait = LOOK_MS;

		/* Before the look, so that a job that is stored during it causes another one. */
		(void)!eventfd_read(worker->wake_fd, &(eventfd_t){0});
		if (look_for_jobs(worker))
			backoff_reset(&worker->backoff);
		else
			wait += backoff_next_ms(&worker->backoff);
		/* the connection may have been lost in the middle of a job */
		if (place->pg && pg_state(place->pg) != PG_IDLE) {
			pg_destroy(place->pg);
			place->pg = NULL;
		}
		poll(wakers, sizeof wakers / sizeof *wakers, (int)wait);
	}
	pg_destroy(place->pg);
	return NULL;
}

/* --- life ------------------------------------------------------------------------------------ */

static void free_job_worker(struct job_worker *worker)
{
	if (worker->place.stop_fd >= 0)
		close(worker->place.stop_fd);
	if (worker->limit_fd >= 0)
		close(worker->limit_fd);
	if (worker->wake_fd >= 0)
		close(worker->wake_fd);
	free(worker);
}

struct job_worker *job_worker_start(const struct job_kind *kind, const struct config *config,
    const struct postgres_settings *postgres, struct topic_metadata *const *topic_metadata,
    struct err *err)
{
	struct job_worker *worker = xcalloc(1, sizeof *worker);
	int error;

	*worker = (struct job_worker){.kind = kind,
	    .place = {.config = config,
		.postgres = postgres,
		.topic_metadata = topic_metadata,
		.stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)},
	    .limit_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC),
	    .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
	    .backoff = {.first_ms = 1000,
		.cap_ms = 30000,
		.jitter = 0.3,
		.seed = (uint64_t)clock_random()}};
	error = worker->place.stop_fd < 0 || worker->limit_fd < 0 || worker->wake_fd < 0
		    ? errno
		    : pthread_create(&worker->thread, NULL, run_jobs, worker);
	if (error == 0)
		return worker;

	err_set(err, ERR_RETRY, "no thread for the %s of postgres %s: %s", kind->name,
	    postgres->name, strerror(error));
	free_job_worker(worker);
	return NULL;
}

void job_worker_wake(struct job_worker *worker)
{
	if (worker && eventfd_write(worker->wake_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(worker->place.postgres->name)});
}

void job_worker_stop(struct job_worker *worker)
{
	if (!worker)
		return;
	if (eventfd_write(worker->place.stop_fd, 1) != 0)
		log_debug("already_told", {"postgres", LOG_TEXT(worker->place.postgres->name)});
	pg_interrupt_in(worker->limit_fd, LAST_NOTE_MS);
}

void job_worker_destroy(struct job_worker *worker)
{
	if (!worker)
		return;
	job_worker_stop(worker);
	pthread_join(worker->thread, NULL);
	free_job_worker(worker);
}
