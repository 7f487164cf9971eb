#pragma once
/*
 * Carries out the jobs of one kind that the HTTP interface has stored in a database, one after the
 * other, on a thread of its own. Any process may do it: whichever takes a job has a lease, and
 * after its end another process goes on. Waits, with back-off, for a database or a cluster that is
 * away.
 */
#include "config.h"
#include "job_row.h"
#include "topic_metadata.h"

/* Of the worker; for its kind. */
struct job_place {
	const struct config *config;
	const struct postgres_settings *postgres;
	struct topic_metadata *const *topic_metadata; /* as config->kafka */
	struct pg *pg;                                /* a session of the thread */
	int stop_fd;                                  /* readable: give the job back */
};
bool job_has_to_stop(const struct job_place *place);

struct job_kind {
	const char *name; /* "replays" */
	const char *due;  /* a query without parameters: the jobs that no process has */
	/* Carries out the job of row i of `due`. False: it did not end, and is tried again later.
	 */
	bool (*carry_out)(const struct job_place *place, const struct pg_result *due, int i);
};
extern const struct job_kind replay_jobs;       /* messages that are published again */
extern const struct job_kind redrive_jobs;      /* dead letters that go back to their topics */
extern const struct job_kind verification_jobs; /* tables that are compared with their topics */

/* A job that a kind carries out. */
struct job {
	const struct job_place *place;
	const char *kind; /* "replay": the beginning of its id in the HTTP interface */
	const char *of;   /* the name of its publisher or section */
	struct job_row row;
};
/*
 * Takes the job and calls `run`, unless another process has it. If `run` fails, gives the job back:
 * after ERR_REJECT it is stopped until somebody resumes it; after another error the next relay goes
 * on, and `run` is to return ERR_RETRY when job_has_to_stop. Returns what carry_out returns.
 */
bool job_carry_out(struct job *job, bool (*run)(void *context, struct err *err), void *context);
/* job_row_note for it. */
bool job_note(struct job *job, const char *state, const char *error, const json_t *more,
    struct err *err) MUST_CHECK;
/* For a kind that takes and gives back by itself: log the begin and the end, as job_carry_out. */
void job_begins(const struct job *job);
bool job_ends(const struct job *job, bool done, const struct err *err);

struct job_worker;

/* All arguments outlive it. */
struct job_worker *job_worker_start(const struct job_kind *kind, const struct config *config,
    const struct postgres_settings *postgres, struct topic_metadata *const *topic_metadata,
    struct err *err);
/*
 * Looks for jobs now, and not at the end of its interval, within which it finds those that other
 * processes store. Any thread. NULL is fine, as below.
 */
void job_worker_wake(struct job_worker *worker);
/* Gives a running job back, and returns at once. */
void job_worker_stop(struct job_worker *worker);
/* Stops, waits for the end and frees everything. */
void job_worker_destroy(struct job_worker *worker);
