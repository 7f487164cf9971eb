#pragma once
/* Lists of jobs, the newest first, for commands and the API. */
#include <jansson.h>
#include "config.h"
#include "pg.h"

/* Columns of job_page.sql. */
enum {
	JOB_ID,
	JOB_KIND,
	JOB_PUBLISHER,
	JOB_SECTION,
	JOB_WHO,
	JOB_CALLER,
	JOB_REASON,
	JOB_BEGUN_AT,
	JOB_NOTED_AT,
	JOB_ENDED_AT,
	JOB_STATE,
	JOB_DONE,
	JOB_TOTAL,
	JOB_EXACT,
	JOB_CHANGED,
	JOB_PUBLISHED,
	JOB_REFUSED,
	JOB_ERROR,
	JOB_PER_SECOND,
	JOB_SECONDS_LEFT,
	JOB_FILTER,
	JOB_TARGET,
	JOB_RATE,
	JOB_OWNER,
	JOB_AT_US,
	JOB_CLEAN,
	JOB_RESULT
};

/* Which jobs. A word that is NULL selects all. */
struct job_list {
	const char *before_at, *before_job; /* those behind this job */
	int64_t most;
	const char *job, *kind;
	const char *publishers, *sections; /* JSON arrays of names */
	const char *is_open;               /* "t" or "f" */
};

struct pg_result *job_list_query(struct pg *pg, const struct postgres_settings *postgres,
    const struct job_list *list, struct err *err) MUST_CHECK;
/* A row, without its result. */
json_t *job_list_row(const struct pg_result *rows, int i);
