/*
 * The guard of a long message, with a libpq and a wall clock of the test: PQconsumeInput reads
 * until the guard ends the connection, as libpq does when the server never lets the socket become
 * empty.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "pg_private.h"

enum { LIMIT = 1 << 20, CHUNK = 1 << 16, PAUSE_US = 50000, PATIENCE_MS = 10000, HOUR = 3600 };

static int server, client;
static time_t ahead; /* seconds of the program's wall clock before the kernel's */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long result = syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_REALTIME)
		now->tv_sec += ahead;
	return (int)result;
}

int PQsocket(const PGconn *connection)
{
	(void)connection;
	return client;
}

/* Begins after the guard's first look, and gives up if the guard does not look again. */
int PQconsumeInput(PGconn *connection)
{
	int64_t until = clock_ms() + PATIENCE_MS;
	char bytes[CHUNK] = {0};

	(void)connection;
	usleep(PAUSE_US);
	while (clock_ms() < until)
		if (send(server, bytes, sizeof bytes, MSG_NOSIGNAL) < 0 ||
		    recv(client, bytes, sizeof bytes, MSG_WAITALL) <= 0)
			return 0;
	return 1;
}

/* Over TCP, since a Unix socket is not guarded. */
static int connect_both(void **state)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	client = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &size) ||
	    connect(client, (struct sockaddr *)&address, size))
		return -1;
	server = accept(listener, NULL, NULL);
	close(listener);
	return server < 0 ? -1 : 0;
}

static int close_both(void **state)
{
	(void)state;
	ahead = 0;
	close(server);
	close(client);
	return 0;
}

static void assert_flood_ends(void)
{
	struct pg pg = {.answer_limit = LIMIT, .received = 1};

	assert_false(pg_consume(&pg));
	assert_true(pg_is_flooded(&pg));
}

static void a_long_message_ends_at_the_limit(void **state)
{
	(void)state;
	assert_flood_ends();
}

/* A wait until a moment of the wall clock would last an hour longer than meant. */
static void a_clock_that_is_set_back_delays_no_guard(void **state)
{
	(void)state;
	ahead = HOUR;
	assert_flood_ends();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		a_long_message_ends_at_the_limit, connect_both, close_both),
	    cmocka_unit_test_setup_teardown(
		a_clock_that_is_set_back_delays_no_guard, connect_both, close_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
