/*
 * The threads that run blocking functions for calls. Begin at run_api_worker; api_worker_run is the
 * call of the verbs.
 */
#include "api_worker.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/timerfd.h>
#include <utlist.h>
#include "api_export.h"
#include "cleanup.h"
#include "clock.h"

enum { CONNECT_MS = 5000 };

struct api_job {
	struct api_call *call;
	void (*run)(struct api_call *call, struct api_worker *worker);
	int64_t give_up_ms;
	struct api_job *prev, *next;
};

struct api_worker {
	struct api_workers *workers;
	int limit_fd; /* a timer: while it is readable, blocking calls of the thread end */
	pthread_t thread;
	struct pg **sessions; /* as config->postgres; NULL: not connected. For the thread only */
};

struct api_workers {
	const struct config *config;
	int most_waiting; /* calls */
	struct api_worker *threads;
	int started; /* threads */
	pthread_mutex_t mutex;
	pthread_cond_t came;
	/* guarded by the mutex */
	struct api_job *waiting;
	int count;
	bool ending;
};

/* --- a call runs ----------------------------------------------------------------------------- */

/* False: the pool ends. Then the timer must stay readable. */
static bool begin_worker_limit(struct api_worker *worker, int64_t ms)
{
	struct api_workers *workers = worker->workers;
	bool ending;

	pthread_mutex_lock(&workers->mutex);
	ending = workers->ending;
	if (!ending)
		pg_interrupt_in(worker->limit_fd, ms);
	pthread_mutex_unlock(&workers->mutex);
	return !ending;
}

static void run_api_job(struct api_worker *worker, const struct api_job *job)
{
	/* for the next page of a file: the calls in front of it end within API_ASK_MS */
	int64_t left = api_export_goes_on(job->call) ? API_ASK_MS : job->give_up_ms - clock_ms();

	if (left <= 0)
		api_refuse(job->call, 503, "busy",
		    "too many calls wait for the database: try again later");
	else if (!begin_worker_limit(worker, left))
		api_refuse(job->call, 503, "ending",
		    "the relay is stopping; try again, another one may have started already");
	else
		job->run(job->call, worker);
	api_part_done(job->call);
}

/* NULL: the pool ends and every call is answered. */
static struct api_job *next_api_job(struct api_workers *workers)
{
	struct api_job *job;

	pthread_mutex_lock(&workers->mutex);
	while (!workers->waiting && !workers->ending)
		pthread_cond_wait(&workers->came, &workers->mutex);
	job = workers->waiting;
	if (job) {
		DL_DELETE(workers->waiting, job);
		workers->count--;
	}
	pthread_mutex_unlock(&workers->mutex);
	return job;
}

static void *run_api_worker(void *context)
{
	struct api_worker *worker = context;
	struct api_job *job;

	pg_interrupt_by(worker->limit_fd);
	while ((job = next_api_job(worker->workers))) {
		run_api_job(worker, job);
		free(job);
	}
	for (int i = 0; i < worker->workers->config->postgres_count; i++)
		pg_destroy(worker->sessions[i]);
	return NULL;
}

/*
 * False: the pool ends, or too many calls wait. The next page of a file always has a place: the
 * file would break off. Its connection, of which there is a maximum, waits for one page at a time.
 */
static bool queue_api_job(struct api_workers *workers, struct api_call *call,
    void (*run)(struct api_call *call, struct api_worker *worker), bool *ret_ending)
{
	struct api_job *job = xcalloc(1, sizeof *job);
	bool taken;

	*job = (struct api_job){.call = call, .run = run, .give_up_ms = clock_ms() + API_ASK_MS};
	pthread_mutex_lock(&workers->mutex);
	*ret_ending = workers->ending;
	taken = (workers->count < workers->most_waiting || api_export_goes_on(call)) &&
		!workers->ending;
	if (taken) {
		DL_APPEND(workers->waiting, job);
		workers->count++;
		pthread_cond_signal(&workers->came);
	}
	pthread_mutex_unlock(&workers->mutex);
	if (!taken)
		free(job);
	return taken;
}

void api_worker_run(
    struct api_call *call, void (*run)(struct api_call *call, struct api_worker *worker))
{
	struct api_workers *workers = api_workers_of(call->api);
	bool ending;

	/* First: a thread may answer the call before the mutex is free again. */
	api_wait(call, 1);
	if (queue_api_job(workers, call, run, &ending))
		return;
	if (ending)
		api_refuse(call, 503, "ending",
		    "the relay is stopping; try again, another one may have started already");
	else
		api_refuse(call, 503, "busy", "%d calls wait for the database: try again later",
		    workers->most_waiting);
	api_part_done(call);
}

void api_worker_interrupts(struct api_worker *worker, bool on)
{
	pg_interrupt_by(on ? worker->limit_fd : -1);
}

bool api_worker_pass(struct api_call *call, struct api_workers *workers,
    void (*run)(struct api_call *call, struct api_worker *worker))
{
	bool ending;

	/* The thread of either pool may be done first; the call rests until both are. */
	atomic_fetch_add(&call->left, 1);
	if (queue_api_job(workers, call, run, &ending))
		return true;
	atomic_fetch_sub(&call->left, 1);
	return false;
}

/* --- sessions -------------------------------------------------------------------------------- */

static struct pg **session_of(struct api_worker *worker, const struct postgres_settings *postgres)
{
	return &worker->sessions[postgres - worker->workers->config->postgres];
}

/* Calls `work`. A session that an error may have left in a transaction is not used again. */
static bool work_on_session(struct pg **session, const struct postgres_settings *postgres,
    bool (*work)(struct pg *pg, void *context, struct err *err), void *context, bool *ret_lost,
    struct err *err)
{
	*ret_lost = false;
	if (!*session)
		*session = pg_connect(postgres->dsn, "outbox-relay api", CONNECT_MS, err);
	if (!*session)
		return false;
	if (work(*session, context, err))
		return true;

	*ret_lost = pg_state(*session) == PG_LOST;
	if (*ret_lost || err->kind != ERR_REJECT) {
		pg_destroy(*session);
		*session = NULL;
	}
	return false;
}

bool api_worker_query(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*read)(struct pg *pg, void *context, struct err *err), void *context, struct err *err)
{
	struct pg **session = session_of(worker, postgres);
	bool was_kept = *session != NULL, lost;

	if (work_on_session(session, postgres, read, context, &lost, err))
		return true;
	/* The server may have closed the session since the last call, for example at a restart. */
	return was_kept && lost && work_on_session(session, postgres, read, context, &lost, err);
}

bool api_worker_change(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*change)(struct pg *pg, void *context, struct err *err), void *context, struct err *err)
{
	bool lost;

	return work_on_session(session_of(worker, postgres), postgres, change, context, &lost, err);
}

/* --- life ------------------------------------------------------------------------------------ */

static bool start_api_worker(struct api_workers *workers, struct api_worker *worker)
{
	worker->workers = workers;
	worker->sessions =
	    xcalloc((size_t)workers->config->postgres_count + 1, sizeof *worker->sessions);
	worker->limit_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (worker->limit_fd >= 0 &&
	    pthread_create(&worker->thread, NULL, run_api_worker, worker) == 0)
		return true;

	if (worker->limit_fd >= 0)
		close(worker->limit_fd);
	free(worker->sessions);
	return false;
}

struct api_workers *api_workers_start(
    const struct config *config, int threads, int most_waiting, struct err *err)
{
	struct api_workers *workers = xcalloc(1, sizeof *workers);

	workers->config = config;
	workers->most_waiting = most_waiting;
	workers->threads = xcalloc((size_t)threads, sizeof *workers->threads);
	pthread_mutex_init(&workers->mutex, NULL);
	pthread_cond_init(&workers->came, NULL);
	while (workers->started < threads &&
	       start_api_worker(workers, &workers->threads[workers->started]))
		workers->started++;
	if (workers->started == threads)
		return workers;

	err_set(
	    err, ERR_FATAL, "no timer or no thread for the HTTP interface: %s", strerror(errno));
	api_workers_end(workers);
	api_workers_destroy(workers);
	return NULL;
}

void api_workers_end(struct api_workers *workers)
{
	if (!workers)
		return;
	pthread_mutex_lock(&workers->mutex);
	workers->ending = true;
	/* The timers interrupt what runs; begin_worker_limit does not set them again. */
	for (int i = 0; i < workers->started; i++)
		pg_interrupt_in(workers->threads[i].limit_fd, 0);
	pthread_cond_broadcast(&workers->came);
	pthread_mutex_unlock(&workers->mutex);
	for (int i = 0; i < workers->started; i++)
		pthread_join(workers->threads[i].thread, NULL);
}

void api_workers_destroy(struct api_workers *workers)
{
	if (!workers)
		return;
	for (int i = 0; i < workers->started; i++) {
		close(workers->threads[i].limit_fd);
		free(workers->threads[i].sessions);
	}
	free(workers->threads);
	pthread_cond_destroy(&workers->came);
	pthread_mutex_destroy(&workers->mutex);
	free(workers);
}
