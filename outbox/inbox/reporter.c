/*
 * The thread that reports handled messages for the loop. The loop appends ids to `waiting`; the
 * thread takes all of them, calls outbox.unique_done with at most a batch of them at a time, and
 * counts what the server has committed. If a call fails, it keeps the ids, tells the loop, and
 * tries again after a pause. Read run_reporter.
 */
#include "reporter.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "hex.h"
#include "pg_column.h"
#include "postgres_session.h"
#include "report_spec.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

enum {
	REPORTED_MOST = 1000, /* ids in one request */
	REPORT_AGAIN_MS = 500,
};

struct reporter {
	int wake_fd;
	pthread_t thread;
	bool runs;
	/* only for the thread */
	char *schema, *sql; /* sql: with the schema's name inserted */
	struct postgres_session server;
	struct pg_column ids;

	pthread_mutex_t mutex;  /* protects the members below; never held during a request */
	pthread_cond_t work;    /* of the thread */
	pthread_cond_t outcome; /* a request has ended */
	struct text waiting;    /* ids to report, UUID_BYTES each */
	uint64_t added, reported;
	uint64_t failures;
	bool failed, over;
	struct err err; /* of the last failure */
};

/* --- the thread ------------------------------------------------------------------------------ */

/* Called with the mutex. Returns early at times. */
static void wait_at_most(pthread_cond_t *condition, struct reporter *reporter, int64_t ms)
{
	const struct timespec until = clock_until(ms);
	(void)pthread_cond_timedwait(condition, &reporter->mutex, &until);
}

/* Called with the mutex. False: the reporter ends. */
static bool wait_for_reports(struct reporter *reporter, bool well)
{
	int64_t again = clock_ms() + REPORT_AGAIN_MS;
	while (!well && !reporter->over && clock_ms() < again)
		wait_at_most(&reporter->work, reporter, again - clock_ms());
	/* after a failure one request follows also for no id: it finds out whether all is well */
	while (well && !reporter->over && reporter->waiting.length == 0)
		pthread_cond_wait(&reporter->work, &reporter->mutex);
	return !reporter->over;
}

/* Called with the mutex. Returns the number of ids for the next request. */
static size_t fill_reported(struct reporter *reporter)
{
	size_t count = reporter->waiting.length / UUID_BYTES;
	count = count < REPORTED_MOST ? count : REPORTED_MOST;
	pg_column_clear(&reporter->ids);
	for (size_t i = 0; i < count; i++)
		pg_column_add_bytes(
		    &reporter->ids, reporter->waiting.data + i * UUID_BYTES, UUID_BYTES);
	return count;
}

/* The usual advice is the doctor, which does not know this dsn. */
static void name_missing_role(const struct reporter *reporter, struct err *err)
{
	owned_text char *problem = xstrdup(err->message);
	char *advice = strstr(problem, "; ");
	if (advice)
		*advice = '\0';
	err_set(err, ERR_DENIED, "%s; grant the role %s_consumer to this login", problem,
	    reporter->schema);
}

static bool send_reports(struct reporter *reporter, struct err *err)
{
	const struct pg_param params[] = {pg_column_param(&reporter->ids)};
	char sqlstate[6];

	fault_point("inbox_to_report");
	struct pg_result *answer =
	    postgres_session_ask(&reporter->server, reporter->sql, params, 1, sqlstate, err);
	pg_result_destroy(answer);
	fault_point("inbox_reported");

	if (!answer && text_equal(sqlstate, "42501"))
		name_missing_role(reporter, err);
	return answer;
}

/* Called with the mutex. */
static void note_reports(struct reporter *reporter, size_t count)
{
	size_t bytes = count * UUID_BYTES;
	if (count == 0)
		return;
	reporter->waiting.length -= bytes;
	memmove(reporter->waiting.data, reporter->waiting.data + bytes, reporter->waiting.length);
	reporter->reported += count;
}

/* The first request has no id: it finds a wrong dsn, a missing grant or an old schema at once. */
static void *run_reporter(void *context)
{
	struct reporter *reporter = context;
	bool well;

	pthread_setname_np(pthread_self(), "inbox-reporter");
	pthread_mutex_lock(&reporter->mutex);
	do {
		struct err err;
		size_t count = fill_reported(reporter);
		pthread_mutex_unlock(&reporter->mutex);
		well = send_reports(reporter, &err);
		pthread_mutex_lock(&reporter->mutex);

		if (well)
			note_reports(reporter, count);
		else {
			reporter->failures++;
			reporter->failed = true;
			reporter->err = err;
		}
		pthread_cond_broadcast(&reporter->outcome);
		(void)!write(reporter->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
	} while (wait_for_reports(reporter, well));
	pthread_mutex_unlock(&reporter->mutex);
	return NULL;
}

/* --- the loop's side ------------------------------------------------------------------------- */

uint64_t reporter_add(struct reporter *reporter, const char *ids, size_t count)
{
	pthread_mutex_lock(&reporter->mutex);
	if (count > 0)
		text_append(&reporter->waiting, ids, count * UUID_BYTES);
	reporter->added += count;
	uint64_t added = reporter->added;
	pthread_cond_signal(&reporter->work);
	pthread_mutex_unlock(&reporter->mutex);
	return added;
}

uint64_t reporter_reported(struct reporter *reporter)
{
	pthread_mutex_lock(&reporter->mutex);
	uint64_t reported = reporter->reported;
	pthread_mutex_unlock(&reporter->mutex);
	return reported;
}

bool reporter_failed(struct reporter *reporter, struct err *ret_err)
{
	pthread_mutex_lock(&reporter->mutex);
	bool failed = reporter->failed;
	reporter->failed = false;
	if (failed)
		*ret_err = reporter->err;
	pthread_mutex_unlock(&reporter->mutex);
	return failed;
}

bool reporter_wait(struct reporter *reporter, uint64_t mark, int64_t until_ms)
{
	pthread_mutex_lock(&reporter->mutex);
	uint64_t failures = reporter->failures;
	int64_t left;
	while (reporter->reported < mark && reporter->failures == failures &&
	       (left = until_ms - clock_ms()) > 0)
		wait_at_most(&reporter->outcome, reporter, left);
	bool reported = reporter->reported >= mark;
	pthread_mutex_unlock(&reporter->mutex);
	return reported;
}

/* --- life ------------------------------------------------------------------------------------ */

static void init_reporter_locks(struct reporter *reporter)
{
	pthread_mutex_init(&reporter->mutex, NULL);
	clock_cond_init(&reporter->work);
	clock_cond_init(&reporter->outcome);
}

static bool start_reporter(struct reporter *reporter, const char *line, struct err *err)
{
	OWNED(report_spec_finish) struct report_spec spec = {0};
	if (!report_spec_parse(line, &spec, err))
		return false;
	reporter->schema = xstrdup(spec.schema ? spec.schema : "outbox");
	reporter->sql = schema_text(sql_unique_done, reporter->schema);
	postgres_session_init(
	    &reporter->server, spec.dsn, (int)spec.timeout_ms, POSTGRES_SESSION_ANY);
	reporter->runs = pthread_create(&reporter->thread, NULL, run_reporter, reporter) == 0;
	return reporter->runs || err_set(err, ERR_RETRY, "no thread for the reports of an inbox");
}

struct reporter *reporter_create(const char *line, int wake_fd, struct err *err)
{
	struct reporter *reporter = xcalloc(1, sizeof *reporter);
	reporter->wake_fd = wake_fd;
	reporter->ids.type = PG_COLUMN_UUID;
	init_reporter_locks(reporter);
	if (start_reporter(reporter, line, err))
		return reporter;
	reporter_destroy(reporter);
	return NULL;
}

void reporter_destroy(struct reporter *reporter)
{
	if (!reporter)
		return;
	pthread_mutex_lock(&reporter->mutex);
	reporter->over = true;
	pthread_cond_signal(&reporter->work);
	pthread_mutex_unlock(&reporter->mutex);
	if (reporter->runs)
		pthread_join(reporter->thread, NULL);

	postgres_session_finish(&reporter->server);
	pg_column_finish(&reporter->ids);
	text_finish(&reporter->waiting);
	free(reporter->schema);
	free(reporter->sql);
	pthread_cond_destroy(&reporter->work);
	pthread_cond_destroy(&reporter->outcome);
	pthread_mutex_destroy(&reporter->mutex);
	free(reporter);
}
