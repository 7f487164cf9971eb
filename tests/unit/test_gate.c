/* The gate on a socket of its own, with clients that do what one server of ours would not. */
#include "gate.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "clock.h"
#include "metrics.h"

enum { HEAD_MS = 300, ARRIVAL_MS = 600, ANSWER_MS = 300, CONNECTIONS = 16, LONG = 64 << 20 };

struct world {
	struct gate *gate;
	uint16_t port;
	struct text page;                     /* the answer to GET /page */
	_Atomic(struct MHD_Connection *) now; /* suspended by GET /held */
};

/* Ends with the request; its address tells the first call of a request from the next ones. */
static void forget(void *context, struct MHD_Connection *connection, void **seen,
    enum MHD_RequestTerminationCode how)
{
	(void)context;
	(void)connection;
	(void)how;
	*seen = NULL;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *upload,
    size_t *upload_size, void **seen)
{
	struct world *world = context;
	struct text word = {0};
	enum MHD_Result result;

	(void)version;
	(void)upload;
	if (!*seen) {
		*seen = world;
		gate_await_body(connection);
		if (strcmp(path, "/held") == 0) {
			MHD_suspend_connection(connection);
			atomic_store(&world->now, connection);
		}
		return MHD_YES;
	}
	if (*upload_size > 0) {
		*upload_size = 0;
		return MHD_YES;
	}
	if (strcmp(method, "POST") == 0)
		gate_whole(connection);
	if (strcmp(path, "/page") == 0)
		return gate_answer(connection, 200, "text/plain", &world->page, NULL);
	text_add(&word, "well");
	result = gate_answer(connection, 200, "text/plain", &word, NULL);
	text_finish(&word);
	return result;
}

static int set_up(void **state)
{
	struct world *world = xcalloc(1, sizeof *world);
	const struct gate_settings settings = {.section = "test",
	    .listen = "relay.example:0",
	    .tls_certificate = "",
	    .tls_key = "",
	    .servers = 2,
	    .connections = CONNECTIONS,
	    .head_ms = HEAD_MS,
	    .arrival_ms = ARRIVAL_MS,
	    .answer_ms = ANSWER_MS,
	    .discards = 65536,
	    .takes_bodies = true,
	    .on_request = on_request,
	    .on_completed = forget,
	    .context = world};
	struct listener listener;
	struct err err;

	assert_true(listener_open("test", "0", &listener, &err));
	world->port = (uint16_t)strtol(strrchr(listener.address, ':') + 1, NULL, 10);
	world->gate = gate_start(&listener, &settings, &err);
	assert_non_null(world->gate);
	listener_close(&listener);
	*state = world;
	return 0;
}

static int tear_down(void **state)
{
	struct world *world = *state;

	gate_stop(world->gate);
	text_finish(&world->page);
	free(world);
	return 0;
}

static int call_from(const struct world *world, uint32_t address)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
	struct sockaddr_in name = {.sin_family = AF_INET,
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	    .sin_port = htons(world->port)};
	struct timeval limit = {.tv_sec = 60};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* All that comes until the other side closes; the caller frees. */
static char *hear(int fd)
{
	struct text answer = {0};
	char part[4096];
	ssize_t length;

	while ((length = read(fd, part, sizeof part)) > 0)
		text_append(&answer, part, (size_t)length);
	close(fd);
	return answer.data ? answer.data : xstrdup("");
}

static void expect(int fd, const char *begin)
{
	char *answer = hear(fd);

	if (strncmp(answer, begin, strlen(begin)) != 0)
		fail_msg("no %s: %s", begin, answer);
	free(answer);
}

static const char good[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void a_good_request_is_served_and_its_connection_closed(void **state)
{
	int fd = call_from(*state, INADDR_LOOPBACK);
	char *answer;

	say(fd, good);
	say(fd, good);
	answer = hear(fd);
	assert_true(text_starts(answer, "HTTP/1.1 200 "));
	assert_non_null(strstr(answer, "Connection: close\r\n"));
	assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\nwell");
	free(answer);
}

static void a_head_in_pieces_is_served(void **state)
{
	int fd = call_from(*state, INADDR_LOOPBACK);

	for (size_t i = 0; i < strlen(good); i++)
		say(fd, (char[]){good[i], '\0'});
	expect(fd, "HTTP/1.1 200 ");
}

static void the_name_of_the_listener_is_one_of_its_hosts(void **state)
{
	static const struct {
		const char *host, *answer;
	} rows[] = {{"relay.example", "HTTP/1.1 200 "}, {"RELAY.example:1", "HTTP/1.1 200 "},
	    {"localhost", "HTTP/1.1 200 "}, {"127.0.0.1", "HTTP/1.1 200 "},
	    {"other.example", "HTTP/1.1 400 "}, {"127.0.0.2", "HTTP/1.1 400 "}};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int fd = call_from(*state, INADDR_LOOPBACK);
		char *request = xformat("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", rows[i].host);

		say(fd, request);
		free(request);
		expect(fd, rows[i].answer);
	}
}

static void a_refused_request_reads_its_answer_although_more_was_sent(void **state)
{
	int fd = call_from(*state, INADDR_LOOPBACK);
	char *body = xcalloc(1, 32768);

	memset(body, 'x', 32767);
	say(fd, "POST / HTTP/1.1\r\nHost : localhost\r\nContent-Length: 32767\r\n\r\n");
	say(fd, body);
	free(body);
	expect(fd, "HTTP/1.1 400 ");
}

static bool is_counted(const char *reason, int count)
{
	struct text page = {0};
	char *line = xformat(
	    "relay_listener_refused_total{listener=\"test\",reason=\"%s\"} %d\n", reason, count);
	bool found;

	metrics_write(&page);
	found = strstr(text_string(&page), line) != NULL;
	text_finish(&page);
	free(line);
	return found;
}

/* Of 300 ms: longer than that, and not for ever. */
static void assert_took(int64_t begun, int64_t least)
{
	int64_t took = clock_ms() - begun;

	assert_true(took >= least);
	assert_true(took < 30000);
}

static void a_head_has_its_time(void **state)
{
	int64_t begun = clock_ms();
	int fd = call_from(*state, INADDR_LOOPBACK);

	say(fd, "GET / HTT");
	expect(fd, "HTTP/1.1 408 ");
	assert_took(begun, HEAD_MS);
}

static void a_body_has_its_time(void **state)
{
	int64_t begun = clock_ms();
	int fd = call_from(*state, INADDR_LOOPBACK);

	say(fd, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1234");
	expect(fd, "");
	assert_took(begun, ARRIVAL_MS);
}

static void an_answer_that_nobody_reads_has_its_time(void **state)
{
	struct world *world = *state;
	char *answer, *page = xmalloc(LONG);
	int64_t begun;
	int fd;

	memset(page, 'x', LONG);
	text_append(&world->page, page, LONG);
	free(page);
	begun = clock_ms();
	fd = call_from(world, INADDR_LOOPBACK);
	say(fd, "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
	while (!is_counted("unread", 1))
		poll(NULL, 0, 1);
	/* The kernel has the beginning of it. */
	answer = hear(fd);
	assert_true(text_starts(answer, "HTTP/1.1 200 "));
	assert_true(strlen(answer) < LONG);
	free(answer);
	assert_took(begun, ANSWER_MS);
}

/* 40 that only connect displace each other; neither a request at work, nor another address. */
static void the_idlest_connection_of_an_address_makes_room(void **state)
{
	struct world *world = *state;
	int other = call_from(world, INADDR_LOOPBACK + 6), held = call_from(world, INADDR_LOOPBACK);
	struct pollfd first = {.events = POLLIN};
	int idle[40];

	say(held, "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
	while (!atomic_load(&world->now))
		poll(NULL, 0, 1);
	for (int i = 0; i < 40; i++)
		idle[i] = call_from(world, INADDR_LOOPBACK);
	first.fd = idle[0];
	assert_int_equal(poll(&first, 1, 60000), 1);
	say(idle[39], good);
	say(other, good);
	expect(idle[39], "HTTP/1.1 200 ");
	expect(other, "HTTP/1.1 200 ");
	MHD_resume_connection(atomic_load(&world->now));
	expect(held, "HTTP/1.1 200 ");
	for (int i = 0; i < 39; i++)
		close(idle[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_good_request_is_served_and_its_connection_closed),
	    cmocka_unit_test(a_head_in_pieces_is_served),
	    cmocka_unit_test(the_name_of_the_listener_is_one_of_its_hosts),
	    cmocka_unit_test(a_refused_request_reads_its_answer_although_more_was_sent),
	    cmocka_unit_test(a_head_has_its_time),
	    cmocka_unit_test(a_body_has_its_time),
	    cmocka_unit_test_setup_teardown(
		an_answer_that_nobody_reads_has_its_time, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(
		the_idlest_connection_of_an_address_makes_room, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
