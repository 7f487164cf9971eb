/*
 * Long work that operators requested: retries and skips of parked rows, replays, redrives of dead
 * letters, and verifications. [the list] and one job are rows of job_page.sql; [orders] cancel and
 * resume a job in its database, where the process that works on it finds out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "job_list.h"
#include "logging.h"
#include "moment.h"
#include "sql_files.h"

enum { PAGE = 100, MOST_ROWS = 1000 };

struct job_call {
	const struct postgres_settings *postgres;
	/* of the list */
	int64_t limit;
	char before_at[MOMENT_SIZE];
	char *before_job, *kind;
	char *publishers, *sections; /* JSON arrays; NULL: any */
	const char *is_open;         /* "t", "f"; NULL: any */
	json_t *answer;
	/* of one job */
	char *job;         /* "parked-7"; NULL: the list */
	const char *table; /* of `job`: a row of job_tables */
	const char *id;    /* of `job`: its digits */
	/* of an order */
	json_t *body, *postgres_word, *publisher_word, *reason;
	bool resumes;
	char kind_word[16], state[16], outcome[16];
	int64_t audit_id;
};

/* --- the list -------------------------------------------------------------------------------- */

static struct pg_result *query_jobs(
    struct pg *pg, const struct job_call *jobs, int64_t most, struct err *err)
{
	const struct job_list list = {.before_at = jobs->before_at,
	    .before_job = jobs->before_job,
	    .most = most,
	    .job = jobs->job,
	    .kind = jobs->kind,
	    .publishers = jobs->publishers,
	    .is_open = jobs->is_open,
	    .sections = jobs->sections};

	return job_list_query(pg, jobs->postgres, &list, err);
}

static bool read_job_page(struct pg *pg, void *context, struct err *err)
{
	struct job_call *jobs = context;
	/* one more than a page shows whether there are further rows */
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = query_jobs(pg, jobs, jobs->limit + 1, err);
	json_t *list;
	int last = (int)jobs->limit - 1;

	if (!rows)
		return false;
	list = json_array();
	for (int i = 0; i < pg_rows(rows) && i <= last; i++)
		json_array_append_new(list, job_list_row(rows, i));
	jobs->answer = json_pack("{s:s, s:s, s:o, s:o}", "postgres", jobs->postgres->name, "source",
	    "database", "rows", list, "next",
	    pg_rows(rows) > last + 1 ? json_sprintf("%s.%s", pg_value(rows, last, JOB_AT_US),
					   pg_value(rows, last, JOB_ID))
				     : json_null());
	return true;
}

static void run_job_page(struct api_call *call, struct api_worker *worker)
{
	struct job_call *jobs = call->work;
	struct err err;

	if (api_worker_query(worker, jobs->postgres, read_job_page, jobs, &err))
		api_answer(call, 200, jobs->answer);
	else
		api_refuse_database(call, &err);
}

/* --- one job --------------------------------------------------------------------------------- */

static bool read_one_job(struct pg *pg, void *context, struct err *err)
{
	struct job_call *jobs = context;
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = query_jobs(pg, jobs, 1, err);

	if (!rows || pg_rows(rows) == 0)
		return rows != NULL;
	text_copy(jobs->kind_word, sizeof jobs->kind_word, pg_value(rows, 0, JOB_KIND));
	text_copy(jobs->state, sizeof jobs->state, pg_value(rows, 0, JOB_STATE));
	jobs->answer = job_list_row(rows, 0);
	/* samples and topics make it long, so the list has no result */
	json_object_set_new(jobs->answer, "result", field_json_parsed(rows, 0, JOB_RESULT));
	return true;
}

static void refuse_unknown_job(struct api_call *call, const struct job_call *jobs)
{
	api_refuse(call, 404, "not_found",
	    "there is no job %.40s in [postgres \"%s\"]; GET /v1/jobs lists them", jobs->job,
	    jobs->postgres->name);
}

/* False: refused. */
static bool find_job(struct api_call *call, struct api_worker *worker)
{
	struct job_call *jobs = call->work;
	const char *publisher, *section;
	struct err err;

	if (!api_worker_query(worker, jobs->postgres, read_one_job, jobs, &err)) {
		api_refuse_database(call, &err);
		return false;
	}
	if (!jobs->answer) {
		refuse_unknown_job(call, jobs);
		return false;
	}
	publisher = json_string_value(json_object_get(jobs->answer, "publisher"));
	section = json_string_value(json_object_get(jobs->answer, "section"));
	if (publisher && !api_may_see_publisher(call, publisher))
		api_refuse_scope(call, "the publisher", publisher);
	else if (section && !config_token_has_section(&call->caller->token, section))
		api_refuse_scope(call, "the section", section);
	else
		return true;
	return false;
}

static void run_one_job(struct api_call *call, struct api_worker *worker)
{
	struct job_call *jobs = call->work;

	if (find_job(call, worker))
		api_answer(call, 200, json_incref(jobs->answer));
}

/* --- orders ---------------------------------------------------------------------------------- */

void api_wake_jobs(const struct api_call *call, const struct postgres_settings *postgres)
{
	const struct api_parts *parts = api_parts_of(call->api);

	parts->wake_jobs(parts->context, postgres);
}

static bool change_job(struct pg *pg, void *context, struct err *err)
{
	const struct api_call *call = context;
	struct job_call *jobs = call->work;
	const struct pg_param params[] = {{jobs->table}, {jobs->id},
	    {json_string_value(jobs->reason)}, {call->caller->token.name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = database_query(
	    pg, jobs->postgres, jobs->resumes ? sql_job_resume : sql_job_cancel, params, 4, err);

	if (!row)
		return false;
	text_copy(jobs->outcome, sizeof jobs->outcome, pg_value(row, 0, 0));
	jobs->audit_id = pg_int(row, 0, 1);
	return true;
}

static void refuse_outcome(struct api_call *call, const struct job_call *jobs)
{
	if (text_equal(jobs->outcome, "absent"))
		refuse_unknown_job(call, jobs);
	else if (text_equal(jobs->outcome, "elsewhere"))
		api_refuse(call, 409, "not_applicable",
		    "job %s was made in another database cluster, and its snapshot means nothing "
		    "in this copy: make another one",
		    jobs->job);
	else if (text_equal(jobs->outcome, "running"))
		api_refuse(call, 409, "not_applicable", "job %s is open: it need not be resumed",
		    jobs->job);
	else
		api_refuse(call, 409, "not_applicable",
		    "job %s has ended (%s): see GET /v1/jobs/%s", jobs->job, jobs->state,
		    jobs->job);
}

static void run_job_order(struct api_call *call, struct api_worker *worker)
{
	struct job_call *jobs = call->work;
	const char *verb = jobs->resumes ? "resume" : "cancel";
	unsigned role;
	struct err err;

	if (!find_job(call, worker))
		return;
	/* the role that the job itself needs */
	role = text_equal(jobs->kind_word, "skip") ? ROLE_DECIDE : ROLE_OPERATE;
	if (!(call->caller->roles & role))
		return api_refuse_role(call);
	if (!api_worker_change(worker, jobs->postgres, change_job, call, &err))
		return api_refuse_database(call, &err);
	if (!text_equal(jobs->outcome, jobs->resumes ? "resumed" : "cancelled"))
		return refuse_outcome(call, jobs);
	if (jobs->resumes)
		api_wake_jobs(call, jobs->postgres);

	log_info("job_operated", {"verb", LOG_TEXT(verb)}, {"job", LOG_TEXT(jobs->job)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"reason", LOG_TEXT(json_string_value(jobs->reason))},
	    {"audit", LOG_INT(jobs->audit_id)}, {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:s, s:o}", "id", jobs->job, "postgres", jobs->postgres->name,
		"verb", verb, "audit", json_sprintf("%" PRId64, jobs->audit_id)));
}

/* --- the calls ------------------------------------------------------------------------------- */

/* The years 1000 to 9999, which moment_format_exact can write. */
#define FIRST_US INT64_C(-30610224000000000)
#define LAST_US INT64_C(253402300799999999)

/* How ids of jobs begin, and the tables of these jobs as job_cancel.sql names them. */
static const struct job_table {
	const char *begin, *table;
} job_tables[] = {{"parked-", "parked"}, {"replay-", "replay"}, {"redrive-", "redrive"},
    {"verify-", "verification"}};

/* The digits of "parked-7" or "replay-7"; NULL: it is no such id. ret_table NULL is fine. */
static const char *job_digits(const char *word, const char **ret_table)
{
	int64_t id;

	for (size_t i = 0; i < sizeof job_tables / sizeof *job_tables; i++) {
		const char *digits = word + strlen(job_tables[i].begin);

		if (!text_starts(word, job_tables[i].begin))
			continue;
		if (ret_table)
			*ret_table = job_tables[i].table;
		return text_to_int64(digits, 1, INT64_MAX, &id) ? digits : NULL;
	}
	return NULL;
}

static bool read_before(struct api_call *call, struct job_call *jobs)
{
	const char *after = api_argument(call, "after"), *dot = after ? strchr(after, '.') : NULL;
	owned_text char *us = dot ? xformat("%.*s", (int)(dot - after), after) : xstrdup("");
	int64_t at_us;

	text_copy(jobs->before_at, MOMENT_SIZE, "infinity");
	if (!after)
		return true;
	if (dot && text_to_int64(us, FIRST_US, LAST_US, &at_us) && job_digits(dot + 1, NULL)) {
		moment_format_exact(at_us, jobs->before_at);
		jobs->before_job = xstrdup(dot + 1);
		return true;
	}
	api_refuse(call, 400, "bad_value",
	    "after=%.60s is no place in the list: use the value of next as it is", after);
	return false;
}

static bool is_job_kind(const char *kind)
{
	static const char *const kinds[] = {"retry", "skip", "replay", "redrive", "verify"};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (text_equal(kind, kinds[i]))
			return true;
	return false;
}

static bool read_kind(struct api_call *call, struct job_call *jobs)
{
	const char *kind = api_argument(call, "kind"), *open = api_argument(call, "open");

	if (kind && !is_job_kind(kind)) {
		api_refuse(call, 400, "bad_value",
		    "kind=%.40s is none of retry, skip, replay, redrive and verify", kind);
		return false;
	}
	if (open && !text_equal(open, "yes") && !text_equal(open, "no")) {
		api_refuse(call, 400, "bad_value", "open=%.40s is neither yes nor no", open);
		return false;
	}
	jobs->kind = kind ? xstrdup(kind) : NULL;
	jobs->is_open = open ? (text_equal(open, "yes") ? "t" : "f") : NULL;
	return true;
}

/* NULL if the list limits nothing. */
static char *limits_json(const struct config_list *limits)
{
	json_t *list = json_array();
	char *text;

	for (int i = 0; i < limits->count; i++)
		json_array_append_new(list, json_string(limits->items[i]));
	text = limits->count ? json_dumps(list, JSON_COMPACT) : NULL;
	json_decref(list);
	return text;
}

/* With the argument publisher the list has its jobs and no redrives; otherwise the jobs that the
 * token may see. */
static void read_job_limits(struct api_call *call, struct job_call *jobs)
{
	const char *name = api_argument(call, "publisher");
	const struct config_list one = {.items = (char **)&name, .count = 1};

	jobs->publishers = limits_json(name ? &one : &call->caller->token.publishers);
	jobs->sections = name ? xstrdup("[]") : limits_json(&call->caller->token.sections);
}

/* A publisher has one database, so its name is enough. False: refused. */
static bool choose_jobs_database(
    struct api_call *call, struct job_call *jobs, const char *postgres, const char *publisher)
{
	const struct publisher_settings *named =
	    publisher ? api_named_publisher(call, publisher) : NULL;

	if (publisher && !named)
		return false;
	jobs->postgres = postgres || !named ? api_named_postgres(call, postgres) : named->postgres;
	return jobs->postgres != NULL;
}

static struct job_call *make_job_call(struct api_call *call)
{
	struct job_call *jobs = xcalloc(1, sizeof *jobs);

	call->work = jobs;
	jobs->limit = PAGE;
	return jobs;
}

static void begin_job_page(struct api_call *call, const char *kind)
{
	static const char *const names[] = {
	    "postgres", "publisher", "open", "limit", "after", "kind"};
	struct job_call *jobs = make_job_call(call);

	if (!api_arguments_check(call, names, kind ? 5 : 6) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &jobs->limit) ||
	    !read_before(call, jobs) || !read_kind(call, jobs))
		return;
	read_job_limits(call, jobs);
	if (kind)
		jobs->kind = xstrdup(kind);
	if (choose_jobs_database(
		call, jobs, api_argument(call, "postgres"), api_argument(call, "publisher")))
		api_worker_run(call, run_job_page);
}

void api_jobs_begin(struct api_call *call)
{
	begin_job_page(call, NULL);
}

void api_replays_begin(struct api_call *call)
{
	begin_job_page(call, "replay");
}

static bool read_job_name(struct api_call *call, struct job_call *jobs)
{
	if (!job_digits(call->rest, NULL)) {
		api_refuse(call, 404, "not_found",
		    "there is no job %.40s: their ids are like parked-7, replay-7, redrive-7 and "
		    "verify-7; GET /v1/jobs lists them",
		    call->rest);
		return false;
	}

	jobs->job = xstrdup(call->rest);
	jobs->id = job_digits(jobs->job, &jobs->table);
	text_copy(jobs->before_at, MOMENT_SIZE, "infinity");
	return true;
}

void api_job_begin(struct api_call *call)
{
	static const char *const names[] = {"postgres"};
	struct job_call *jobs = make_job_call(call);

	if (!api_arguments_check(call, names, 1) || !read_job_name(call, jobs))
		return;
	jobs->postgres = api_named_postgres(call, api_argument(call, "postgres"));
	if (jobs->postgres)
		api_worker_run(call, run_one_job);
}

static void begin_job_order(struct api_call *call, bool resumes)
{
	struct job_call *jobs = make_job_call(call);
	const struct api_member members[] = {{"postgres", 's', &jobs->postgres_word},
	    {"publisher", 's', &jobs->publisher_word}, {"reason", 's', &jobs->reason}};

	jobs->resumes = resumes;
	if (!api_arguments_check(call, NULL, 0) || !read_job_name(call, jobs))
		return;
	jobs->body = api_read_order(call);
	if (!jobs->body || !api_read_members(call, jobs->body, members, 3) ||
	    !api_check_reason(call, json_string_value(jobs->reason)))
		return;
	if (choose_jobs_database(call, jobs, json_string_value(jobs->postgres_word),
		json_string_value(jobs->publisher_word)))
		api_worker_run(call, run_job_order);
}

void api_job_cancel_begin(struct api_call *call)
{
	begin_job_order(call, false);
}

void api_job_resume_begin(struct api_call *call)
{
	begin_job_order(call, true);
}

void api_jobs_forget(struct api_call *call)
{
	struct job_call *jobs = call->work;

	/* the answer of a page is the call's */
	if (jobs->job)
		json_decref(jobs->answer);
	json_decref(jobs->body);
	free(jobs->before_job);
	free(jobs->kind);
	free(jobs->publishers);
	free(jobs->sections);
	free(jobs->job);
	free(jobs);
}
