/*
 * Verifications that the HTTP interface has stored: compares the table of a publisher with its
 * topics, and stores the progress each second and the result at the end. It only reads, so the next
 * process begins it again. Begin at carry_out_verification.
 */
#include <jansson.h>
#include "cleanup.h"
#include "clock.h"
#include "job_worker.h"
#include "logging.h"
#include "sql_files.h"
#include "verification_order.h"

#define MIB (INT64_C(1) << 20)

enum { NOTE_MS = 1000 };

DEFINE_OWNED(struct verification, verification_close)

struct verify_job {
	struct job base;
	const struct publisher_settings *publisher;
	const char *filter; /* as it is stored */
	struct verification_order order;
	int64_t noted_ms;
	/* Of the progress. A table is read in rounds, and each reads all records once. */
	int64_t before, count;   /* done by earlier counts, and by this one */
	int64_t rows, rows_seen; /* of the table: an estimate until all are seen */
	int64_t records_seen;    /* records that the first round read */
	bool reads_rows;
	json_t *result;
};

/* --- progress -------------------------------------------------------------------------------- */

static int64_t rows_of_round(const struct verify_job *job)
{
	/* without an order that was read, nothing is counted */
	return job->order.memory > 0 ? job->order.memory * MIB / VERIFY_ROW_BYTES : 1;
}

static void begin_or_go_on(void *context, const char *what, int64_t count)
{
	struct verify_job *job = context;

	if (count == 0)
		job->reads_rows = text_equal(what, "rows read");
	job->count = count;
}

static void end_count(void *context)
{
	struct verify_job *job = context;

	job->before += job->count;
	if (job->reads_rows) {
		job->rows_seen += job->count;
		/* a round that is not full is the last one */
		if (job->count < rows_of_round(job) || job->rows < job->rows_seen)
			job->rows = job->rows_seen;
	} else if (job->records_seen == 0) {
		job->records_seen = job->count;
	}
	job->count = 0;
}

/* More than was read, whatever the planner estimates. */
static int64_t estimated_total(const struct verify_job *job)
{
	int64_t rows_now = job->rows_seen + (job->reads_rows ? job->count : 0);
	int64_t records_now = job->reads_rows ? 0 : job->count;
	int64_t rows = job->rows > rows_now ? job->rows : rows_now;
	int64_t records = job->records_seen ? job->records_seen : rows;
	int64_t rounds = rows / rows_of_round(job) + 1;

	return rows + rounds * (records > records_now ? records : records_now);
}

static bool note_verification(struct verify_job *job, const char *state, struct err *err)
{
	json_t *more;
	bool done;

	job->base.row.done = job->before + job->count;
	more = json_pack("{sI, sO?}", "total",
	    (json_int_t)(job->result ? job->base.row.done : estimated_total(job)), "result",
	    job->result);
	done = job_note(&job->base, state, NULL, more, err);
	json_decref(more);
	job->noted_ms = clock_ms();
	return done;
}

/* A cancel, and the end of this process, end the verification here. */
static bool goes_on(void *context, struct err *err)
{
	struct verify_job *job = context;

	if (clock_ms() - job->noted_ms < NOTE_MS)
		return true;
	if (job_has_to_stop(job->base.place))
		return err_set(err, ERR_RETRY, "this process ends");
	return note_verification(job, "running", err);
}

/* --- one verification ------------------------------------------------------------------------ */

static bool compare_table_with_topics(struct verify_job *job, struct pg *reader, struct err *err)
{
	const struct verification_settings settings = {.publisher = job->publisher,
	    .range = job->order.range,
	    .sequence = job->order.sequence,
	    .memory = job->order.memory * MIB,
	    .watch = {
		.step = begin_or_go_on, .end = end_count, .goes_on = goes_on, .context = job}};
	int64_t began = clock_us();
	OWNED(owned_verification_close)
	struct verification *verification = verification_open(reader, &settings, err);

	if (!verification || !verification_run(verification, err))
		return false;
	job->order.facts.place = pg_place(reader);
	job->order.facts.seconds = (double)(clock_us() - began) / 1e6;
	job->result = verification_result(verification, &job->order.facts);
	if (!note_verification(job, "finished", err))
		return false;
	log_info("verification_result", {"verification", LOG_INT(job->base.row.id)},
	    {"clean",
		LOG_TEXT(json_is_true(json_object_get(job->result, "clean")) ? "yes" : "no")});
	return true;
}

/* On a session of its own, since notes are stored while rows are read. */
static bool run_verification_job(void *context, struct err *err)
{
	struct verify_job *job = context;
	json_t *options = json_loads(job->filter, 0, NULL);
	OWNED(owned_pg_destroy)
	struct pg *reader = database_connect(job->base.place->postgres, err);
	struct err ignored;
	bool conflicts, done;

	job->noted_ms = clock_ms();
	done = reader && verification_order_read(&job->order, options, &conflicts, err) &&
	       verification_rows(
		   reader, job->base.place->postgres, &job->order.range, &job->rows, err) &&
	       compare_table_with_topics(job, reader, err);
	/* otherwise the server would notice only at its next row that nobody reads */
	if (!done && reader && pg_state(reader) == PG_BUSY && !pg_cancel(reader, &ignored))
		log_debug("verification_not_cancelled", {"error", LOG_TEXT(ignored.message)});
	json_decref(options);
	/* only a database or a cluster that is away delays it */
	if (!done && err->kind != ERR_RETRY && err->kind != ERR_FENCED)
		err->kind = ERR_REJECT;
	return done;
}

/* Columns of verification_due.sql. */
static bool carry_out_verification(
    const struct job_place *place, const struct pg_result *due, int i)
{
	const struct config_publisher *publisher =
	    config_find_publisher(place->config, pg_value(due, i, 1));
	struct verify_job job = {.base = {.place = place,
				     .kind = "verify",
				     .of = pg_value(due, i, 1),
				     .row = {.table = "verification",
					 .take = sql_verification_take,
					 .id = pg_int(due, i, 0)}},
	    .filter = pg_value(due, i, 2),
	    .reads_rows = true};
	bool ended;

	/* a publisher that this process does not have is for another one */
	if (!publisher || publisher->settings.postgres != place->postgres)
		return true;
	job.publisher = &publisher->settings;
	ended = job_carry_out(&job.base, run_verification_job, &job);
	json_decref(job.result);
	return ended;
}

const struct job_kind verification_jobs = {
    .name = "verifications", .due = sql_verification_due, .carry_out = carry_out_verification};
