#include "http_client.h"

#include <dlfcn.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include "clock.h"
#include "nasty_http2.h"
#include "text.h"

/* --- names ------------------------------------------------------------------------------- */

/* Stands before libc's: names that end with .test are the tests' own. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held;   /* slow.test has no answer as long as this stands */
	int waiting; /* threads that wait for it */
	int flips;   /* how often flip.test was asked for */
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const char *test_address(const char *name)
{
	const char *address = NULL;

	pthread_mutex_lock(&names.lock);
	if (text_equal(name, "flip.test"))
		address = names.flips++ ? "127.0.0.2" : "127.0.0.1";
	else if (text_equal(name, "local.test") || text_equal(name, "other.test"))
		address = "127.0.0.1";
	else if (text_equal(name, "cloud.test"))
		address = "169.254.169.254";
	else if (text_equal(name, "slow.test")) {
		names.waiting++;
		pthread_cond_broadcast(&names.changed);
		while (names.held)
			pthread_cond_wait(&names.changed, &names.lock);
		names.waiting--;
		pthread_cond_broadcast(&names.changed);
	}
	pthread_mutex_unlock(&names.lock);
	return address;
}

typedef int resolver(
    const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found);

__attribute__((visibility("default"))) int getaddrinfo(
    const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found);

int getaddrinfo(
    const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
	resolver *libc;
	const char *dot = name ? strrchr(name, '.') : NULL;

	*(void **)&libc = dlsym(RTLD_NEXT, "getaddrinfo");
	if (text_equal(dot, ".test"))
		name = test_address(name);
	else
		return libc(name, service, hints, found);
	return name ? libc(name, service, hints, found) : EAI_NONAME;
}

static void hold_names(bool held)
{
	pthread_mutex_lock(&names.lock);
	names.held = held;
	pthread_cond_broadcast(&names.changed);
	while (!held && names.waiting)
		pthread_cond_wait(&names.changed, &names.lock);
	pthread_mutex_unlock(&names.lock);
}

/* --- the client -------------------------------------------------------------------------- */

static const struct http_limits limits = {
    .timeout_ms = 20000, .connect_timeout_ms = 20000, .max_body = 10000, .max_headers = 4000};

static struct http_networks networks(const char *text)
{
	struct http_networks list;
	struct err err;

	if (!http_networks_parse(text, &list, &err))
		fail_msg("%s", err.message);
	return list;
}

/* allowed: NULL for public addresses only. */
static struct http_client *client_for(const struct http_networks *allowed)
{
	const struct http_client_settings settings = {.max_in_flight = 300,
	    .max_connections = 100,
	    .max_host_connections = 10,
	    .user_agent = "outbox-relay/test",
	    .networks = allowed};
	struct err err;
	struct http_client *client = http_client_create(&settings, &err);

	assert_non_null(client);
	return client;
}

static void send_request(struct http_client *client, const struct http_request *request)
{
	struct err err;

	if (!http_client_send(client, request, &err))
		fail_msg("%s", err.message);
}

/* One turn of an event loop, and what it must keep to: no call takes long. */
static void turn(struct http_client *client)
{
	struct pollfd one = {.fd = http_client_fd(client), .events = POLLIN};
	int64_t wait = http_client_deadline(client) - clock_ms(), begin;

	poll(&one, 1, wait < 0 ? 0 : wait > 1000 ? 1000 : (int)wait);
	begin = clock_ms();
	http_client_step(client, begin);
	assert_in_range(clock_ms() - begin, 0, 10000);
}

static struct http_response *next_response(struct http_client *client)
{
	int64_t patience = clock_ms() + 30000;
	struct http_response *response;

	while (!(response = http_client_take(client))) {
		assert_true(clock_ms() < patience);
		turn(client);
	}
	return response;
}

static struct http_response *ask(struct http_client *client, const struct http_request *request)
{
	send_request(client, request);
	return next_response(client);
}

static struct http_response *get(struct http_client *client, const char *url)
{
	return ask(client, &(struct http_request){.url = url, .limits = limits});
}

static void assert_failure(const struct http_response *response, const char *failure, bool sent)
{
	if (!text_equal(response->failure, failure) || response->sent != sent)
		fail_msg("%s, sent %d, status %d: %s", response->failure ? response->failure : "-",
		    response->sent, response->status, response->error);
	assert_true(strlen(response->error) > 10);
}

static void assert_ask_fails(
    struct http_client *client, const struct http_request *request, const char *failure, bool sent)
{
	struct http_response *response = ask(client, request);

	assert_failure(response, failure, sent);
	http_client_release(client, response);
}

static void assert_answer(const struct http_response *response, int status, const char *body)
{
	if (response->failure)
		fail_msg("%s: %s", response->failure, response->error);
	assert_int_equal(response->status, status);
	assert_true(response->sent);
	assert_string_equal(response->body, body);
	assert_int_equal(response->body_length, strlen(body));
	assert_string_equal(response->error, "");
	assert_true(response->first_byte_us > 0);
	assert_true(response->total_us >= response->first_byte_us);
}

/* --- a server and a client that may speak to it ------------------------------------------ */

struct pair {
	struct server server;
	struct http_networks allowed;
	struct http_client *client;
	char url[128];
};

static void pair_start(struct pair *pair, conversation *serve)
{
	server_start(&pair->server, serve, NULL);
	pair->allowed = networks("127.0.0.0/8, ::1");
	pair->client = client_for(&pair->allowed);
	snprintf(pair->url, sizeof pair->url, "http://127.0.0.1:%d/path", pair->server.port);
}

static void pair_stop(struct pair *pair)
{
	http_client_destroy(pair->client);
	server_stop(&pair->server);
	http_networks_finish(&pair->allowed);
}

/* One request to a server that does this, with these limits: the failure that comes of it. */
static void assert_comes_to_with(
    conversation *serve, const struct http_limits *with, const char *failure, bool sent)
{
	struct pair pair;
	struct http_response *response;

	pair_start(&pair, serve);
	response = ask(pair.client, &(struct http_request){.url = pair.url, .limits = *with});
	assert_failure(response, failure, sent);
	http_client_release(pair.client, response);
	assert_int_equal(http_client_in_flight(pair.client), 0);
	assert_int_equal(pair.server.connections, 1);
	pair_stop(&pair);
}

static void assert_comes_to(conversation *serve, const char *failure)
{
	assert_comes_to_with(serve, &limits, failure, true);
}

/* --- answers ----------------------------------------------------------------------------- */

static void say_yes(struct peer *peer)
{
	while (server_read(peer) &&
	       server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Thing: a\r\n"
				"x-thing: b\r\nEmpty:\r\n\r\nyes"))
		;
}

static void a_request_is_answered(void **state)
{
	static const struct http_header headers[] = {
	    {"Content-Type", "application/json"}, {"X-One", " 1"}, {"X-Empty", ""}};
	static const char body[] = "{\"a\": 1}";
	int mark;
	struct pair pair;
	struct http_response *response;

	(void)state;
	pair_start(&pair, say_yes);
	response = ask(pair.client, &(struct http_request){.method = HTTP_POST,
					.url = pair.url,
					.headers = headers,
					.header_count = 3,
					.body = body,
					.body_length = sizeof body - 1,
					.limits = limits,
					.opaque = &mark});
	assert_answer(response, 200, "yes");
	assert_ptr_equal(response->opaque, &mark);
	assert_string_equal(http_response_header(response, "X-THING"), "a");
	assert_string_equal(http_response_header(response, "Empty"), "");
	assert_string_equal(http_response_header(response, "content-length"), "3");
	assert_null(http_response_header(response, "X-Thin"));
	http_client_release(pair.client, response);

	assert_true(text_starts(pair.server.last, "POST /path HTTP/1.1\r\nHost: 127.0.0.1:"));
	assert_non_null(strstr(pair.server.last, "\r\nUser-Agent: outbox-relay/test\r\n"));
	assert_non_null(strstr(pair.server.last, "\r\nContent-Type: application/json\r\n"));
	assert_non_null(strstr(pair.server.last, "\r\nX-One: "));
	assert_non_null(strstr(pair.server.last, "\r\nX-Empty:\r\n"));
	assert_non_null(strstr(pair.server.last, "\r\nContent-Length: 8\r\n"));
	assert_non_null(strstr(pair.server.last, "\r\n\r\n{\"a\": 1}"));
	assert_null(strcasestr(pair.server.last, "accept-encoding"));
	assert_null(strcasestr(pair.server.last, "expect:"));
	pair_stop(&pair);
}

static void nothing_is_added_to_an_empty_post(void **state)
{
	struct pair pair;

	(void)state;
	pair_start(&pair, say_yes);
	http_client_release(pair.client,
	    ask(pair.client,
		&(struct http_request){.method = HTTP_POST, .url = pair.url, .limits = limits}));
	assert_non_null(strstr(pair.server.last, "\r\nContent-Length: 0\r\n"));
	assert_null(strcasestr(pair.server.last, "content-type"));
	http_client_release(pair.client, get(pair.client, pair.url));
	assert_true(text_starts(pair.server.last, "GET /path HTTP/1.1\r\n"));
	assert_null(strcasestr(pair.server.last, "content-length"));
	pair_stop(&pair);
}

static void a_connection_is_used_again(void **state)
{
	struct pair pair;

	(void)state;
	pair_start(&pair, say_yes);
	for (int i = 0; i < 5; i++) {
		struct http_response *response = get(pair.client, pair.url);
		assert_answer(response, 200, "yes");
		http_client_release(pair.client, response);
	}
	assert_int_equal(pair.server.requests, 5);
	assert_int_equal(pair.server.connections, 1);
	pair_stop(&pair);
}

/* What it promises, keep-alive, it does not keep. */
static void say_yes_and_close(struct peer *peer)
{
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
}

static void a_kept_connection_that_was_closed_costs_nothing(void **state)
{
	struct pair pair;

	(void)state;
	pair_start(&pair, say_yes_and_close);
	for (int i = 0; i < 5; i++) {
		struct http_response *response = get(pair.client, pair.url);
		assert_answer(response, 200, "yes");
		http_client_release(pair.client, response);
	}
	assert_int_equal(pair.server.requests, 5);
	assert_int_equal(pair.server.connections, 5);
	pair_stop(&pair);
}

static void say_at_length(struct peer *peer)
{
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 102 Processing\r\nX-Thing: early\r\n\r\n"
				 "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n"
				 "Content-Encoding: gzip\r\nTrailer: X-After\r\n\r\n"
				 "3\r\nabc\r\n2\r\nde\r\n0\r\nX-After: late\r\n\r\n");
}

static void only_the_final_answer_counts_and_its_trailers(void **state)
{
	struct pair pair;
	struct http_response *response;

	(void)state;
	pair_start(&pair, say_at_length);
	response = get(pair.client, pair.url);
	assert_answer(response, 404, "abcde"); /* compressed or not: taken as it is */
	assert_null(http_response_header(response, "X-Thing"));
	assert_string_equal(http_response_header(response, "x-after"), "late");
	assert_string_equal(http_response_trailer(response, "x-after"), "late");
	assert_null(http_response_trailer(response, "Transfer-Encoding"));
	http_client_release(pair.client, response);
	pair_stop(&pair);
}

static void answer_later(struct peer *peer)
{
	static const char *const values[] = {"120", "0", "Sun, 06 Nov 1994 08:49:37 GMT",
	    "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
	    "Sun, 06 Nov 1994 08:48:17 GMT", "-1", "1.5", "soon", "Sunday", "08:49:37", "5 s", "",
	    "99999999999999999999"};
	char answer[256];

	for (size_t i = 0; i < sizeof values / sizeof *values && server_read(peer); i++) {
		snprintf(answer, sizeof answer,
		    "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: %s\r\n\r\n", values[i]);
		server_say(peer, answer);
	}
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
}

static void a_time_to_come_again_is_read(void **state)
{
	static const int64_t expected[] = {
	    120000, 0, 60000, 60000, 60000, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1};
	const int64_t wall_us = INT64_C(784111717) * 1000000; /* 06 Nov 1994 08:48:37 */
	struct pair pair;

	(void)state;
	pair_start(&pair, answer_later);
	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		struct http_response *response = get(pair.client, pair.url);
		assert_int_equal(response->status, 503);
		assert_int_equal(http_response_retry_after_ms(response, wall_us), expected[i]);
		http_client_release(pair.client, response);
	}
	pair_stop(&pair);
}

static void send_elsewhere(struct peer *peer)
{
	char answer[256];

	snprintf(answer, sizeof answer,
	    "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:%d/other\r\n"
	    "Set-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
	    peer->server->port);
	while (server_read(peer) && server_say(peer, answer))
		;
}

static void a_redirect_is_an_answer_and_a_cookie_is_forgotten(void **state)
{
	struct pair pair;
	struct http_response *response;

	(void)state;
	pair_start(&pair, send_elsewhere);
	for (int i = 1; i <= 2; i++) {
		response = get(pair.client, pair.url);
		assert_answer(response, 307, "");
		assert_int_equal(pair.server.requests, i);
		http_client_release(pair.client, response);
	}
	assert_null(strcasestr(pair.server.last, "cookie"));
	pair_stop(&pair);
}

/* --- bad answers ------------------------------------------------------------------------- */

static void read_and_never_answer(struct peer *peer)
{
	if (server_read(peer))
		server_await_end(peer, -1);
}

static void no_answer_is_a_timeout_of_a_request_that_was_sent(void **state)
{
	struct http_limits short_one = limits;

	(void)state;
	short_one.timeout_ms = 100;
	assert_comes_to_with(read_and_never_answer, &short_one, "timeout", true);
}

static void answer_in_drops(struct peer *peer)
{
	if (!server_read(peer) || !server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n"))
		return;
	server_say(peer, "\r\n");
	while (!server_await_end(peer, 20) && server_say(peer, "x"))
		;
}

static void an_answer_in_drops_is_given_up(void **state)
{
	struct http_limits impatient = limits;

	(void)state;
	impatient.slow_bytes = 100;
	impatient.slow_ms = 200;
	assert_comes_to_with(answer_in_drops, &impatient, "too_slow", true);
}

static void answer_and_stop(struct peer *peer)
{
	if (server_read(peer) &&
	    server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nx"))
		server_await_end(peer, -1);
}

static void an_answer_that_stands_still_is_given_up(void **state)
{
	struct http_limits impatient = limits;

	(void)state;
	impatient.slow_bytes = 1;
	impatient.slow_ms = 100;
	assert_comes_to_with(answer_and_stop, &impatient, "too_slow", true);
}

static void think_then_answer(struct peer *peer)
{
	if (server_read(peer) && !server_await_end(peer, 400))
		server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

static void to_think_before_an_answer_is_not_to_be_slow(void **state)
{
	struct http_limits impatient = limits;
	struct pair pair;
	struct http_response *response;

	(void)state;
	impatient.slow_bytes = 1000;
	impatient.slow_ms = 100;
	pair_start(&pair, think_then_answer);
	response = ask(pair.client, &(struct http_request){.url = pair.url, .limits = impatient});
	assert_answer(response, 200, "ok");
	http_client_release(pair.client, response);
	pair_stop(&pair);
}

static void answer_without_end(struct peer *peer)
{
	char chunk[4096 + 9];

	memset(chunk, 'x', sizeof chunk);
	memcpy(chunk, "1000\r\n", 6);
	memcpy(chunk + 4102, "\r\n", 2);
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	while (server_write(peer, chunk, 4104))
		;
}

static void an_endless_body_is_given_up(void **state)
{
	struct pair pair;
	struct http_response *response;

	(void)state;
	pair_start(&pair, answer_without_end);
	response = get(pair.client, pair.url);
	assert_failure(response, "too_large", true);
	assert_int_equal(response->status, 200);
	assert_true(response->body_length <= limits.max_body);
	http_client_release(pair.client, response);
	pair_stop(&pair);
}

static void announce_much(struct peer *peer)
{
	if (server_read(peer) &&
	    server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 10001\r\n\r\n"))
		server_await_end(peer, -1);
}

static void a_body_that_is_announced_too_long_is_not_waited_for(void **state)
{
	(void)state;
	assert_comes_to(announce_much, "too_large");
}

static void answer_just_enough(struct peer *peer)
{
	char body[10001];

	memset(body, 'x', sizeof body);
	body[10000] = '\0';
	if (server_read(peer) &&
	    server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"))
		server_say(peer, body);
}

static void a_body_of_the_greatest_length_is_whole(void **state)
{
	struct pair pair;
	struct http_response *response;

	(void)state;
	pair_start(&pair, answer_just_enough);
	response = get(pair.client, pair.url);
	assert_null(response->failure);
	assert_int_equal(response->body_length, 10000);
	http_client_release(pair.client, response);
	pair_stop(&pair);
}

static void answer_with_headers_without_end(struct peer *peer)
{
	if (server_read(peer) && server_say(peer, "HTTP/1.1 200 OK\r\n")) {
		while (server_say(peer, "X-More: and more and more\r\n"))
			;
	}
}

static void answer_with_a_long_line(struct peer *peer)
{
	if (server_read(peer) && server_say(peer, "HTTP/1.1 200 OK\r\nX-Long: ")) {
		while (server_say(peer, "and more and more and more and more and more"))
			;
	}
}

static void answer_with_early_answers_without_end(struct peer *peer)
{
	if (server_read(peer)) {
		while (server_say(peer, "HTTP/1.1 102 Processing\r\n\r\n"))
			;
	}
}

static void headers_without_end_are_given_up(void **state)
{
	(void)state;
	assert_comes_to(answer_with_headers_without_end, "headers_too_large");
	assert_comes_to(answer_with_a_long_line, "headers_too_large");
	assert_comes_to(answer_with_early_answers_without_end, "headers_too_large");
}

static void answer_and_reset(struct peer *peer)
{
	if (server_read(peer) &&
	    server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nhalf"))
		server_reset(peer);
}

static void answer_half(struct peer *peer)
{
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nhalf");
}

static void answer_half_a_head(struct peer *peer)
{
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 200 OK\r\nContent-Le");
}

static void read_and_close(struct peer *peer)
{
	server_read(peer);
}

static void answer_with_bad_chunks(struct peer *peer)
{
	if (server_read(peer))
		server_say(peer, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
}

static void a_connection_that_ends_in_mid_answer_is_told(void **state)
{
	(void)state;
	assert_comes_to(answer_and_reset, "closed");
	assert_comes_to(answer_half, "closed");
	assert_comes_to(answer_half_a_head, "closed");
	assert_comes_to(read_and_close, "closed");
	assert_comes_to(answer_with_bad_chunks, "closed");
}

static void answer_in_another_tongue(struct peer *peer)
{
	if (server_read(peer))
		server_say(peer, "220 mail.example.com ESMTP\r\n");
}

static void answer_with_a_nul(struct peer *peer)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nX-Y: a\0b\r\nContent-Length: 0\r\n\r\n";

	if (server_read(peer))
		server_write(peer, answer, sizeof answer - 1);
}

static void garbage_is_told(void **state)
{
	(void)state;
	assert_comes_to(answer_in_another_tongue, "garbled");
	assert_comes_to(answer_with_a_nul, "garbled");
}

/* --- never sent -------------------------------------------------------------------------- */

static void nobody_listens_is_no_request(void **state)
{
	struct pair pair;
	struct http_response *response;

	(void)state;
	pair_start(&pair, say_yes);
	/* The handle that comes next has sent something before. */
	http_client_release(pair.client, get(pair.client, pair.url));
	server_stop(&pair.server);
	response = get(pair.client, pair.url);
	/* The kept connection's end may be noticed before or after. */
	if (response->sent) {
		http_client_release(pair.client, response);
		response = get(pair.client, pair.url);
	}
	assert_failure(response, "connect", false);
	assert_int_equal(response->status, 0);
	assert_int_equal(response->first_byte_us, 0);
	assert_string_equal(response->body, "");
	http_client_release(pair.client, response);
	http_client_destroy(pair.client);
	http_networks_finish(&pair.allowed);
}

static void a_name_without_an_address_is_no_request(void **state)
{
	struct http_client *client = client_for(NULL);
	struct http_response *response = get(client, "http://nowhere.test/?token=geheim");

	(void)state;
	assert_failure(response, "resolve", false);
	assert_true(text_starts(response->error, "http://nowhere.test:80: "));
	assert_null(strstr(response->error, "geheim"));
	http_client_release(client, response);
	http_client_destroy(client);
}

static void what_is_no_http_url_is_no_request(void **state)
{
	static const char *const urls[] = {"", "::", "http://", "ftp://127.0.0.1/x",
	    "file:///etc/passwd", "http://user:geheim@127.0.0.1/", "http://a b/",
	    "http://127.0.0.1:99999/", "gopher://127.0.0.1/", "dict://127.0.0.1/"};
	struct http_networks all = networks("0.0.0.0/0");
	struct http_client *client = client_for(&all);

	(void)state;
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		struct http_response *response = get(client, urls[i]);
		assert_failure(response, "url", false);
		assert_null(strstr(response->error, "geheim"));
		http_client_release(client, response);
	}
	http_client_destroy(client);
	http_networks_finish(&all);
}

static void this_machine_is_refused_however_it_is_written(void **state)
{
	static const char *const hosts[] = {"127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f000001",
	    "2130706433", "017700000001", "0177.0.0.1", "127.255.255.254", "0", "0.0.0.0", "[::1]",
	    "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "localhost",
	    "LOCALHOST", "local.test", "%31%32%37.0.0.1", "cloud.test", "169.254.169.254",
	    "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]"};
	struct server server;
	struct http_client *client = client_for(NULL);

	(void)state;
	server_start(&server, say_yes, NULL);
	for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
		char url[128];
		struct http_response *response;
		snprintf(url, sizeof url, "http://%s:%d/", hosts[i], server.port);
		response = get(client, url);
		assert_failure(response, "address_refused", false);
		http_client_release(client, response);
	}
	http_client_destroy(client);
	server_stop(&server);
	assert_int_equal(server.connections, 0);
	assert_int_equal(server.requests, 0);
}

static void a_refused_address_is_explained(void **state)
{
	struct http_client *client = client_for(NULL);
	struct http_response *response = get(client, "https://cloud.test/latest/meta-data/");

	(void)state;
	assert_failure(response, "address_refused", false);
	assert_string_equal(response->error, "https://cloud.test:443: its address is refused "
					     "(metadata); where that is wanted, list its network");
	http_client_release(client, response);
	http_client_destroy(client);
}

static void a_name_that_changes_its_address_after_a_check_gains_nothing(void **state)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct http_networks one = networks("127.0.0.1");
	struct http_client *client = client_for(&one);
	struct server server;
	struct addrinfo *found;
	struct http_response *response;
	char url[64];

	(void)state;
	server_start(&server, say_yes, NULL);
	snprintf(url, sizeof url, "http://flip.test:%d/", server.port);
	assert_int_equal(getaddrinfo("flip.test", NULL, &hints, &found), 0);
	assert_null(http_guard_address(found->ai_addr, &one));
	freeaddrinfo(found);
	response = get(client, url);
	assert_failure(response, "address_refused", false);
	http_client_release(client, response);
	http_client_destroy(client);
	server_stop(&server);
	assert_int_equal(server.connections, 0);
	http_networks_finish(&one);
}

static void a_proxy_of_the_environment_is_not_taken(void **state)
{
	static const char *const variables[] = {
	    "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
	struct server proxy;
	struct pair pair;
	char url[64];
	struct http_response *response;

	(void)state;
	server_start(&proxy, say_yes, NULL);
	snprintf(url, sizeof url, "http://127.0.0.1:%d", proxy.port);
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		setenv(variables[i], url, 1);
	pair_start(&pair, say_yes);
	response = get(pair.client, pair.url);
	assert_answer(response, 200, "yes");
	assert_true(text_starts(pair.server.last, "GET /path HTTP/1.1\r\n"));
	http_client_release(pair.client, response);
	response = get(pair.client, "https://nowhere.test/");
	assert_failure(response, "resolve", false);
	http_client_release(pair.client, response);
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);
	pair_stop(&pair);
	server_stop(&proxy);
	assert_int_equal(proxy.connections, 0);
}

static void a_resolver_that_hangs_holds_up_nobody(void **state)
{
	struct http_limits short_one = limits;
	struct pair pair;
	struct http_response *response;
	int64_t begin = clock_ms();

	(void)state;
	short_one.timeout_ms = 200;
	hold_names(true);
	pair_start(&pair, say_yes);
	send_request(
	    pair.client, &(struct http_request){.url = "http://slow.test/", .limits = short_one});
	response = get(pair.client, pair.url);
	assert_answer(response, 200, "yes");
	http_client_release(pair.client, response);
	response = next_response(pair.client);
	assert_failure(response, "resolve_timeout", false);
	http_client_release(pair.client, response);
	/* Nor does one that is under way when the client goes. */
	send_request(
	    pair.client, &(struct http_request){.url = "http://slow.test:81/", .limits = limits});
	turn(pair.client);
	pair_stop(&pair);
	assert_in_range(clock_ms() - begin, 0, 10000);
	hold_names(false);
}

/* A listener whose queue is full answers nobody: one of its own keeps the others waiting. */
static void a_connection_that_is_not_made_in_time_is_no_request(void **state)
{
	struct sockaddr_in name = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof name;
	struct http_networks own = networks("127.0.0.1");
	struct http_client *client = client_for(&own);
	struct http_limits short_one = limits;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int filler[3];
	struct http_response *response;
	char url[64];

	(void)state;
	assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof name), 0);
	assert_int_equal(listen(listener, 0), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &length), 0);
	for (int i = 0; i < 3; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(filler[i], (struct sockaddr *)&name, sizeof name);
	}
	snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(name.sin_port));
	short_one.connect_timeout_ms = 200;
	response = ask(client, &(struct http_request){.url = url, .limits = short_one});
	assert_failure(response, "connect_timeout", false);
	http_client_release(client, response);
	for (int i = 0; i < 3; i++)
		close(filler[i]);
	close(listener);
	http_client_destroy(client);
	http_networks_finish(&own);
}

/* --- many -------------------------------------------------------------------------------- */

static void say_yes_after_a_while(struct peer *peer)
{
	while (server_read(peer) && !server_await_end(peer, 5) &&
	       server_say(peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"))
		;
}

static void hundreds_are_under_way_within_the_limits(void **state)
{
	struct pair pair;
	struct err err;
	char seen[300] = {0};

	(void)state;
	pair_start(&pair, say_yes_after_a_while);
	for (int i = 0; i < 300; i++)
		send_request(pair.client,
		    &(struct http_request){.url = pair.url, .limits = limits, .opaque = &seen[i]});
	assert_int_equal(http_client_in_flight(pair.client), 300);
	assert_false(http_client_send(
	    pair.client, &(struct http_request){.url = pair.url, .limits = limits}, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	for (int i = 0; i < 300; i++) {
		struct http_response *response = next_response(pair.client);
		assert_answer(response, 200, "yes");
		++*(char *)response->opaque;
		http_client_release(pair.client, response);
	}
	for (int i = 0; i < 300; i++)
		assert_int_equal(seen[i], 1);
	assert_null(http_client_take(pair.client));
	assert_int_equal(http_client_in_flight(pair.client), 0);
	assert_int_equal(pair.server.requests, 300);
	assert_in_range(pair.server.most_open, 2, 10);
	pair_stop(&pair);
}

static void a_request_that_only_waited_was_not_sent(void **state)
{
	struct http_limits short_one = limits;
	struct pair pair;

	(void)state;
	short_one.timeout_ms = 100;
	pair_start(&pair, read_and_never_answer);
	for (int i = 0; i < 10; i++)
		send_request(
		    pair.client, &(struct http_request){.url = pair.url, .limits = limits});
	while (pair.server.requests < 10)
		turn(pair.client);
	for (int i = 0; i < 5; i++)
		send_request(
		    pair.client, &(struct http_request){.url = pair.url, .limits = short_one});
	for (int i = 0; i < 5; i++) {
		struct http_response *response = next_response(pair.client);
		assert_failure(response, "queue_timeout", false);
		http_client_release(pair.client, response);
	}
	assert_int_equal(pair.server.requests, 10);
	pair_stop(&pair);
}

static void responses_may_be_held_while_others_come(void **state)
{
	struct pair pair;
	struct http_response *first, *second;

	(void)state;
	pair_start(&pair, say_yes);
	first = get(pair.client, pair.url);
	second = get(pair.client, pair.url);
	assert_ptr_not_equal(first, second);
	assert_answer(first, 200, "yes");
	assert_answer(second, 200, "yes");
	http_client_release(pair.client, second);
	assert_answer(first, 200, "yes");
	assert_int_equal(http_client_in_flight(pair.client), 1);
	pair_stop(&pair); /* with one taken and not released */
}

static void destroy_gives_up_what_is_under_way(void **state)
{
	struct pair pair;

	(void)state;
	pair_start(&pair, read_and_never_answer);
	for (int i = 0; i < 50; i++)
		send_request(
		    pair.client, &(struct http_request){.url = pair.url, .limits = limits});
	while (pair.server.requests < 10)
		turn(pair.client);
	pair_stop(&pair);
	http_client_destroy(NULL);
}

/* --- requests that are none -------------------------------------------------------------- */

static void a_header_cannot_smuggle_another(void **state)
{
	static const struct http_header wrong[] = {{"", "x"}, {"A B", "x"}, {"A:", "x"},
	    {"A\r\nB", "x"}, {"A", "x\r\nB: y"}, {"A", "x\n"}, {"A", "\x7f"}, {"A", "\x01"},
	    {"Host", "evil.org"}, {"host", "evil.org"}, {"Content-Length", "1"},
	    {"Transfer-Encoding", "chunked"}, {"Connection", "close"}, {"Expect", "100-continue"}};
	struct http_client *client = client_for(NULL);

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct err err;
		assert_false(http_client_send(client,
		    &(struct http_request){.url = "http://nowhere.test/",
			.headers = &wrong[i],
			.header_count = 1,
			.limits = limits},
		    &err));
		assert_int_equal(err.kind, ERR_REJECT);
	}
	assert_int_equal(http_client_in_flight(client), 0);
	http_client_destroy(client);
}

static void limits_that_are_none_are_refused(void **state)
{
	struct http_client_settings none = {.max_in_flight = 1, .max_connections = 1};
	struct http_limits no_time = limits;
	struct http_client *client = client_for(NULL);
	struct err err;

	(void)state;
	assert_null(http_client_create(&none, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	no_time.timeout_ms = 0;
	assert_false(http_client_send(client,
	    &(struct http_request){.url = "http://nowhere.test/", .limits = no_time}, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	http_client_destroy(client);
}

/* --- TLS --------------------------------------------------------------------------------- */

/* A key and a certificate that signs itself, for 127.0.0.1, in files. */
struct identity {
	char certificate_file[64], key_file[64];
};

static FILE *scratch(char *path, size_t size)
{
	int fd;

	snprintf(path, size, "/tmp/test_http_client.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	return fdopen(fd, "w");
}

static void add_extension(X509 *certificate, int nid, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

static X509 *certificate_of(EVP_PKEY *key, const char *name)
{
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_get_subject_name(certificate);

	X509_set_version(certificate, 2);
	ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate), clock_random() >> 8);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(
	    subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(certificate, subject);
	X509_set_pubkey(certificate, key);
	add_extension(certificate, NID_subject_alt_name, "IP:127.0.0.1");
	add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
	assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
	return certificate;
}

static struct identity identity_of(const char *name)
{
	struct identity identity;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = certificate_of(key, name);
	FILE *file = scratch(identity.certificate_file, sizeof identity.certificate_file);

	assert_int_equal(PEM_write_X509(file, certificate), 1);
	fclose(file);
	file = scratch(identity.key_file, sizeof identity.key_file);
	assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(file);
	X509_free(certificate);
	EVP_PKEY_free(key);
	return identity;
}

static void identity_finish(struct identity *identity)
{
	unlink(identity->certificate_file);
	unlink(identity->key_file);
}

static void assert_tls_failure(
    struct http_client *client, const char *url, const struct http_tls *tls)
{
	assert_ask_fails(
	    client, &(struct http_request){.url = url, .limits = limits, .tls = tls}, "tls", false);
}

/* No authority signed it, and it is for another name. */
static void a_pinned_certificate_is_enough_and_no_other(void **state)
{
	struct identity own = identity_of("server"), other = identity_of("other");
	struct http_tls right = {.pinned_file = own.certificate_file};
	struct http_tls wrong = {.pinned_file = other.certificate_file};
	struct http_tls key = {.pinned_file = own.key_file};
	struct http_tls missing = {.pinned_file = "/nonexistent/server.pem"};
	struct http_networks allowed = networks("127.0.0.0/8");
	struct http_client *client = client_for(&allowed);
	struct http_request request = {.limits = limits, .tls = &right};
	struct server server;
	struct http_response *response;
	struct err err;
	char url[64];

	(void)state;
	server_start(&server, say_yes,
	    &(struct server_tls){own.certificate_file, own.key_file, NULL, false});
	snprintf(url, sizeof url, "https://localhost:%d/", server.port);
	request.url = url;
	response = ask(client, &request);
	assert_answer(response, 200, "yes");
	http_client_release(client, response);

	request.tls = &wrong;
	response = ask(client, &request);
	assert_failure(response, "tls", false);
	assert_non_null(strstr(response->error, other.certificate_file));
	http_client_release(client, response);
	assert_tls_failure(client, url, NULL);

	request.tls = &key;
	assert_false(http_client_send(client, &request, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "holds no certificate"));
	request.tls = &missing;
	assert_false(http_client_send(client, &request, &err));
	assert_non_null(strstr(err.message, "/nonexistent/server.pem"));
	assert_int_equal(server.requests, 1);

	http_client_destroy(client);
	server_stop(&server);
	http_networks_finish(&allowed);
	identity_finish(&own);
	identity_finish(&other);
}

static void a_certificate_has_to_convince(void **state)
{
	struct identity own = identity_of("server"), other = identity_of("other");
	struct http_tls right = {.ca_file = own.certificate_file};
	struct http_tls wrong = {.ca_file = other.certificate_file};
	struct http_tls missing = {.ca_file = "/nonexistent/ca.pem"};
	struct http_networks allowed = networks("127.0.0.0/8");
	struct http_client *client = client_for(&allowed);
	struct server server;
	struct http_response *response;
	char url[64], renamed[64];

	(void)state;
	server_start(&server, say_yes,
	    &(struct server_tls){own.certificate_file, own.key_file, NULL, false});
	snprintf(url, sizeof url, "https://127.0.0.1:%d/", server.port);
	snprintf(renamed, sizeof renamed, "https://local.test:%d/", server.port);
	response = ask(client, &(struct http_request){.url = url, .limits = limits, .tls = &right});
	assert_answer(response, 200, "yes");
	http_client_release(client, response);
	/* The connection that convinced is still there, and not for those who ask for more. */
	assert_tls_failure(client, url, NULL);
	assert_tls_failure(client, url, &wrong);
	assert_tls_failure(client, url, &missing);
	assert_tls_failure(client, renamed, &right);
	assert_int_equal(server.requests, 1);
	http_client_destroy(client);
	server_stop(&server);
	http_networks_finish(&allowed);
	identity_finish(&own);
	identity_finish(&other);
}

static void a_client_shows_its_certificate(void **state)
{
	struct identity own = identity_of("server"), mine = identity_of("client");
	struct http_tls with = {own.certificate_file, mine.certificate_file, mine.key_file};
	struct http_tls without = {.ca_file = own.certificate_file};
	struct http_tls mixed = {own.certificate_file, mine.certificate_file, own.key_file};
	struct http_networks allowed = networks("127.0.0.0/8");
	struct http_client *client = client_for(&allowed);
	struct server server;
	struct http_response *response;
	char url[64];

	(void)state;
	server_start(&server, say_yes,
	    &(struct server_tls){own.certificate_file, own.key_file, mine.certificate_file, false});
	snprintf(url, sizeof url, "https://127.0.0.1:%d/", server.port);
	assert_tls_failure(client, url, &mixed);
	response = ask(client, &(struct http_request){.url = url, .limits = limits, .tls = &with});
	assert_answer(response, 200, "yes");
	http_client_release(client, response);
	assert_tls_failure(client, url, &without);
	assert_int_equal(server.requests, 1);
	http_client_destroy(client);
	server_stop(&server);
	http_networks_finish(&allowed);
	identity_finish(&own);
	identity_finish(&mine);
}

/* --- HTTP/2 ------------------------------------------------------------------------------ */

/* The shape of a gRPC answer: headers, a message, trailers. */
static bool answer_grpc(struct peer *peer, uint32_t stream)
{
	static const char *const headers[] = {":status", "200", "content-type", "application/grpc",
	    "grpc-status", "0", "x-thing", "a", NULL};
	static const char *const trailers[] = {"grpc-status", "5", NULL};

	return http2_headers(peer, 0, stream, headers) &&
	       http2_frame(peer, FRAME_DATA, 0, stream, "\0\0\0\0\3abc", 8) &&
	       http2_headers(peer, FLAG_END_STREAM, stream, trailers);
}

static void speak_http2(struct peer *peer)
{
	http2_speak(peer, answer_grpc);
}

static bool answer_nothing(struct peer *peer, uint32_t stream)
{
	(void)peer;
	(void)stream;
	return true;
}

static void listen_to_http2(struct peer *peer)
{
	http2_speak(peer, answer_nothing);
}

static struct http_request grpc(const struct pair *pair)
{
	static const struct http_header headers[] = {
	    {"Content-Type", "application/grpc"}, {"TE", "trailers"}};

	return (struct http_request){.method = HTTP_POST,
	    .protocol = HTTP_2,
	    .url = pair->url,
	    .headers = headers,
	    .header_count = 2,
	    .body = "\0\0\0\0\1x",
	    .body_length = 6,
	    .limits = limits};
}

static void assert_grpc_answers(
    struct http_client *client, const struct http_request *request, int count)
{
	for (int i = 0; i < count; i++)
		send_request(client, request);
	for (int i = 0; i < count; i++) {
		struct http_response *response = next_response(client);
		if (response->failure)
			fail_msg("%s: %s", response->failure, response->error);
		assert_true(response->sent);
		assert_int_equal(response->status, 200);
		assert_int_equal(response->body_length, 8);
		assert_memory_equal(response->body, "\0\0\0\0\3abc", 8);
		assert_string_equal(
		    http_response_header(response, "content-type"), "application/grpc");
		assert_string_equal(http_response_header(response, "grpc-status"), "0");
		assert_string_equal(http_response_trailer(response, "Grpc-Status"), "5");
		assert_null(http_response_trailer(response, "x-thing"));
		http_client_release(client, response);
	}
}

static void http2_is_spoken_at_once_without_tls(void **state)
{
	struct pair pair;
	struct http_request request;
	int connections;

	(void)state;
	pair_start(&pair, speak_http2);
	request = grpc(&pair);
	assert_grpc_answers(pair.client, &request, 50);
	connections = pair.server.connections;
	assert_in_range(connections, 1, 50);
	assert_grpc_answers(pair.client, &request, 1);
	assert_grpc_answers(pair.client, &request, 50);
	assert_int_equal(pair.server.requests, 101);
	assert_int_equal(pair.server.connections, connections);
	pair_stop(&pair);
}

static atomic_uint packets; /* with something in them, when the last request had come */

static bool answer_grpc_and_count(struct peer *peer, uint32_t stream)
{
	struct tcp_info info;
	socklen_t size = sizeof info;

	if (getsockopt(peer->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		return false;
	atomic_store(&packets, info.tcpi_data_segs_in);
	return answer_grpc(peer, stream);
}

static void speak_http2_and_count(struct peer *peer)
{
	http2_speak(peer, answer_grpc_and_count);
}

/* Each has a frame of headers and one of data. */
static void requests_of_http2_that_begin_together_share_packets(void **state)
{
	struct pair pair;
	struct http_request request;
	unsigned before;

	(void)state;
	pair_start(&pair, speak_http2_and_count);
	request = grpc(&pair);
	assert_grpc_answers(pair.client, &request, 1);
	before = packets;
	assert_grpc_answers(pair.client, &request, 50);
	assert_int_equal(pair.server.connections, 1);
	assert_in_range(packets - before, 1, 25);
	pair_stop(&pair);
}

/* Hangs up on the second request of a connection. */
static bool answer_grpc_once(struct peer *peer, uint32_t stream)
{
	return stream == 1 && answer_grpc(peer, stream);
}

static void speak_http2_once(struct peer *peer)
{
	http2_speak(peer, answer_grpc_once);
}

static void a_request_of_http2_whose_connection_broke_has_a_second_try(void **state)
{
	struct pair pair;
	struct http_request request;

	(void)state;
	pair_start(&pair, speak_http2_once);
	request = grpc(&pair);
	assert_grpc_answers(pair.client, &request, 1);
	assert_grpc_answers(pair.client, &request, 1);
	assert_int_equal(pair.server.connections, 2);
	assert_int_equal(pair.server.requests, 3);
	pair_stop(&pair);
}

static void requests_of_http2_share_a_connection(void **state)
{
	struct identity own = identity_of("server");
	struct http_tls tls = {.ca_file = own.certificate_file};
	struct http_networks allowed = networks("127.0.0.0/8");
	struct pair pair = {.client = client_for(&allowed)};
	struct http_request request = grpc(&pair);

	(void)state;
	server_start(&pair.server, speak_http2,
	    &(struct server_tls){own.certificate_file, own.key_file, NULL, true});
	snprintf(pair.url, sizeof pair.url, "https://127.0.0.1:%d/path", pair.server.port);
	request.tls = &tls;
	assert_grpc_answers(pair.client, &request, 50);
	assert_grpc_answers(pair.client, &request, 1);
	assert_int_equal(pair.server.requests, 51);
	assert_int_equal(pair.server.connections, 1);
	http_client_destroy(pair.client);
	server_stop(&pair.server);
	http_networks_finish(&allowed);
	identity_finish(&own);
}

static void http2_without_an_answer_was_sent(void **state)
{
	struct pair pair;
	struct http_request request;

	(void)state;
	pair_start(&pair, listen_to_http2);
	request = grpc(&pair);
	request.limits.timeout_ms = 200;
	assert_ask_fails(pair.client, &request, "timeout", true);
	pair_stop(&pair);
}

static atomic_bool may_refuse;

/* Refuses the first request at once, and later ones when the test lets it. */
static bool refuse_stream(struct peer *peer, uint32_t stream)
{
	static const char nothing_handled[8];

	(void)stream;
	while (peer->server->requests > 1 && !may_refuse)
		usleep(1000);
	http2_frame(peer, FRAME_GOAWAY, 0, 0, nothing_handled, sizeof nothing_handled);
	return false;
}

static void refuse_streams(struct peer *peer)
{
	http2_speak(peer, refuse_stream);
}

static void refused_streams_are_not_sent_even_if_the_time_is_over(void **state)
{
	enum { TIMEOUT_MS = 2500, SLOW_TURN_US = 200000 };
	struct pair pair;
	struct http_request request;
	struct http_response *response;
	int64_t over;

	(void)state;
	pair_start(&pair, refuse_streams);
	request = grpc(&pair);
	request.limits.timeout_ms = TIMEOUT_MS;
	send_request(pair.client, &request);
	over = clock_ms() + TIMEOUT_MS;
	/*
	 * The timeout of libcurl begins a turn later than that of the client, so that libcurl reads
	 * the second refusal between the two.
	 */
	while (pair.server.requests < 2) {
		usleep(SLOW_TURN_US);
		turn(pair.client);
	}
	may_refuse = true;
	while (clock_ms() <= over)
		usleep(1000);

	response = next_response(pair.client);
	assert_failure(response, "closed", false);
	http_client_release(pair.client, response);
	pair_stop(&pair);
}

static void a_server_of_http1_does_not_answer_http2(void **state)
{
	struct pair pair;
	struct http_request request;

	(void)state;
	pair_start(&pair, answer_in_another_tongue);
	request = grpc(&pair);
	assert_ask_fails(pair.client, &request, "closed", true);
	pair_stop(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_request_is_answered),
	    cmocka_unit_test(nothing_is_added_to_an_empty_post),
	    cmocka_unit_test(a_connection_is_used_again),
	    cmocka_unit_test(a_kept_connection_that_was_closed_costs_nothing),
	    cmocka_unit_test(only_the_final_answer_counts_and_its_trailers),
	    cmocka_unit_test(a_time_to_come_again_is_read),
	    cmocka_unit_test(a_redirect_is_an_answer_and_a_cookie_is_forgotten),
	    cmocka_unit_test(no_answer_is_a_timeout_of_a_request_that_was_sent),
	    cmocka_unit_test(an_answer_in_drops_is_given_up),
	    cmocka_unit_test(an_answer_that_stands_still_is_given_up),
	    cmocka_unit_test(to_think_before_an_answer_is_not_to_be_slow),
	    cmocka_unit_test(an_endless_body_is_given_up),
	    cmocka_unit_test(a_body_that_is_announced_too_long_is_not_waited_for),
	    cmocka_unit_test(a_body_of_the_greatest_length_is_whole),
	    cmocka_unit_test(headers_without_end_are_given_up),
	    cmocka_unit_test(a_connection_that_ends_in_mid_answer_is_told),
	    cmocka_unit_test(garbage_is_told),
	    cmocka_unit_test(nobody_listens_is_no_request),
	    cmocka_unit_test(a_name_without_an_address_is_no_request),
	    cmocka_unit_test(what_is_no_http_url_is_no_request),
	    cmocka_unit_test(this_machine_is_refused_however_it_is_written),
	    cmocka_unit_test(a_refused_address_is_explained),
	    cmocka_unit_test(a_name_that_changes_its_address_after_a_check_gains_nothing),
	    cmocka_unit_test(a_proxy_of_the_environment_is_not_taken),
	    cmocka_unit_test(a_resolver_that_hangs_holds_up_nobody),
	    cmocka_unit_test(a_connection_that_is_not_made_in_time_is_no_request),
	    cmocka_unit_test(hundreds_are_under_way_within_the_limits),
	    cmocka_unit_test(a_request_that_only_waited_was_not_sent),
	    cmocka_unit_test(responses_may_be_held_while_others_come),
	    cmocka_unit_test(destroy_gives_up_what_is_under_way),
	    cmocka_unit_test(a_header_cannot_smuggle_another),
	    cmocka_unit_test(limits_that_are_none_are_refused),
	    cmocka_unit_test(a_pinned_certificate_is_enough_and_no_other),
	    cmocka_unit_test(a_certificate_has_to_convince),
	    cmocka_unit_test(a_client_shows_its_certificate),
	    cmocka_unit_test(http2_is_spoken_at_once_without_tls),
	    cmocka_unit_test(requests_of_http2_that_begin_together_share_packets),
	    cmocka_unit_test(a_request_of_http2_whose_connection_broke_has_a_second_try),
	    cmocka_unit_test(requests_of_http2_share_a_connection),
	    cmocka_unit_test(http2_without_an_answer_was_sent),
	    cmocka_unit_test(refused_streams_are_not_sent_even_if_the_time_is_over),
	    cmocka_unit_test(a_server_of_http1_does_not_answer_http2),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
