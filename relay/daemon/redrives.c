/*
 * Redrives that the HTTP interface has stored: sends the dead letters of a section back in batches,
 * and stores the progress after each. Kafka notes which ones went back, so another process
 * continues where this one ended.
 */
#include <jansson.h>
#include "cleanup.h"
#include "job_worker.h"
#include "redrive_choice.h"
#include "sql_files.h"

enum {
	BATCH = 10000,
	READ_MS = 2000, /* a stop waits so long */
	MOST_READ_MS = 600000
};

DEFINE_OWNED(struct redrive, redrive_close)

struct redrive_job {
	struct job base;
	const struct config_deliver *section;
	const char *filter, *ends; /* as they are stored */
	struct redrive_choice choice;
	/* Behind many dead letters that went back before, the first others come late. */
	int64_t read_ms;
};

/* --- batches --------------------------------------------------------------------------------- */

/* Renews the lease. A stop, and a cancel, end the redrive here. */
static bool note_redrive(struct redrive_job *job, struct err *err)
{
	if (job_has_to_stop(job->base.place))
		return err_set(err, ERR_RETRY, "this process ends");
	return job_note(&job->base, "running", NULL, NULL, err);
}

static void limit_pass(const struct redrive_job *job, struct redrive *redrive, int64_t most)
{
	const struct redrive_limits limits = {
	    job->read_ms, most, job->choice.ends, job->choice.end_count};

	redrive_limit(redrive, &limits);
}

static void give_more_time(struct redrive_job *job)
{
	job->read_ms = job->read_ms < MOST_READ_MS / 2 ? 2 * job->read_ms : MOST_READ_MS;
}

static void pass_over(void *context, const struct redrive_found *found)
{
	(void)context;
	(void)found;
}

static void note_unnoted_partition(void *context, int partition)
{
	(void)partition;
	*(bool *)context = true;
}

/* Sends `left` of them, which redrive_find found. A stop, and a cancel, end it before a batch. */
static bool send_batches(
    struct redrive_job *job, struct redrive *redrive, int64_t left, bool *unnoted, struct err *err)
{
	while (left > 0) {
		int64_t before = redrive_figures(redrive).sent, sent;
		bool good;

		if (!note_redrive(job, err))
			return false;
		limit_pass(job, redrive, BATCH);
		good = redrive_send(redrive, note_unnoted_partition, unnoted, err);
		sent = redrive_figures(redrive).sent - before;
		job->base.row.done += sent;
		left -= sent;
		if (!good)
			return false;
		if (sent == 0)
			give_more_time(job);
	}
	return true;
}

/* Finds dead letters and sends them back. *ret_over: none is left. */
static bool send_found(struct redrive_job *job, bool *ret_over, struct err *err)
{
	OWNED(owned_redrive_close)
	struct redrive *redrive = redrive_open(job->section, &job->choice.filter, err);
	struct redrive_figures figures;
	bool unnoted = false;

	if (redrive)
		limit_pass(job, redrive, INT64_MAX);
	if (!redrive || !redrive_find(redrive, pass_over, NULL, err))
		return false;
	figures = redrive_figures(redrive);
	/* those that an earlier process sent without a note here, or that another program sent */
	if (!figures.late && job->base.row.done < job->base.row.total - figures.matching)
		job->base.row.done = job->base.row.total - figures.matching;
	if (figures.late && figures.matching == 0)
		give_more_time(job);
	if (!send_batches(job, redrive, figures.matching, &unnoted, err))
		return false;
	*ret_over = !figures.late;
	/* they would be found again, and go back again */
	return !unnoted || !figures.late ||
	       err_set(err, ERR_REJECT,
		   "too many single dead letters went back to note each: choose fewer, for example "
		   "by a time");
}

static bool send_until_none_is_left(struct redrive_job *job, struct err *err)
{
	bool over = false;

	while (!over)
		if (!note_redrive(job, err) || !send_found(job, &over, err))
			return false;
	return job_note(&job->base, "finished", NULL, NULL, err);
}

/* --- one redrive ----------------------------------------------------------------------------- */

/* As the order was checked before it was stored. */
static bool read_choice(struct redrive_job *job, struct err *err)
{
	json_t *members = json_loads(job->filter, 0, NULL), *value;
	const char *name;
	bool good = json_is_object(members);

	json_object_foreach(members, name, value)
	{
		const char *text = json_string_value(value);

		good = good && text && redrive_choice_add(&job->choice, name, text, err);
	}
	redrive_choice_ends(&job->choice, job->ends);
	json_decref(members);
	return good || err_set(err, ERR_REJECT, "its filter is none: %.200s", job->filter);
}

static bool run_redrive_job(void *context, struct err *err)
{
	struct redrive_job *job = context;
	bool done;

	redrive_choice_init(&job->choice);
	done = read_choice(job, err) && send_until_none_is_left(job, err);
	redrive_choice_finish(&job->choice);
	return done;
}

/* Columns of redrive_due.sql. */
static bool carry_out_redrive(const struct job_place *place, const struct pg_result *due, int i)
{
	struct redrive_job job = {.base = {.place = place,
				      .kind = "redrive",
				      .of = pg_value(due, i, 1),
				      .row = {.table = "redrive",
					  .take = sql_redrive_take,
					  .id = pg_int(due, i, 0),
					  .total = pg_int(due, i, 4),
					  .done = pg_int(due, i, 5)}},
	    .filter = pg_value(due, i, 2),
	    .ends = pg_value(due, i, 3),
	    .read_ms = READ_MS};
	struct err err;

	/* a section that this process does not have is for another one */
	job.section = redrive_section(place->config, job.base.of, &err);
	return !job.section || job_carry_out(&job.base, run_redrive_job, &job);
}

const struct job_kind redrive_jobs = {
    .name = "redrives", .due = sql_redrive_due, .carry_out = carry_out_redrive};
