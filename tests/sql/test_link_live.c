/*
 * outbox/pg/link.h against a living Postgres: TEST_DATABASE_URL, not through a pooler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "clock.h"
#include "copy_binary.h"
#include "link.h"
#include "logging.h"

enum { PATIENCE_MS = 30000 };

static const char *dsn;
static const struct link_statement statements[] = {
    {"test_sum", "select $1::int4 + 1"}, {"test_double", "select $1::int4 * 2"}, {0}};

static void wait_for(struct link *link)
{
	struct pollfd wanted = {.fd = pg_fd(link->pg), .events = pg_events(link->pg)};
	if (wanted.fd >= 0 && poll(&wanted, 1, PATIENCE_MS) == 0)
		fail_msg("waited in vain for %d", wanted.events);
}

static void until_ready(struct link *link)
{
	for (;;) {
		int64_t now = clock_ms();
		enum link_event event = link_step(link, now);
		if (event == LINK_READY)
			return;
		if (event != LINK_NONE)
			fail_msg("event %d: %s", event, link->error);
		if (link->pg)
			wait_for(link);
		else
			poll(NULL, 0, (int)(link_wait(link) - now));
	}
}

static void start(struct link *link, const struct link_statement *repeated)
{
	link_init(link, dsn, "test link", repeated);
	until_ready(link);
}

/* The int4 of the answer to what was sent; false with *err. */
static bool answer(struct link *link, int32_t *ret_number, struct err *err)
{
	for (bool done = false;;) {
		OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
		wait_for(link);
		assert_int_equal(link_step(link, clock_ms()), LINK_ANSWER);
		if (!pg_receive(link->pg, &done, &result, err))
			return false;
		if (!done)
			continue;
		*ret_number = pg_rows(result) ? copy_int32(pg_value(result, 0, 0)) : 0;
		return true;
	}
}

static int32_t ask(struct link *link, const char *sql)
{
	struct err err;
	int32_t number = 0;
	if (!pg_send(link->pg, sql, NULL, 0, &err) || !answer(link, &number, &err))
		fail_msg("%s: %s", sql, err.message);
	return number;
}

static void the_statements_are_prepared_in_a_session_of_its_own(void **state)
{
	struct link link;
	struct err err;
	const struct pg_param seven = {"7"};
	int32_t number = 0;

	(void)state;
	start(&link, statements);
	assert_true(link.prepared);
	assert_true(pg_send_prepared(link.pg, "test_sum", &seven, 1, &err));
	assert_true(answer(&link, &number, &err));
	assert_int_equal(number, 8);
	assert_true(pg_send_prepared(link.pg, "test_double", &seven, 1, &err));
	assert_true(answer(&link, &number, &err));
	assert_int_equal(number, 14);
	link_finish(&link);
}

static void a_link_without_statements_prepares_none(void **state)
{
	struct link link;

	(void)state;
	start(&link, NULL);
	assert_false(link.prepared);
	assert_int_equal(ask(&link, "select count(*)::int4 from pg_prepared_statements"), 0);
	link_finish(&link);
}

static void a_statement_that_is_gone_is_prepared_no_more(void **state)
{
	struct link link;
	struct err err;
	const struct pg_param seven = {"7"};
	int32_t number;

	(void)state;
	start(&link, statements);
	ask(&link, "deallocate all");
	assert_true(pg_send_prepared(link.pg, "test_sum", &seven, 1, &err));
	assert_false(answer(&link, &number, &err));
	assert_string_equal(pg_sqlstate(link.pg), "26000");
	link_failed(&link, clock_ms(), &err);
	assert_non_null(link.pg);
	assert_false(link.prepared);
	link_drop(&link, clock_ms(), NULL);
	until_ready(&link);
	assert_false(link.prepared);
	assert_int_equal(ask(&link, "select count(*)::int4 from pg_prepared_statements"), 0);
	link_finish(&link);
}

static void a_statement_that_cannot_be_prepared_leaves_the_link_ready(void **state)
{
	static const struct link_statement wrong[] = {{"test_wrong", "select * from nowhere"}, {0}};
	struct link link;

	(void)state;
	start(&link, wrong);
	assert_false(link.prepared);
	assert_int_equal(ask(&link, "select 5"), 5);
	link_finish(&link);
}

static void a_plan_of_another_type_ends_the_session(void **state)
{
	static const struct link_statement of_table[] = {
	    {"test_row", "select * from public.test_link"}, {0}};
	struct link link, other;
	struct err err;
	int32_t number;

	(void)state;
	start(&other, NULL);
	ask(&other, "create table public.test_link as select 3 as three");
	start(&link, of_table);
	ask(&other, "alter table public.test_link add four int");
	assert_true(pg_send_prepared(link.pg, "test_row", NULL, 0, &err));
	assert_false(answer(&link, &number, &err));
	link_failed(&link, clock_ms(), &err);
	assert_null(link.pg);
	until_ready(&link);
	assert_true(pg_send_prepared(link.pg, "test_row", NULL, 0, &err));
	assert_true(answer(&link, &number, &err));
	assert_int_equal(number, 3);
	ask(&other, "drop table public.test_link");
	link_finish(&link);
	link_finish(&other);
}

/* --- a server that takes connections and says nothing ---------------------------------------- */

struct silent {
	int fd;
	int connections[64];
	int count;
	char dsn[96];
};

static void silent_begin(struct silent *server)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;

	*server = (struct silent){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)};
	assert_int_equal(bind(server->fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(server->fd, 64), 0);
	assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &size), 0);
	snprintf(server->dsn, sizeof server->dsn,
	    "host=127.0.0.1 port=%d user=nobody dbname=nothing sslmode=disable",
	    ntohs(address.sin_port));
}

static void silent_take(struct silent *server)
{
	int fd;
	while ((fd = accept(server->fd, NULL, NULL)) >= 0)
		server->connections[server->count++] = fd;
}

static void silent_end(struct silent *server)
{
	for (int i = 0; i < server->count; i++)
		close(server->connections[i]);
	close(server->fd);
}

/* Steps of the link, until the packet of the start-up is with the server. */
static void until_reached(struct link *link, struct silent *server, int64_t now)
{
	char packet[512];
	link_step(link, now);
	assert_non_null(link->pg);
	while (pg_connecting(link->pg) != PG_STARTS_UP) {
		wait_for(link);
		assert_int_equal(link_step(link, now), LINK_NONE);
	}
	wait_for(link);
	link_step(link, now);
	silent_take(server);
	assert_int_equal(server->count, 1);
	struct pollfd came = {.fd = server->connections[0], .events = POLLIN};
	while (poll(&came, 1, 0) == 0)
		link_step(link, now);
	assert_true(read(server->connections[0], packet, sizeof packet) > 0);
}

static void an_attempt_that_hangs_in_the_start_up_is_the_only_one(void **state)
{
	struct link link;
	struct silent server;

	(void)state;
	silent_begin(&server);
	link_init(&link, server.dsn, "test link", NULL);
	link_limit(&link, 1000);
	until_reached(&link, &server, 0);
	for (int64_t now = 0; now < 60000; now += 500) {
		assert_int_equal(link_step(&link, now), LINK_NONE);
		/* it is told when it hangs, and once */
		assert_int_equal(link.lost_count, now >= 10000);
	}
	silent_take(&server);
	assert_int_equal(server.count, 1);
	assert_non_null(strstr(link.error, "does not answer"));
	/* a server ends its session by then: one more may come */
	assert_int_equal(link_step(&link, 70000), LINK_LOST);
	assert_int_equal(link.lost_count, 1);
	link_step(&link, 80000);
	assert_non_null(link.pg);
	link_finish(&link);
	silent_end(&server);
}

static void an_attempt_that_was_admitted_is_waited_for(void **state)
{
	static const char admitted[] = {'R', 0, 0, 0, 8, 0, 0, 0, 0};
	struct link link;
	struct silent server;

	(void)state;
	silent_begin(&server);
	link_init(&link, server.dsn, "test link", NULL);
	until_reached(&link, &server, 0);
	assert_int_equal(
	    write(server.connections[0], admitted, sizeof admitted), (int)sizeof admitted);
	while (pg_connecting(link.pg) != PG_IS_ADMITTED) {
		wait_for(&link);
		assert_int_equal(link_step(&link, 0), LINK_NONE);
	}
	for (int64_t now = 0; now < 600000; now += 5000)
		assert_int_equal(link_step(&link, now), LINK_NONE);
	assert_int_equal(link.lost_count, 1);
	silent_take(&server);
	assert_int_equal(server.count, 1);
	close(server.connections[0]);
	server.count = 0;
	wait_for(&link);
	assert_int_equal(link_step(&link, 600000), LINK_LOST);
	assert_int_equal(link.lost_count, 1);
	link_finish(&link);
	silent_end(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_statements_are_prepared_in_a_session_of_its_own),
	    cmocka_unit_test(a_link_without_statements_prepares_none),
	    cmocka_unit_test(a_statement_that_is_gone_is_prepared_no_more),
	    cmocka_unit_test(a_statement_that_cannot_be_prepared_leaves_the_link_ready),
	    cmocka_unit_test(a_plan_of_another_type_ends_the_session),
	    cmocka_unit_test(an_attempt_that_hangs_in_the_start_up_is_the_only_one),
	    cmocka_unit_test(an_attempt_that_was_admitted_is_waited_for),
	};

	dsn = getenv("TEST_DATABASE_URL");
	if (!dsn) {
		print_error("TEST_DATABASE_URL is not set\n");
		return 1;
	}
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
