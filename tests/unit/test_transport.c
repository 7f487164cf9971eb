/*
 * What a service says that no decent server can be made to say, and what transports promise whoever
 * the other side is. The rest is in tests/integration/test_lookback_{http,grpc,sql}.py.
 */
#include "transport.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "clock.h"
#include "nasty_http2.h"
#include "text.h"

/* --- a service and who asks it --------------------------------------------------------------- */

static char origin[] = "relay.ini:1", name[] = "shop", nothing[] = "", local[] = "127.0.0.0/8",
	    function[] = "lookback_check";

static struct config_check settings(enum check_transport transport, char *url)
{
	return (struct config_check){.name = name,
	    .origin = origin,
	    .transport = transport,
	    .url = url,
	    .name_servers = nothing,
	    .dsn = nothing,
	    .function = function,
	    .allow = nothing,
	    .networks = local,
	    .secret = nothing,
	    .old_secret = nothing,
	    .credentials = {.token_url = nothing,
		.client_id = nothing,
		.client_secret = nothing,
		.scope = nothing,
		.audience = nothing,
		.token_ca = nothing},
	    .tls_ca = nothing,
	    .tls_certificate = nothing,
	    .tls_key = nothing,
	    .read_only = 1,
	    .timeout_ms = 20000,
	    .connect_timeout_ms = 20000,
	    .max_answer = 65536,
	    .host_in_flight = 8};
}

static const struct check_id ids[] = {
    {"7", "2024-05-06T07:08:09Z", 1}, {"8", "2024-05-06T07:08:09Z", 2}};

struct fixture {
	struct server server;
	struct config_check check;
	const struct transport_kind *kind;
	struct transport *transport;
	char url[64];
};

static void fixture_start(
    struct fixture *fixture, enum check_transport transport, conversation *serve)
{
	struct err err;

	server_start(&fixture->server, serve, NULL);
	snprintf(fixture->url, sizeof fixture->url, "http://127.0.0.1:%d/", fixture->server.port);
	fixture->check = settings(transport, fixture->url);
	fixture->kind = transport_kind_of(transport);
	fixture->transport = fixture->kind->open(&fixture->check, &err);
	if (!fixture->transport)
		fail_msg("%s", err.message);
}

static void fixture_stop(struct fixture *fixture)
{
	fixture->kind->close(fixture->transport);
	server_stop(&fixture->server);
}

static void ask(struct fixture *fixture, const struct check_question *question)
{
	struct err err;

	if (!fixture->kind->ask(fixture->transport, question, &err))
		fail_msg("%s", err.message);
}

static void turn(struct fixture *fixture)
{
	struct pollfd one = {.fd = fixture->kind->fd(fixture->transport), .events = POLLIN};
	int64_t wait = fixture->kind->deadline(fixture->transport) - clock_ms();

	poll(&one, 1, wait < 0 ? 0 : wait > 1000 ? 1000 : (int)wait);
	fixture->kind->step(fixture->transport, clock_ms());
}

static struct check_answer *next_answer(struct fixture *fixture)
{
	int64_t patience = clock_ms() + 30000;
	struct check_answer *answer;

	while (!(answer = fixture->kind->take(fixture->transport))) {
		assert_true(clock_ms() < patience);
		turn(fixture);
	}
	return answer;
}

static const struct check_question one = {.biz_type = "order", .ids = ids, .id_count = 1};

/* What becomes of one question: the failure (NULL: none) and the word. */
static void assert_comes_to_in(int requests, enum check_transport transport, conversation *serve,
    const char *failure, enum check_word word)
{
	struct fixture fixture;
	struct check_answer *answer;

	fixture_start(&fixture, transport, serve);
	ask(&fixture, &one);
	answer = next_answer(&fixture);
	if (!text_equal(answer->failure, failure) || answer->words[0] != word)
		fail_msg("%s, %s: %s", answer->failure ? answer->failure : "-",
		    check_words[answer->words[0]], answer->error);
	assert_true(answer->sent && answer->reached);
	assert_true(!failure || strlen(answer->error) > 10);
	fixture.kind->release(fixture.transport, answer);
	assert_int_equal(fixture.server.requests, requests);
	fixture_stop(&fixture);
}

static void assert_comes_to(
    enum check_transport transport, conversation *serve, const char *failure, enum check_word word)
{
	assert_comes_to_in(1, transport, serve, failure, word);
}

/* --- gRPC ------------------------------------------------------------------------------------ */

/* {answers: [{"7", COMMIT}]}, in its frame. */
#define RIGHT "\0\0\0\0\7\n\5\n\0017\20\2"
enum { RIGHT_LENGTH = sizeof RIGHT - 1 };

#define GRPC ":status", "200", "content-type", "application/grpc"

static const char *const grpc_headers[] = {GRPC, NULL};
static const char *const grpc_ok[] = {"grpc-status", "0", NULL};

static bool answer_with(struct peer *peer, uint32_t stream, const char *const *headers,
    const char *body, size_t length, const char *const *trailers)
{
	return http2_headers(peer, 0, stream, headers) &&
	       http2_frame(peer, FRAME_DATA, 0, stream, body, length) &&
	       http2_headers(peer, FLAG_END_STREAM, stream, trailers);
}

/* A conversation and the only thing it says. */
#define SAYS(conversation_name, ...)                                                               \
	static bool answer_##conversation_name(struct peer *peer, uint32_t stream)                 \
	{                                                                                          \
		return __VA_ARGS__;                                                                \
	}                                                                                          \
	static void conversation_name(struct peer *peer)                                           \
	{                                                                                          \
		http2_speak(peer, answer_##conversation_name);                                     \
	}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

SAYS(say_commit, answer_with(peer, stream, grpc_headers, RIGHT, RIGHT_LENGTH, grpc_ok))
SAYS(say_commit_as_proto,
    answer_with(peer, stream, LIST(":status", "200", "content-type", "application/grpc+proto"),
	RIGHT, RIGHT_LENGTH, grpc_ok))
SAYS(say_ok_too_early, answer_with(peer, stream, LIST(GRPC, "grpc-status", "0"), RIGHT,
			   RIGHT_LENGTH, LIST("x-other", "1")))
SAYS(say_ok_and_then_not, answer_with(peer, stream, LIST(GRPC, "grpc-status", "0"), RIGHT,
			      RIGHT_LENGTH, LIST("grpc-status", "3")))
SAYS(say_no_status, http2_headers(peer, 0, stream, grpc_headers) &&
			http2_frame(peer, FRAME_DATA, FLAG_END_STREAM, stream, RIGHT, RIGHT_LENGTH))
SAYS(say_a_word_for_a_status,
    answer_with(peer, stream, grpc_headers, RIGHT, RIGHT_LENGTH, LIST("grpc-status", "OK")))
SAYS(say_an_empty_status,
    answer_with(peer, stream, grpc_headers, RIGHT, RIGHT_LENGTH, LIST("grpc-status", "")))
SAYS(say_a_status_of_tomorrow,
    answer_with(peer, stream, grpc_headers, RIGHT, RIGHT_LENGTH, LIST("grpc-status", "77")))
SAYS(say_it_in_html, answer_with(peer, stream, LIST(":status", "200", "content-type", "text/html"),
			 RIGHT, RIGHT_LENGTH, grpc_ok))
SAYS(say_it_for_the_web,
    answer_with(peer, stream, LIST(":status", "200", "content-type", "application/grpc-web"), RIGHT,
	RIGHT_LENGTH, grpc_ok))
SAYS(say_it_without_a_type,
    answer_with(peer, stream, LIST(":status", "200"), RIGHT, RIGHT_LENGTH, grpc_ok))
SAYS(say_not_found,
    answer_with(peer, stream, LIST(":status", "404", "content-type", "application/grpc"), RIGHT,
	RIGHT_LENGTH, grpc_ok))
SAYS(say_it_twice, answer_with(peer, stream, grpc_headers, RIGHT RIGHT, 2 * RIGHT_LENGTH, grpc_ok))
SAYS(say_half, answer_with(peer, stream, grpc_headers, RIGHT, RIGHT_LENGTH - 1, grpc_ok))
SAYS(say_too_little, answer_with(peer, stream, grpc_headers, RIGHT, 4, grpc_ok))
SAYS(say_it_compressed,
    answer_with(peer, stream, grpc_headers, "\1\0\0\0\7\n\5\n\0017\20\2", RIGHT_LENGTH, grpc_ok))
SAYS(say_a_huge_length, answer_with(peer, stream, grpc_headers,
			    "\0\377\377\377\377\n\5\n\0017\20\2", RIGHT_LENGTH, grpc_ok))
SAYS(say_it_bare, answer_with(peer, stream, grpc_headers, &RIGHT[5], RIGHT_LENGTH - 5, grpc_ok))
SAYS(say_only_ok, http2_headers(peer, FLAG_END_STREAM, stream, LIST(GRPC, "grpc-status", "0")))
SAYS(say_only_no, http2_headers(peer, FLAG_END_STREAM, stream, LIST(GRPC, "grpc-status", "5")))

static void a_grpc_answer_is_a_frame_and_a_status(void **state)
{
	(void)state;
	assert_comes_to(CHECK_GRPC, say_commit, NULL, CHECK_COMMIT);
	assert_comes_to(CHECK_GRPC, say_commit_as_proto, NULL, CHECK_COMMIT);
}

static void a_grpc_status_counts_where_it_belongs_alone(void **state)
{
	(void)state;
	assert_comes_to(CHECK_GRPC, say_ok_too_early, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_ok_and_then_not, "status", CHECK_UNKNOWN);
	assert_comes_to_in(2, CHECK_GRPC, say_no_status, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_a_word_for_a_status, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_an_empty_status, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_a_status_of_tomorrow, "status", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_only_ok, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_only_no, "status", CHECK_UNKNOWN);
}

static void what_is_no_grpc_decides_nothing(void **state)
{
	(void)state;
	assert_comes_to(CHECK_GRPC, say_it_in_html, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_it_for_the_web, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_it_without_a_type, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_not_found, "status", CHECK_UNKNOWN);
}

static void a_grpc_frame_that_is_none_decides_nothing(void **state)
{
	(void)state;
	assert_comes_to(CHECK_GRPC, say_it_twice, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_half, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_too_little, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_it_compressed, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_a_huge_length, "answer", CHECK_UNKNOWN);
	assert_comes_to(CHECK_GRPC, say_it_bare, "answer", CHECK_UNKNOWN);
}

/* --- any transport --------------------------------------------------------------------------- */

static void say_commit_in_json(struct peer *peer)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
				     "Content-Length: 37\r\n\r\n"
				     "{\"biz_id\": \"7\", \"decision\": \"commit\"}";

	while (server_read(peer) && server_say(peer, answer))
		;
}

static void an_answer_is_kept_until_it_is_released(void **state)
{
	struct fixture fixture;
	struct check_question questions[3];
	struct check_answer *answers[3];

	(void)state;
	fixture_start(&fixture, CHECK_HTTP, say_commit_in_json);
	for (int i = 0; i < 3; i++) {
		questions[i] = one;
		questions[i].opaque = &questions[i];
		ask(&fixture, &questions[i]);
	}
	for (int i = 0; i < 3; i++)
		answers[i] = next_answer(&fixture);
	for (int i = 0; i < 3; i++) {
		assert_in_range((struct check_question *)answers[i]->opaque - questions, 0, 2);
		assert_int_equal(answers[i]->words[0], CHECK_COMMIT);
		fixture.kind->release(fixture.transport, answers[i]);
	}
	assert_null(fixture.kind->take(fixture.transport));
	fixture_stop(&fixture);
}

static void read_and_never_answer(struct peer *peer)
{
	if (server_read(peer))
		server_await_end(peer, -1);
}

static void to_close_gives_up_what_is_under_way(void **state)
{
	static const struct check_question two = {.biz_type = "order", .ids = ids, .id_count = 2};
	struct fixture fixture;

	(void)state;
	fixture_start(&fixture, CHECK_HTTP, read_and_never_answer);
	for (int i = 0; i < 5; i++)
		ask(&fixture, i % 2 ? &one : &two);
	while (fixture.server.requests < 5)
		turn(&fixture);
	fixture_stop(&fixture);
	for (int i = CHECK_HTTP; i <= CHECK_SQL; i++)
		transport_kind_of((enum check_transport)i)->close(NULL);
}

/* --- tokens ---------------------------------------------------------------------------------- */

static char client[] = "relay", client_secret[] = "geheim";

static void use_token_server(
    struct fixture *fixture, const struct server *server, char *token_url, size_t size)
{
	struct err err;

	fixture->kind->close(fixture->transport);
	snprintf(token_url, size, "http://127.0.0.1:%d/token", server->port);
	fixture->check.credentials.token_url = token_url;
	fixture->check.credentials.client_id = client;
	fixture->check.credentials.client_secret = client_secret;
	fixture->transport = fixture->kind->open(&fixture->check, &err);
	if (!fixture->transport)
		fail_msg("%s", err.message);
}

static void give_short_tokens(struct peer *peer)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\n"
				     "{\"access_token\": \"abc\",\"expires_in\":1}";

	while (server_read(peer) && server_say(peer, answer))
		;
}

/* One call at a time may be made, and the token comes beside it. */
static void a_request_for_a_token_takes_up_no_place_of_a_call(void **state)
{
	struct fixture fixture;
	struct server tokens;
	struct check_answer *answer;
	char token_url[64];
	struct err err;

	(void)state;
	server_start(&tokens, give_short_tokens, NULL);
	fixture_start(&fixture, CHECK_HTTP, say_commit_in_json);
	fixture.check.host_in_flight = 1;
	use_token_server(&fixture, &tokens, token_url, sizeof token_url);
	ask(&fixture, &one);
	assert_false(fixture.kind->ask(fixture.transport, &one, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	answer = next_answer(&fixture);
	assert_int_equal(answer->words[0], CHECK_COMMIT);
	fixture.kind->release(fixture.transport, answer);
	fixture_stop(&fixture);
	server_stop(&tokens);
}

static void a_call_waits_for_its_token_no_longer_than_its_timeout(void **state)
{
	struct fixture fixture;
	struct server tokens;
	struct check_answer *answer;
	char token_url[64];
	int64_t began = clock_ms();

	(void)state;
	server_start(&tokens, read_and_never_answer, NULL);
	fixture_start(&fixture, CHECK_HTTP, say_commit_in_json);
	fixture.check.timeout_ms = 300;
	use_token_server(&fixture, &tokens, token_url, sizeof token_url);
	ask(&fixture, &one);
	answer = next_answer(&fixture);
	assert_string_equal(answer->failure, "token");
	assert_string_equal(answer->error, "token_url gave no token within timeout");
	assert_false(answer->sent || answer->reached);
	/* The request for the token itself may take 10 s. */
	assert_in_range(clock_ms() - began, 300, 5000);
	fixture.kind->release(fixture.transport, answer);
	assert_int_equal(fixture.server.requests, 0);
	fixture_stop(&fixture);
	server_stop(&tokens);
}

static void break_off_late(struct peer *peer)
{
	char bytes[64];

	if (server_read_some(peer, bytes, sizeof bytes))
		server_await_end(peer, 1000);
}

/* A token lives 900 ms for the relay; one address breaks off after a second. */
static void no_other_address_is_tried_with_an_old_token(void **state)
{
	struct fixture fixture;
	struct server tokens, bad;
	struct check_answer *answer;
	char token_url[64], list[80];

	(void)state;
	server_start(&tokens, give_short_tokens, NULL);
	server_start(&bad, break_off_late, NULL);
	fixture_start(&fixture, CHECK_GRPC, say_commit);
	snprintf(
	    list, sizeof list, "grpc://127.0.0.1:%d,127.0.0.1:%d", bad.port, fixture.server.port);
	fixture.check.url = list;
	fixture.check.breaker_failures = 1000;
	use_token_server(&fixture, &tokens, token_url, sizeof token_url);
	for (int before = 0; bad.connections == 0;) {
		ask(&fixture, &one);
		answer = next_answer(&fixture);
		if (bad.connections) {
			assert_non_null(answer->failure);
			assert_string_equal(answer->failure, "closed");
			assert_int_equal(fixture.server.requests, before);
		} else
			assert_int_equal(answer->words[0], CHECK_COMMIT);
		before = fixture.server.requests;
		fixture.kind->release(fixture.transport, answer);
	}
	fixture_stop(&fixture);
	server_stop(&bad);
	server_stop(&tokens);
}

/* --- databases ------------------------------------------------------------------------------- */

/* A server of another protocol: it listens, and says nothing. */
static void to_close_gives_up_what_waits_for_a_database(void **state)
{
	struct server server;
	char dsn[64];
	struct config_check check = settings(CHECK_SQL, nothing);
	struct transport *transport;
	struct err err;

	(void)state;
	server_start(&server, read_and_never_answer, NULL);
	snprintf(dsn, sizeof dsn, "host=127.0.0.1 port=%d", server.port);
	check.dsn = dsn;
	check.networks = nothing;
	transport = transport_kind_of(CHECK_SQL)->open(&check, &err);
	assert_non_null(transport);
	for (int i = 0; i < 8; i++)
		assert_true(transport_kind_of(CHECK_SQL)->ask(transport, &one, &err));
	assert_false(transport_kind_of(CHECK_SQL)->ask(transport, &one, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	for (int i = 0; i < 3; i++)
		transport_kind_of(CHECK_SQL)->step(transport, clock_ms());
	transport_kind_of(CHECK_SQL)->close(transport);
	server_stop(&server);
}

static void words_are_taken_as_they_are_spelled_alone(void **state)
{
	(void)state;
	assert_int_equal(check_word_of("commit", 6), CHECK_COMMIT);
	assert_int_equal(check_word_of("rollbackx", 8), CHECK_ROLLBACK);
	assert_int_equal(check_word_of("pending", 7), CHECK_PENDING);
	assert_int_equal(check_word_of("unknown", 7), CHECK_UNKNOWN);
	assert_int_equal(check_word_of("commit", 5), CHECK_WORDS);
	assert_int_equal(check_word_of("commit\0", 7), CHECK_WORDS);
	assert_int_equal(check_word_of("Commit", 6), CHECK_WORDS);
	assert_int_equal(check_word_of("", 0), CHECK_WORDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(words_are_taken_as_they_are_spelled_alone),
	    cmocka_unit_test(a_grpc_answer_is_a_frame_and_a_status),
	    cmocka_unit_test(a_grpc_status_counts_where_it_belongs_alone),
	    cmocka_unit_test(what_is_no_grpc_decides_nothing),
	    cmocka_unit_test(a_grpc_frame_that_is_none_decides_nothing),
	    cmocka_unit_test(an_answer_is_kept_until_it_is_released),
	    cmocka_unit_test(to_close_gives_up_what_is_under_way),
	    cmocka_unit_test(a_request_for_a_token_takes_up_no_place_of_a_call),
	    cmocka_unit_test(a_call_waits_for_its_token_no_longer_than_its_timeout),
	    cmocka_unit_test(no_other_address_is_tried_with_an_old_token),
	    cmocka_unit_test(to_close_gives_up_what_waits_for_a_database),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
