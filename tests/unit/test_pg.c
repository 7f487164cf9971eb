/* What can be seen without Postgres: a listener of our own plays the server that refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "clock.h"
#include "failure.h"
#include "pg.h"

static void assert_says(const struct err *err, const char *words)
{
	if (!strstr(err->message, words))
		fail_msg("\"%s\" does not say \"%s\"", err->message, words);
}

static void assert_hides(const struct err *err, const char *words)
{
	if (strstr(err->message, words))
		fail_msg("\"%s\" shows \"%s\"", err->message, words);
}

/* --- a server that says one thing ---------------------------------------------------------- */

struct fake_server {
	int fd, port;
	pthread_t thread;
	const char *answer;
	size_t length;
};

static void *answer_once(void *context)
{
	struct fake_server *server = context;
	char startup[1024];
	int fd = accept(server->fd, NULL, NULL);
	if (read(fd, startup, sizeof startup) > 0 && server->length)
		(void)!write(fd, server->answer, server->length);
	shutdown(fd, SHUT_WR);
	while (read(fd, startup, sizeof startup) > 0)
		continue;
	close(fd);
	return NULL;
}

static int listen_on_loopback(int *ret_port)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

static void make_dsn(char *dsn, size_t size, int port)
{
	snprintf(dsn, size,
	    "host=127.0.0.1 port=%d dbname=shop user=relay sslmode=disable "
	    "passfile=/nonexistent",
	    port);
}

/* What pg_connect makes of a server that answers the start-up packet so. */
static struct err refused_with(const char *answer, size_t length)
{
	struct fake_server server = {.answer = answer, .length = length};
	char dsn[256];
	struct err err = {0};
	server.fd = listen_on_loopback(&server.port);
	make_dsn(dsn, sizeof dsn, server.port);
	assert_int_equal(pthread_create(&server.thread, NULL, answer_once, &server), 0);
	assert_null(pg_connect(dsn, "test", 5000, &err));
	pthread_join(server.thread, NULL);
	close(server.fd);
	return err;
}

/* An ErrorResponse with severity FATAL. */
static struct err refused_by_error(const char *sqlstate, const char *message)
{
	char answer[512];
	int fields = snprintf(answer + 5, sizeof answer - 5,
	    "SFATAL%cVFATAL%cC%s%cM%s%cFauth.c%cL1%cRauth_failed%c%c", 0, 0, sqlstate, 0, message,
	    0, 0, 0, 0, 0);
	uint32_t length = htonl((uint32_t)fields + 4);
	answer[0] = 'E';
	memcpy(answer + 1, &length, sizeof length);
	return refused_with(answer, (size_t)fields + 5);
}

/* --- SQLSTATE ------------------------------------------------------------------------------ */

static void an_sqlstate_says_what_to_do(void **state)
{
	(void)state;
	static const struct {
		const char *sqlstate;
		enum err_kind kind;
	} rows[] = {
	    {"08006", ERR_RETRY},
	    {"57P01", ERR_RETRY},
	    {"57P03", ERR_RETRY},
	    {"57014", ERR_RETRY},
	    {"53300", ERR_RETRY},
	    {"40001", ERR_RETRY},
	    {"40P01", ERR_RETRY},
	    {"55P03", ERR_RETRY},
	    {"25006", ERR_RETRY},
	    {"28P01", ERR_DENIED},
	    {"28000", ERR_DENIED},
	    {"42501", ERR_DENIED},
	    {"3D000", ERR_CONFIG},
	    {"3F000", ERR_CONFIG},
	    {"42P01", ERR_CONFIG},
	    {"42703", ERR_CONFIG},
	    {"42883", ERR_CONFIG},
	    {"23505", ERR_FENCED},
	    {"23514", ERR_FATAL},
	    {"42601", ERR_FATAL},
	    {"25P02", ERR_FATAL},
	    {"40002", ERR_FATAL},
	    {"XX000", ERR_FATAL},
	    {"", ERR_FATAL},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (failure_kind(rows[i].sqlstate, NULL) != rows[i].kind)
			fail_msg("SQLSTATE \"%s\"", rows[i].sqlstate);
	}
}

static void a_statement_error_names_place_cause_and_cure(void **state)
{
	(void)state;
	struct err err;
	assert_false(failure_of_statement("db:5432/shop", "42P01",
	    "relation \"outbox.log\" does not exist", "the server's hint", &err));
	assert_string_equal(err.message,
	    "db:5432/shop: relation \"outbox.log\" does not exist (SQLSTATE 42P01); "
	    "run `outbox-relay migrate up`");
	assert_false(failure_of_statement("db:5432/shop", "22P02", "bad number", "try 1", &err));
	assert_string_equal(err.message, "db:5432/shop: bad number (SQLSTATE 22P02); try 1");
	assert_false(failure_of_statement("db:5432/shop", "22P02", "bad number", NULL, &err));
	assert_string_equal(err.message, "db:5432/shop: bad number (SQLSTATE 22P02)");
}

static void a_statement_error_says_whether_another_session_was_in_the_way(void **state)
{
	static const struct {
		const char *sqlstate;
		bool contended;
	} rows[] = {{"55P03", true}, {"40P01", true}, {"40001", true}, {"57014", false},
	    {"57P01", false}, {"08006", false}, {"53300", false}, {"42P01", false}};
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_false(failure_of_statement("db", rows[i].sqlstate, "x", NULL, &err));
		assert_int_equal(err.contended, rows[i].contended);
	}
}

/* --- the dsn ------------------------------------------------------------------------------- */

static void a_dsn_that_cannot_be_used_is_a_configuration_error(void **state)
{
	(void)state;
	static const char *const dsns[] = {
	    "shop",
	    "hots=db",
	    "postgres://[::1/shop",
	    "host=127.0.0.1 port=none",
	    "host=127.0.0.1 port=70000",
	    "host=127.0.0.1 sslmode=perhaps",
	    "host=127.0.0.1 target_session_attrs=leader",
	    "host=a,b port=1,2,3",
	    "service=no_such_service",
	};
	for (size_t i = 0; i < sizeof dsns / sizeof *dsns; i++) {
		struct err err = {0};
		assert_null(pg_start(dsns[i], "test", &err));
		if (err.kind != ERR_CONFIG)
			fail_msg("%s: %s", dsns[i], err.message);
		assert_says(&err, "dsn: ");
	}
}

static void a_wrong_dsn_is_quoted_when_it_holds_no_password(void **state)
{
	(void)state;
	struct err err;
	assert_null(pg_start("hots=db", "test", &err));
	assert_says(&err, "\"hots\"");
}

static void a_password_is_never_shown(void **state)
{
	(void)state;
	static const char *const dsns[] = {
	    "host=127.0.0.1 password=my s3cret=x",
	    "host=127.0.0.1 password=my s3cret",
	    "postgres://relay:s3cret/word@127.0.0.1/shop",
	    "postgres://relay:12/s3cret@127.0.0.1/shop",
	    "postgres://relay:pass@s3cret@127.0.0.1/shop",
	    "postgres://relay:%s3cret@127.0.0.1/shop",
	    "postgres://relay:a%00s3cret@127.0.0.1/shop",
	    "host=127.0.0.1 port=0 password=s3cret",
	};
	for (size_t i = 0; i < sizeof dsns / sizeof *dsns; i++) {
		struct err err = {0};
		assert_null(pg_start(dsns[i], "test", &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_hides(&err, "s3cret");
	}
}

/* --- connecting ---------------------------------------------------------------------------- */

static void nobody_listening_is_worth_a_retry(void **state)
{
	(void)state;
	char dsn[256], place[64];
	struct err err = {0};
	int port;
	close(listen_on_loopback(&port));
	make_dsn(dsn, sizeof dsn, port);
	assert_null(pg_connect(dsn, "test", 5000, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	snprintf(place, sizeof place, "127.0.0.1:%d/shop: Connection refused; ", port);
	assert_says(&err, place);
	assert_null(pg_connect("host=/nonexistent dbname=shop", "test", 5000, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	assert_says(&err, "/nonexistent:");
	assert_says(&err, "No such file or directory");
}

static void a_start_that_failed_at_once_is_told_by_the_first_step(void **state)
{
	(void)state;
	struct err err = {0};
	struct pg *pg = pg_start("host=/nonexistent dbname=shop", "test", &err);
	assert_non_null(pg);
	assert_int_equal(pg_state(pg), PG_CONNECTING);
	assert_int_equal(pg_fd(pg), -1);
	assert_false(pg_step(pg, &err));
	assert_int_equal(pg_state(pg), PG_LOST);
	assert_false(pg_step(pg, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	assert_false(pg_script(pg, "SELECT 1", &err));
	assert_null(pg_query(pg, "SELECT 1", NULL, 0, &err));
	pg_destroy(pg);
}

static void a_wrong_password_is_denied(void **state)
{
	(void)state;
	struct err err =
	    refused_by_error("28P01", "password authentication failed for user \"relay\"");
	assert_int_equal(err.kind, ERR_DENIED);
	assert_says(&err, "/shop: password authentication failed for user \"relay\" "
			  "(SQLSTATE 28P01); check user and password");
}

static void a_missing_password_is_denied(void **state)
{
	(void)state;
	static const char cleartext[] = "R\0\0\0\10\0\0\0\3";
	unsetenv("PGPASSWORD");
	struct err err = refused_with(cleartext, sizeof cleartext - 1);
	assert_int_equal(err.kind, ERR_DENIED);
	assert_says(&err, "no password supplied; put it into");
}

static void an_unknown_database_is_a_configuration_error(void **state)
{
	(void)state;
	struct err err = refused_by_error("3D000", "database \"shop\" does not exist");
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_says(&err, "does not exist (SQLSTATE 3D000); create the database");
}

static void a_server_that_starts_up_or_is_full_is_worth_a_retry(void **state)
{
	(void)state;
	struct err err = refused_by_error("57P03", "the database system is starting up");
	assert_int_equal(err.kind, ERR_RETRY);
	assert_says(&err, "starting up (SQLSTATE 57P03)");
	err = refused_by_error("53300", "sorry, too many clients already");
	assert_int_equal(err.kind, ERR_RETRY);
}

static void what_pgbouncer_says_under_08P01_is_told_apart(void **state)
{
	(void)state;
	struct err err = refused_by_error("08P01", "no such database: shop");
	assert_int_equal(err.kind, ERR_CONFIG);
	err = refused_by_error("08P01", "database \"shop\" does not exist");
	assert_int_equal(err.kind, ERR_CONFIG);
	err = refused_by_error("08P01", "SASL authentication failed");
	assert_int_equal(err.kind, ERR_DENIED);
	err = refused_by_error("08P01", "pgbouncer cannot connect to server");
	assert_int_equal(err.kind, ERR_RETRY);
}

static void a_server_that_hangs_up_is_worth_a_retry(void **state)
{
	(void)state;
	struct err err = refused_with("", 0);
	assert_int_equal(err.kind, ERR_RETRY);
	assert_says(&err, "server closed the connection unexpectedly");
}

static void a_silent_server_is_left_when_the_time_is_over(void **state)
{
	(void)state;
	char dsn[256];
	struct err err = {0};
	int port, fd = listen_on_loopback(&port);
	make_dsn(dsn, sizeof dsn, port);
	int64_t begin = clock_ms();
	assert_null(pg_connect(dsn, "test", 200, &err));
	int64_t took = clock_ms() - begin;
	assert_in_range(took, 200, 3000);
	assert_int_equal(err.kind, ERR_RETRY);
	assert_says(&err, "no answer within 200 ms");
	close(fd);
}

static void a_connect_timeout_of_the_dsn_is_kept(void **state)
{
	(void)state;
	char dsn[256];
	struct err err = {0};
	int port, fd = listen_on_loopback(&port);
	make_dsn(dsn, sizeof dsn, port);
	strncat(dsn, " connect_timeout=2", sizeof dsn - strlen(dsn) - 1);
	assert_null(pg_connect(dsn, "test", 60000, &err));
	assert_says(&err, "no answer within 2000 ms");
	close(fd);
}

static void an_interrupted_thread_stops_connecting(void **state)
{
	(void)state;
	char dsn[256];
	struct err err = {0};
	int port, fd = listen_on_loopback(&port), interrupt = eventfd(1, EFD_NONBLOCK);
	make_dsn(dsn, sizeof dsn, port);
	pg_interrupt_by(interrupt);
	assert_null(pg_connect(dsn, "test", 60000, &err));
	pg_interrupt_by(-1);
	assert_int_equal(err.kind, ERR_RETRY);
	assert_says(&err, "interrupted");
	close(interrupt);
	close(fd);
}

static void several_hosts_are_told_apart(void **state)
{
	(void)state;
	char sqlstate[SQLSTATE_SIZE];
	struct err err;
	failure_of_connecting("", "b:5432/shop",
	    "connection to server at \"a\" (10.0.0.1), port 5432 failed: Connection refused\n"
	    "\tIs the server running on that host and accepting TCP/IP connections?\n"
	    "connection to server at \"b\" (10.0.0.2), port 5432 failed: session is read-only\n",
	    sqlstate, &err);
	assert_int_equal(err.kind, ERR_RETRY);
	assert_says(&err, "at \"a\" (10.0.0.1), port 5432 failed: Connection refused; ");
	assert_says(&err, "at \"b\" (10.0.0.2), port 5432 failed: session is read-only; ");
	assert_hides(&err, "Is the server running");
	assert_string_equal(sqlstate, "");
}

static void a_dsn_to_another_machine_without_tls_is_exposed(void **state)
{
	static const struct {
		const char *dsn;
		bool exposed;
	} rows[] = {{"host=localhost", false}, {"host=/run/postgresql", false},
	    {"host=127.0.0.1,db", true}, {"postgresql://u@db/x", true},
	    {"postgresql://u@db/x?sslmode=require", false}, {"host=db sslmode=prefer", true},
	    {"host=db hostaddr=127.0.0.1", false}, {"host=db sslmode=verify-full", false},
	    {"host=::1 sslmode=disable", false}, {"host=127.example.com", true},
	    {"host=db x", false}};

	(void)state;
	unsetenv("PGSSLMODE");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (pg_dsn_is_exposed(rows[i].dsn) != rows[i].exposed)
			fail_msg("%s", rows[i].dsn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_sqlstate_says_what_to_do),
	    cmocka_unit_test(a_statement_error_names_place_cause_and_cure),
	    cmocka_unit_test(a_statement_error_says_whether_another_session_was_in_the_way),
	    cmocka_unit_test(a_dsn_that_cannot_be_used_is_a_configuration_error),
	    cmocka_unit_test(a_wrong_dsn_is_quoted_when_it_holds_no_password),
	    cmocka_unit_test(a_password_is_never_shown),
	    cmocka_unit_test(nobody_listening_is_worth_a_retry),
	    cmocka_unit_test(a_start_that_failed_at_once_is_told_by_the_first_step),
	    cmocka_unit_test(a_wrong_password_is_denied),
	    cmocka_unit_test(a_missing_password_is_denied),
	    cmocka_unit_test(an_unknown_database_is_a_configuration_error),
	    cmocka_unit_test(a_server_that_starts_up_or_is_full_is_worth_a_retry),
	    cmocka_unit_test(what_pgbouncer_says_under_08P01_is_told_apart),
	    cmocka_unit_test(a_server_that_hangs_up_is_worth_a_retry),
	    cmocka_unit_test(a_silent_server_is_left_when_the_time_is_over),
	    cmocka_unit_test(a_dsn_to_another_machine_without_tls_is_exposed),
	    cmocka_unit_test(a_connect_timeout_of_the_dsn_is_kept),
	    cmocka_unit_test(an_interrupted_thread_stops_connecting),
	    cmocka_unit_test(several_hosts_are_told_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
