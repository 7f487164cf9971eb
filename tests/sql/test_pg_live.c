/*
 * outbox/pg against a living Postgres: TEST_DATABASE_URL, a superuser who is called postgres and
 * needs no password; not through a pooler, since some tests end a session. It leaves nothing
 * behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "clock.h"
#include "copy_binary.h"
#include "logging.h"
#include "pg.h"
#include "text.h"

enum { PATIENCE_MS = 30000 };

static const char *dsn;

/* --- shorthand ----------------------------------------------------------------------------- */

static void assert_says(const struct err *err, const char *words)
{
	if (!strstr(err->message, words))
		fail_msg("\"%s\" does not say \"%s\"", err->message, words);
}

static struct pg *connected(const char *application)
{
	struct err err = {0};
	struct pg *pg = pg_connect(dsn, application, PATIENCE_MS, &err);
	if (!pg)
		fail_msg("%s", err.message);
	return pg;
}

static void run(struct pg *pg, const char *script)
{
	struct err err = {0};
	if (!pg_script(pg, script, &err))
		fail_msg("%s: %s", script, err.message);
}

static int64_t ask(struct pg *pg, const char *sql)
{
	struct err err = {0};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = pg_query(pg, sql, NULL, 0, &err);
	if (!result)
		fail_msg("%s: %s", sql, err.message);
	assert_int_equal(pg_rows(result), 1);
	return pg_int(result, 0, 0);
}

static void wait_until(struct pg *pg, const char *condition)
{
	int64_t end = clock_ms() + PATIENCE_MS;
	while (!ask(pg, condition)) {
		if (clock_ms() > end)
			fail_msg("never true: %s", condition);
		usleep(10000);
	}
}

static void fails(struct pg *pg, const char *script, enum err_kind kind, const char *sqlstate)
{
	struct err err = {0};
	assert_false(pg_script(pg, script, &err));
	if (err.kind != kind || strcmp(pg_sqlstate(pg), sqlstate) != 0)
		fail_msg("%s: %s", script, err.message);
	assert_int_equal(pg_state(pg), PG_IDLE);
}

static void wait_for(struct pg *pg)
{
	struct pollfd wanted = {.fd = pg_fd(pg), .events = pg_events(pg)};
	if (wanted.fd >= 0 && poll(&wanted, 1, PATIENCE_MS) == 0)
		fail_msg("waited in vain for %d", wanted.events);
}

/* Drives pg_send's answer to its end. */
static bool receive(struct pg *pg, struct pg_result **ret_result, struct err *err)
{
	bool done = false;
	*ret_result = NULL;
	for (;;) {
		if (!pg_receive(pg, &done, ret_result, err)) {
			assert_true(done);
			assert_null(*ret_result);
			return false;
		}
		if (done)
			return true;
		assert_int_equal(pg_state(pg), PG_BUSY);
		wait_for(pg);
		if (!pg_step(pg, err))
			return false;
	}
}

/* The next row of a COPY; NULL at its end or with *ret_failed. */
static char *next_row(struct pg *pg, int *ret_length, bool *ret_failed, struct err *err)
{
	enum pg_copy what;
	char *row;
	*ret_failed = false;
	for (;;) {
		if (!pg_copy_next(pg, &what, &row, ret_length, err))
			break;
		if (what != PG_COPY_WAIT)
			return row;
		wait_for(pg);
		if (!pg_step(pg, err))
			break;
	}
	*ret_failed = true;
	return NULL;
}

/* Takes the messages up to the end or the failure; each row has one text field. */
static int64_t copy_rest(
    struct pg *pg, bool first, int64_t *ret_bytes, bool *ret_failed, struct err *err)
{
	int64_t messages = 0;
	int length;
	char *row;
	*ret_bytes = 0;
	while ((row = next_row(pg, &length, ret_failed, err))) {
		struct copy_field field;
		enum copy_kind kind;
		assert_true(copy_parse(row, length, first, &field, 1, &kind, err));
		if (kind == COPY_ROW)
			*ret_bytes += field.length;
		pg_free_row(row);
		first = false;
		messages++;
	}
	return messages;
}

static int64_t copy_all(struct pg *pg, int64_t *ret_bytes, bool *ret_failed, struct err *err)
{
	return copy_rest(pg, true, ret_bytes, ret_failed, err);
}

static void start_copy(struct pg *pg, const char *script)
{
	struct err err = {0};
	if (!pg_send_copy(pg, script, &err))
		fail_msg("%s: %s", script, err.message);
	assert_int_equal(pg_state(pg), PG_BUSY);
}

static int64_t resident_kib(void)
{
	OWNED(cleanup_fclose) FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static char *backend_sql(const char *format, int64_t pid)
{
	char text[20] = {0};
	text_write_int64(text, pid);
	return xformat(format, text);
}

/* --- connecting ---------------------------------------------------------------------------- */

static void a_session_is_named_and_speaks_utf8(void **state)
{
	(void)state;
	setenv("PGCLIENTENCODING", "LATIN1", 1);
	struct pg *pg = connected("outbox-relay main/0");
	unsetenv("PGCLIENTENCODING");
	assert_int_equal(pg_state(pg), PG_IDLE);
	assert_true(pg_fd(pg) >= 0);
	assert_true(pg_server_version(pg) > 120000);
	assert_non_null(strchr(pg_place(pg), '/'));
	assert_true(ask(pg, "SELECT (current_setting('application_name') = 'outbox-relay main/0' "
			    "AND current_setting('client_encoding') = 'UTF8')::int"));
	pg_destroy(pg);
}

/* A dsn of key words for the same server, from "host:port/db". */
static char *same_server(const char *hosts, const char *ports, const char *rest)
{
	OWNED(owned_pg_destroy) struct pg *pg = connected("test");
	OWNED(cleanup_free) char *host = xstrdup(pg_place(pg));
	*strrchr(host, '/') = '\0';
	char *colon = strrchr(host, ':');
	*colon = '\0';
	char *bare = host;
	if (*bare == '[') {
		bare++;
		colon[-1] = '\0';
	}
	return xformat("host=%s%s port=%s%s %s", hosts, bare, ports, colon + 1, rest);
}

static void a_dead_host_is_passed_over(void **state)
{
	(void)state;
	struct err err = {0};
	OWNED(cleanup_free)
	char *several = same_server(
	    "127.0.0.1,", "1,", "user=postgres dbname=postgres target_session_attrs=read-write");
	struct pg *pg = pg_connect(several, "test", PATIENCE_MS, &err);
	if (!pg)
		fail_msg("%s", err.message);
	assert_int_equal(ask(pg, "SELECT 7"), 7);
	pg_destroy(pg);
}

static void an_unknown_database_or_role_is_named(void **state)
{
	(void)state;
	struct err err = {0};
	OWNED(cleanup_free)
	char *database = same_server("", "", "user=postgres dbname=no_such_database");
	assert_null(pg_connect(database, "test", PATIENCE_MS, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_says(&err, "\"no_such_database\" does not exist (SQLSTATE 3D000); create");
	OWNED(cleanup_free)
	char *role = same_server("", "", "user=no_such_role dbname=postgres");
	assert_null(pg_connect(role, "test", PATIENCE_MS, &err));
	assert_int_equal(err.kind, ERR_DENIED);
	assert_says(&err, "no_such_role");
}

static void the_dsn_may_name_the_session(void **state)
{
	(void)state;
	struct err err = {0};
	OWNED(cleanup_free)
	char *named = same_server("", "", "user=postgres dbname=postgres application_name=mine");
	struct pg *pg = pg_connect(named, "test", PATIENCE_MS, &err);
	assert_non_null(pg);
	assert_true(ask(pg, "SELECT (current_setting('application_name') = 'mine')::int"));
	pg_destroy(pg);
}

/* --- statements ---------------------------------------------------------------------------- */

static void a_query_takes_and_gives_text(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	const struct pg_param params[] = {{"-42"}, {NULL}, {"it's"}};
	struct pg_result *result =
	    pg_query(pg, "SELECT $1::bigint, $2::text, $3::text", params, 3, &err);
	assert_non_null(result);
	assert_int_equal(pg_rows(result), 1);
	assert_int_equal(pg_int(result, 0, 0), -42);
	assert_true(pg_is_null(result, 0, 1));
	assert_int_equal(pg_int(result, 0, 1), 0);
	assert_string_equal(pg_value(result, 0, 2), "it's");
	assert_int_equal(pg_length(result, 0, 2), 4);
	pg_result_destroy(result);
	result = pg_query(pg, "SELECT 1 WHERE false", NULL, 0, &err);
	assert_non_null(result);
	assert_int_equal(pg_rows(result), 0);
	pg_result_destroy(result);
	assert_true(pg_execute(pg, "SELECT 1", NULL, 0, &err));
	assert_true(pg_execute(pg, "", NULL, 0, &err));
	pg_destroy(pg);
}

static void a_sent_query_answers_in_binary(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	struct pg_result *result;
	const struct pg_param params[] = {{"258"}};
	assert_true(
	    pg_send(pg, "SELECT $1::bigint, NULL::int FROM pg_sleep(0.1)", params, 1, &err));
	assert_int_equal(pg_state(pg), PG_BUSY);
	assert_true(receive(pg, &result, &err));
	assert_int_equal(pg_state(pg), PG_IDLE);
	assert_int_equal(pg_length(result, 0, 0), 8);
	assert_int_equal(copy_int64(pg_value(result, 0, 0)), 258);
	assert_true(pg_is_null(result, 0, 1));
	pg_result_destroy(result);
	assert_true(pg_send(pg, "SELECT 1/0", NULL, 0, &err));
	assert_false(receive(pg, &result, &err));
	assert_int_equal(err.kind, ERR_FATAL);
	assert_string_equal(pg_sqlstate(pg), "22012");
	assert_int_equal(pg_state(pg), PG_IDLE);
	assert_true(pg_send(pg, "SELECT 1", NULL, 0, &err));
	assert_string_equal(pg_sqlstate(pg), "");
	assert_true(receive(pg, &result, &err));
	pg_result_destroy(result);
	pg_destroy(pg);
}

static void a_script_answers_later_with_its_last_statement(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	struct pg_result *result;
	assert_true(pg_send_script(
	    pg, "BEGIN READ ONLY; SET LOCAL statement_timeout = 1234; SELECT 1, 'last'", &err));
	assert_int_equal(pg_state(pg), PG_BUSY);
	assert_true(receive(pg, &result, &err));
	assert_string_equal(pg_value(result, 0, 1), "last");
	pg_result_destroy(result);
	assert_true(ask(pg, "SELECT (current_setting('statement_timeout') = '1234ms')::int"));
	assert_true(pg_send_script(pg, "CREATE TABLE none (); SELECT 1", &err));
	assert_false(receive(pg, &result, &err));
	assert_string_equal(pg_sqlstate(pg), "25006");
	assert_int_equal(pg_state(pg), PG_IDLE);
	run(pg, "ROLLBACK");
	pg_destroy(pg);
}

static void a_parameter_may_be_larger_than_every_buffer(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	struct pg_result *result;
	const size_t size = 30 << 20;
	OWNED(cleanup_free) char *large = xmalloc(size + 1);
	memset(large, 'x', size);
	large[size] = '\0';
	const struct pg_param params[] = {{large}};
	assert_true(pg_send(pg, "SELECT length($1)::bigint, $1::text", params, 1, &err));
	assert_true(receive(pg, &result, &err));
	assert_int_equal(copy_int64(pg_value(result, 0, 0)), size);
	assert_int_equal(pg_length(result, 0, 1), size);
	pg_result_destroy(result);
	pg_destroy(pg);
}

static void a_script_is_one_transaction_that_stops_at_its_first_error(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	run(pg, "SELECT 1; SELECT 2; CREATE SCHEMA live; SELECT 3");
	fails(pg, "CREATE TABLE live.a (); SELECT 1/0; CREATE TABLE live.b ()", ERR_FATAL, "22012");
	assert_true(ask(pg, "SELECT (to_regclass('live.a') IS NULL AND "
			    "to_regclass('live.b') IS NULL)::int"));
	run(pg, "DROP SCHEMA live");
	run(pg, "");
	pg_destroy(pg);
}

static void a_copy_in_a_script_is_refused(void **state)
{
	(void)state;
	static const char *const scripts[] = {
	    "CREATE SCHEMA live; CREATE TABLE live.t (a int); COPY live.t FROM STDIN",
	    "CREATE SCHEMA live; COPY (SELECT generate_series(1, 1000000)) TO STDOUT",
	};
	struct pg *observer = connected("observer");
	for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
		struct pg *pg = connected("test");
		struct err err = {0};
		assert_false(pg_script(pg, scripts[i], &err));
		assert_int_equal(err.kind, ERR_FATAL);
		assert_int_equal(pg_state(pg), PG_LOST);
		pg_destroy(pg);
		wait_until(observer, "SELECT (to_regnamespace('live') IS NULL)::int");
	}
	pg_destroy(observer);
}

/* --- errors -------------------------------------------------------------------------------- */

static void the_server_refuses_with_a_kind(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	fails(pg, "SELECT FROM no_such_schema.t", ERR_CONFIG, "42P01");
	fails(pg, "CREATE TABLE no_such_schema.t ()", ERR_CONFIG, "3F000");
	fails(pg, "SELECT no_such_function()", ERR_CONFIG, "42883");
	fails(pg, "SELECT no_such_column FROM pg_class", ERR_CONFIG, "42703");
	fails(pg, "SELECT FROM", ERR_FATAL, "42601");
	fails(pg, "SET LOCAL ROLE pg_monitor; SELECT FROM pg_authid", ERR_DENIED, "42501");
	fails(pg, "SET LOCAL statement_timeout = 50; SELECT pg_sleep(5)", ERR_RETRY, "57014");
	fails(pg, "SET TRANSACTION READ ONLY; CREATE TABLE t ()", ERR_RETRY, "25006");
	pg_destroy(pg);
}

static void a_violated_key_is_a_fence_and_rows_are_not_quoted(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	run(pg, "CREATE SCHEMA live; CREATE TABLE live.t (a text PRIMARY KEY, "
		"CONSTRAINT a_is_short CHECK (length(a) < 9)); "
		"INSERT INTO live.t VALUES ('private')");
	assert_false(pg_script(pg, "INSERT INTO live.t VALUES ('private')", &err));
	assert_int_equal(err.kind, ERR_FENCED);
	assert_null(strstr(err.message, "private"));
	assert_false(pg_script(pg, "INSERT INTO live.t VALUES ('private and long')", &err));
	assert_int_equal(err.kind, ERR_FATAL);
	assert_says(&err, "a_is_short");
	assert_null(strstr(err.message, "private"));
	run(pg, "DROP SCHEMA live CASCADE");
	pg_destroy(pg);
}

static void conflicts_are_worth_a_retry(void **state)
{
	(void)state;
	struct pg *a = connected("test"), *b = connected("test");
	struct pg_result *result;
	struct err err = {0};
	run(a, "CREATE SCHEMA live; CREATE TABLE live.t (a int); "
	       "INSERT INTO live.t VALUES (1)");
	run(a, "BEGIN; LOCK TABLE live.t");
	fails(b, "SET LOCAL lock_timeout = 50; LOCK TABLE live.t", ERR_RETRY, "55P03");
	run(a, "COMMIT");

	run(a, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM live.t");
	run(b, "UPDATE live.t SET a = 2");
	fails(a, "UPDATE live.t SET a = 3", ERR_RETRY, "40001");
	run(a, "ROLLBACK");

	run(a, "BEGIN; SET LOCAL deadlock_timeout = '100s'; SELECT pg_advisory_xact_lock(1)");
	run(b, "BEGIN; SET LOCAL deadlock_timeout = '50ms'; SELECT pg_advisory_xact_lock(2)");
	assert_true(pg_send(a, "SELECT pg_advisory_xact_lock(2)", NULL, 0, &err));
	fails(b, "SELECT pg_advisory_xact_lock(1)", ERR_RETRY, "40P01");
	run(b, "ROLLBACK");
	assert_true(receive(a, &result, &err));
	pg_result_destroy(result);
	run(a, "ROLLBACK; DROP SCHEMA live CASCADE");
	pg_destroy(a);
	pg_destroy(b);
}

static void a_notice_is_not_written_to_stderr(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	char written[512] = {0};
	int saved = dup(STDERR_FILENO);
	OWNED(cleanup_fclose) FILE *file = tmpfile();
	assert_non_null(file);
	assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
	run(pg, "DO $$ BEGIN RAISE WARNING 'quiet'; END $$");
	log_configure(LOG_LEVEL_DEBUG, LOG_LOGFMT);
	run(pg, "DO $$ BEGIN RAISE NOTICE 'loud'; END $$");
	log_configure(LOG_LEVEL_INFO, LOG_LOGFMT);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	rewind(file);
	(void)!fread(written, 1, sizeof written - 1, file);
	assert_null(strstr(written, "quiet"));
	assert_non_null(strstr(written, "event=postgres_notice"));
	assert_non_null(strstr(written, "loud"));
	pg_destroy(pg);
}

/* --- the end of a connection --------------------------------------------------------------- */

static void terminate(struct pg *observer, int64_t pid)
{
	OWNED(cleanup_free)
	char *sql = backend_sql("SELECT pg_terminate_backend(%s)::int", pid);
	OWNED(cleanup_free)
	char *gone =
	    backend_sql("SELECT (count(*) = 0)::int FROM pg_stat_activity WHERE pid = %s", pid);
	assert_true(ask(observer, sql));
	wait_until(observer, gone);
}

static void assert_lost_by_administrator(struct pg *pg, const struct err *err)
{
	assert_int_equal(pg_state(pg), PG_LOST);
	assert_int_equal(err->kind, ERR_RETRY);
	assert_says(err, "administrator command (SQLSTATE 57P01)");
	assert_string_equal(pg_sqlstate(pg), "57P01");
}

static void the_end_of_an_idle_session_is_noticed_by_a_step(void **state)
{
	(void)state;
	struct pg *pg = connected("test"), *observer = connected("observer");
	struct err err = {0};
	assert_true(pg_step(pg, &err));
	terminate(observer, ask(pg, "SELECT pg_backend_pid()"));
	wait_for(pg);
	assert_false(pg_step(pg, &err));
	assert_lost_by_administrator(pg, &err);
	assert_false(pg_send(pg, "SELECT 1", NULL, 0, &err));
	assert_false(pg_cancel(pg, &err));
	pg_destroy(pg);
	pg_destroy(observer);
}

static void the_end_of_an_idle_session_is_noticed_by_a_query(void **state)
{
	(void)state;
	struct pg *pg = connected("test"), *observer = connected("observer");
	struct err err = {0};
	terminate(observer, ask(pg, "SELECT pg_backend_pid()"));
	assert_null(pg_query(pg, "SELECT 1", NULL, 0, &err));
	assert_lost_by_administrator(pg, &err);
	pg_destroy(pg);
	pg_destroy(observer);
}

static void an_interrupted_thread_cancels_what_takes_long(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	int interrupt = eventfd(1, EFD_NONBLOCK);
	int64_t begin = clock_ms();
	pg_interrupt_by(interrupt);
	assert_int_equal(ask(pg, "SELECT 1"), 1);
	assert_null(pg_query(pg, "SELECT pg_sleep(60)", NULL, 0, &err));
	pg_interrupt_by(-1);
	assert_true(clock_ms() - begin < PATIENCE_MS);
	assert_string_equal(pg_sqlstate(pg), "57014");
	assert_int_equal(ask(pg, "SELECT 1"), 1);
	close(interrupt);
	pg_destroy(pg);
}

static void the_end_of_a_busy_session_says_why(void **state)
{
	(void)state;
	struct pg *pg = connected("test"), *observer = connected("observer");
	struct err err = {0};
	struct pg_result *result;
	int64_t pid = ask(pg, "SELECT pg_backend_pid()");
	assert_true(pg_send(pg, "SELECT pg_sleep(60)", NULL, 0, &err));
	OWNED(cleanup_free)
	char *sleeps = backend_sql(
	    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = %s", pid);
	wait_until(observer, sleeps);
	terminate(observer, pid);
	assert_false(receive(pg, &result, &err));
	assert_lost_by_administrator(pg, &err);
	pg_destroy(pg);
	pg_destroy(observer);
}

/* --- COPY ---------------------------------------------------------------------------------- */

static void a_copy_gives_every_row_once_and_in_order(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	const int64_t rows = 300000;
	int64_t messages = 0;
	int length;
	bool failed;
	char *row;
	start_copy(pg, "SET LOCAL work_mem = '1MB'; SELECT FROM pg_class WHERE false; "
		       "COPY (SELECT i, repeat('x', (i % 700)::int), NULL::int "
		       "FROM generate_series(1, 300000::bigint) i) TO STDOUT (FORMAT binary)");
	while ((row = next_row(pg, &length, &failed, &err))) {
		struct copy_field fields[3];
		enum copy_kind kind;
		assert_true(copy_parse(row, length, messages++ == 0, fields, 3, &kind, &err));
		assert_int_equal(kind, messages > rows ? COPY_TRAILER : COPY_ROW);
		if (kind == COPY_ROW) {
			assert_true(copy_int64(fields[0].data) == messages);
			assert_true(fields[1].length == messages % 700);
			assert_null(fields[2].data);
		}
		pg_free_row(row);
	}
	assert_false(failed);
	assert_true(messages == rows + 1);
	assert_int_equal(pg_state(pg), PG_IDLE);
	assert_int_equal(ask(pg, "SELECT 5"), 5);
	pg_destroy(pg);
}

static void a_copy_may_be_empty_or_have_huge_rows(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	int64_t bytes;
	bool failed;
	start_copy(pg, "COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)");
	assert_int_equal(copy_all(pg, &bytes, &failed, &err), 1);
	assert_false(failed);
	start_copy(pg, "COPY (SELECT repeat('x', 5000000 + i) FROM generate_series(1, 10) i) "
		       "TO STDOUT (FORMAT binary)");
	assert_int_equal(copy_all(pg, &bytes, &failed, &err), 11);
	assert_int_equal(bytes, 50000055);
	assert_false(failed);
	start_copy(pg, "COPY (SELECT repeat('x', i * 37) FROM generate_series(1, 3000) i) "
		       "TO STDOUT (FORMAT binary)");
	assert_int_equal(copy_all(pg, &bytes, &failed, &err), 3001);
	assert_int_equal(bytes, 37LL * 3000 * 3001 / 2);
	pg_destroy(pg);
}

static void a_copy_that_fails_leaves_the_connection_usable(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	struct err err = {0};
	int64_t bytes;
	bool failed;
	start_copy(pg, "COPY (SELECT FROM no_such_table) TO STDOUT (FORMAT binary)");
	assert_int_equal(copy_all(pg, &bytes, &failed, &err), 0);
	assert_true(failed);
	assert_int_equal(err.kind, ERR_CONFIG);
	start_copy(pg, "COPY (SELECT 1 / (100000 - i) FROM generate_series(1, 200000) i) "
		       "TO STDOUT (FORMAT binary)");
	assert_int_equal(copy_all(pg, &bytes, &failed, &err), 99999);
	assert_true(failed);
	assert_string_equal(pg_sqlstate(pg), "22012");
	start_copy(pg, "SELECT 1");
	assert_int_equal(copy_all(pg, &bytes, &failed, &err), 0);
	assert_true(failed);
	assert_says(&err, "no COPY");
	assert_int_equal(pg_state(pg), PG_IDLE);
	assert_int_equal(ask(pg, "SELECT 5"), 5);
	pg_destroy(pg);
}

static const char endless[] =
    "COPY (SELECT repeat('x', 1000) FROM (SELECT generate_series(1, 100000000)) AS streamed) "
    "TO STDOUT (FORMAT binary)";

static void take_rows(struct pg *pg, int count)
{
	struct err err = {0};
	int length;
	bool failed;
	for (int i = 0; i < count; i++) {
		char *row = next_row(pg, &length, &failed, &err);
		assert_non_null(row);
		pg_free_row(row);
	}
}

static void a_caller_who_takes_no_rows_holds_back_the_server(void **state)
{
	(void)state;
	struct pg *pg = connected("test"), *observer = connected("observer");
	struct err err = {0};
	int64_t bytes, pid = ask(pg, "SELECT pg_backend_pid()");
	bool failed;
	OWNED(cleanup_free)
	char *blocked = backend_sql(
	    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND pid = %s",
	    pid);
	start_copy(pg, endless);
	take_rows(pg, 1000);
	wait_until(observer, blocked);
	int64_t before = resident_kib();
	for (int i = 0; i < 1000; i++)
		assert_true(pg_step(pg, &err));
	assert_int_equal(pg_events(pg) & POLLIN, 0);
	assert_true(resident_kib() - before < 1024);
	take_rows(pg, 10000);
	wait_until(observer, blocked);
	assert_true(pg_cancel(pg, &err));
	copy_rest(pg, false, &bytes, &failed, &err);
	assert_true(failed);
	assert_int_equal(err.kind, ERR_RETRY);
	assert_string_equal(pg_sqlstate(pg), "57014");
	assert_int_equal(pg_state(pg), PG_IDLE);
	pg_destroy(pg);
	pg_destroy(observer);
}

static void a_copy_whose_session_ends_says_why(void **state)
{
	(void)state;
	struct pg *pg = connected("test"), *observer = connected("observer");
	struct err err = {0};
	int64_t pid = ask(pg, "SELECT pg_backend_pid()"), bytes;
	bool failed;
	OWNED(cleanup_free)
	char *end = backend_sql("SELECT pg_terminate_backend(%s)::int", pid);
	start_copy(pg,
	    "COPY (SELECT repeat('x', 9000) || pg_sleep(0.01) FROM generate_series(1, 100000)) "
	    "TO STDOUT (FORMAT binary)");
	take_rows(pg, 3);
	assert_true(ask(observer, end));
	copy_rest(pg, false, &bytes, &failed, &err);
	assert_true(failed);
	assert_lost_by_administrator(pg, &err);
	int length;
	enum pg_copy what;
	char *row;
	assert_false(pg_copy_next(pg, &what, &row, &length, &err));
	pg_destroy(pg);
	pg_destroy(observer);
}

static void an_unfinished_copy_may_be_thrown_away(void **state)
{
	(void)state;
	struct pg *pg = connected("test");
	start_copy(pg, endless);
	take_rows(pg, 10);
	pg_destroy(pg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_session_is_named_and_speaks_utf8),
	    cmocka_unit_test(a_dead_host_is_passed_over),
	    cmocka_unit_test(an_unknown_database_or_role_is_named),
	    cmocka_unit_test(the_dsn_may_name_the_session),
	    cmocka_unit_test(a_query_takes_and_gives_text),
	    cmocka_unit_test(a_sent_query_answers_in_binary),
	    cmocka_unit_test(a_script_answers_later_with_its_last_statement),
	    cmocka_unit_test(a_parameter_may_be_larger_than_every_buffer),
	    cmocka_unit_test(a_script_is_one_transaction_that_stops_at_its_first_error),
	    cmocka_unit_test(a_copy_in_a_script_is_refused),
	    cmocka_unit_test(the_server_refuses_with_a_kind),
	    cmocka_unit_test(a_violated_key_is_a_fence_and_rows_are_not_quoted),
	    cmocka_unit_test(conflicts_are_worth_a_retry),
	    cmocka_unit_test(a_notice_is_not_written_to_stderr),
	    cmocka_unit_test(the_end_of_an_idle_session_is_noticed_by_a_step),
	    cmocka_unit_test(the_end_of_an_idle_session_is_noticed_by_a_query),
	    cmocka_unit_test(an_interrupted_thread_cancels_what_takes_long),
	    cmocka_unit_test(the_end_of_a_busy_session_says_why),
	    cmocka_unit_test(a_copy_gives_every_row_once_and_in_order),
	    cmocka_unit_test(a_copy_may_be_empty_or_have_huge_rows),
	    cmocka_unit_test(a_copy_that_fails_leaves_the_connection_usable),
	    cmocka_unit_test(a_caller_who_takes_no_rows_holds_back_the_server),
	    cmocka_unit_test(a_copy_whose_session_ends_says_why),
	    cmocka_unit_test(an_unfinished_copy_may_be_thrown_away),
	};
	dsn = getenv("TEST_DATABASE_URL");
	if (!dsn) {
		fprintf(stderr, "test_pg_live: TEST_DATABASE_URL is not set\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
