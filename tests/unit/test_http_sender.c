/* The HTTP sender with a server of the test's own, and without an inbox. */
#include "http_sender.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "clock.h"
#include "nasty_server.h"
#include "text.h"

enum { MESSAGES = 200, LONG_MS = 20000 };

/* --- an application, a section and its messages ---------------------------------------------- */

static char nothing[] = "", name[] = "billing", origin[] = "relay.ini:1", local[] = "127.0.0.0/8";

struct world {
	struct server server;
	struct config_deliver section;
	struct deliver_metrics *metrics;
	struct http_sender *sender;
	char url[64];
	struct outbox_inbox_message messages[MESSAGES];
	char ids[MESSAGES][8];

	pthread_mutex_t mutex; /* guards what follows */
	int ended[MESSAGES];
	enum outbox_inbox_result results[MESSAGES];
	char reasons[MESSAGES][200];
	pthread_t thread; /* that told the last end */
};

static void finish(void *context, const struct outbox_inbox_end *ends, size_t count)
{
	struct world *world = context;

	pthread_mutex_lock(&world->mutex);
	for (size_t i = 0; i < count; i++) {
		uint64_t number = ends[i].ticket;

		world->ended[number]++;
		world->results[number] = ends[i].result;
		text_copy(world->reasons[number], sizeof world->reasons[number], ends[i].reason);
	}
	world->thread = pthread_self();
	pthread_mutex_unlock(&world->mutex);
}

static bool holds(void *context, uint64_t ticket)
{
	(void)context, (void)ticket;
	return true;
}

static struct config_deliver section_at(char *url)
{
	return (struct config_deliver){.name = name,
	    .origin = origin,
	    .url = url,
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
	    .event_source = nothing,
	    .event_type = nothing,
	    .connections = 4,
	    .timeout_ms = LONG_MS,
	    .connect_timeout_ms = LONG_MS,
	    .max_answer = 65536,
	    .retry_after_max_ms = 60000,
	    .breaker_failures = 1000,
	    .breaker_pause_ms = 1000};
}

static void make_messages(struct world *world)
{
	for (int i = 0; i < MESSAGES; i++) {
		snprintf(world->ids[i], sizeof world->ids[i], "%d", i);
		world->messages[i] = (struct outbox_inbox_message){.ticket = (uint64_t)i,
		    .topic = "orders",
		    .id = world->ids[i],
		    .id_length = strlen(world->ids[i]),
		    .payload = "{}",
		    .payload_length = 2};
	}
}

static void begin(struct world *world, conversation *serve)
{
	struct err err;

	*world = (struct world){.mutex = PTHREAD_MUTEX_INITIALIZER};
	server_start(&world->server, serve, NULL);
	snprintf(world->url, sizeof world->url, "http://127.0.0.1:%d/", world->server.port);
	world->section = section_at(world->url);
	make_messages(world);
	world->metrics = deliver_metrics_create(name);
	world->sender = http_sender_start(
	    &(struct http_sender_options){&world->section, world->metrics, holds, finish, world},
	    &err);
	if (!world->sender)
		fail_msg("%s", err.message);
}

static void end(struct world *world)
{
	http_sender_rest(world->sender, 0);
	http_sender_stop(world->sender);
	deliver_metrics_destroy(world->metrics);
	server_stop(&world->server);
}

static void submit(struct world *world, int number)
{
	http_sender_submit(world->sender,
	    (const struct outbox_inbox_message *const[]){&world->messages[number]}, 1);
}

static int ended(struct world *world, int number)
{
	int times;

	pthread_mutex_lock(&world->mutex);
	times = world->ended[number];
	pthread_mutex_unlock(&world->mutex);
	return times;
}

static void wait_ended(struct world *world, int number)
{
	for (int64_t until = clock_ms() + LONG_MS; !ended(world, number); usleep(1000))
		if (clock_ms() > until)
			fail_msg("%d does not end", number);
}

static void wait_in_flight(struct world *world, int count)
{
	int64_t until = clock_ms() + LONG_MS;

	for (; http_sender_status(world->sender).figures.in_flight < count; usleep(1000))
		if (clock_ms() > until)
			fail_msg("%d requests are not under way", count);
}

/* A request is in flight before the server has read it. */
static void wait_received(struct world *world, int count)
{
	int64_t until = clock_ms() + LONG_MS;

	for (; world->server.requests < count; usleep(1000))
		if (clock_ms() > until)
			fail_msg("the server has not received %d requests", count);
}

static void say_yes(struct peer *peer)
{
	while (server_read(peer))
		if (!server_say(peer, "HTTP/1.1 204 No Content\r\n\r\n"))
			return;
}

static void say_nothing(struct peer *peer)
{
	if (server_read(peer))
		server_await_end(peer, LONG_MS);
}

static void say_late(struct peer *peer)
{
	while (server_read(peer)) {
		usleep(300000);
		if (!server_say(peer, "HTTP/1.1 204 No Content\r\n\r\n"))
			return;
	}
}

/* --------------------------------------------------------------------------------------------- */

static void expect_each_done_by_its_own_request(struct world *world)
{
	for (int i = 0; i < MESSAGES; i++)
		wait_ended(world, i);
	end(world);
	for (int i = 0; i < MESSAGES; i++) {
		assert_int_equal(world->ended[i], 1);
		assert_int_equal(world->results[i], OUTBOX_INBOX_DONE);
	}
	assert_int_equal(world->server.requests, MESSAGES);
}

static void each_message_that_is_submitted_ends_once(void **state)
{
	struct world world;

	(void)state;
	begin(&world, say_yes);
	for (int i = 0; i < MESSAGES; i++)
		submit(&world, i);
	expect_each_done_by_its_own_request(&world);
	assert_true(world.server.most_open <= 4);
}

/* form = single, and they are submitted in one call. */
static void messages_that_come_together_have_a_request_each(void **state)
{
	const struct outbox_inbox_message *together[MESSAGES];
	struct world world;

	(void)state;
	begin(&world, say_yes);
	for (int i = 0; i < MESSAGES; i++)
		together[i] = &world.messages[i];
	http_sender_submit(world.sender, together, MESSAGES);
	expect_each_done_by_its_own_request(&world);
}

static void what_is_under_way_ends_by_itself_before_it_rests(void **state)
{
	struct world world;

	(void)state;
	begin(&world, say_late);
	submit(&world, 0);
	wait_in_flight(&world, 1);
	http_sender_rest(world.sender, LONG_MS);
	assert_int_equal(world.ended[0], 1);
	assert_int_equal(world.results[0], OUTBOX_INBOX_DONE);
	end(&world);
}

static void what_is_under_way_for_too_long_and_what_waits_was_not_tried(void **state)
{
	struct world world;

	(void)state;
	begin(&world, say_nothing);
	for (int i = 0; i < 6; i++)
		submit(&world, i);
	wait_in_flight(&world, 4);
	http_sender_rest(world.sender, 50);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(world.ended[i], 1);
		assert_int_equal(world.results[i], OUTBOX_INBOX_WAIT);
	}
	assert_string_equal(world.reasons[0], "no answer came before the end");
	end(&world);
}

static void what_comes_while_it_rests_ends_at_once_on_the_same_thread(void **state)
{
	struct world world;

	(void)state;
	begin(&world, say_yes);
	http_sender_rest(world.sender, 0);
	submit(&world, 0);
	assert_int_equal(world.ended[0], 1);
	assert_int_equal(world.results[0], OUTBOX_INBOX_WAIT);
	assert_true(pthread_equal(world.thread, pthread_self()));
	http_sender_work(world.sender);
	submit(&world, 1);
	wait_ended(&world, 1);
	assert_int_equal(world.results[1], OUTBOX_INBOX_DONE);
	end(&world);
	assert_int_equal(world.server.requests, 1);
}

static void it_sends_again_after_it_gave_requests_up(void **state)
{
	struct world world;

	(void)state;
	begin(&world, say_nothing);
	submit(&world, 0);
	wait_received(&world, 1);
	http_sender_rest(world.sender, 0);
	assert_int_equal(world.results[0], OUTBOX_INBOX_WAIT);
	http_sender_work(world.sender);
	submit(&world, 1);
	wait_received(&world, 2);
	http_sender_rest(world.sender, 0);
	assert_int_equal(world.ended[1], 1);
	end(&world);
	assert_int_equal(world.server.requests, 2);
}

static void an_application_that_is_not_there_costs_no_attempt(void **state)
{
	struct world world;

	(void)state;
	begin(&world, say_yes);
	server_stop(&world.server);
	submit(&world, 0);
	wait_ended(&world, 0);
	assert_int_equal(world.results[0], OUTBOX_INBOX_WAIT);
	if (!text_starts(world.reasons[0], "connect: "))
		fail_msg("%s", world.reasons[0]);
	server_start(&world.server, say_yes, NULL);
	end(&world);
}

static void an_address_that_is_not_listed_is_not_connected_to(void **state)
{
	struct world world;
	struct err err;

	(void)state;
	begin(&world, say_yes);
	http_sender_rest(world.sender, 0);
	http_sender_stop(world.sender);
	world.section.networks = nothing;
	world.sender = http_sender_start(
	    &(struct http_sender_options){&world.section, world.metrics, holds, finish, &world},
	    &err);
	assert_non_null(world.sender);
	submit(&world, 0);
	wait_ended(&world, 0);
	assert_int_equal(world.results[0], OUTBOX_INBOX_WAIT);
	assert_true(text_starts(world.reasons[0], "address_refused: "));
	end(&world);
	assert_int_equal(world.server.connections, 0);
}

static void a_section_that_cannot_work_is_refused_with_its_place(void **state)
{
	struct config_deliver section = section_at(nothing);
	struct err err;

	(void)state;
	assert_false(http_sender_check(&section, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_string_equal(err.message, "relay.ini:1: [deliver \"billing\"] url: it is empty; say "
					 "where messages are posted to");
	assert_null(http_sender_start(
	    &(struct http_sender_options){&section, NULL, holds, finish, NULL}, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_message_that_is_submitted_ends_once),
	    cmocka_unit_test(messages_that_come_together_have_a_request_each),
	    cmocka_unit_test(what_is_under_way_ends_by_itself_before_it_rests),
	    cmocka_unit_test(what_is_under_way_for_too_long_and_what_waits_was_not_tried),
	    cmocka_unit_test(what_comes_while_it_rests_ends_at_once_on_the_same_thread),
	    cmocka_unit_test(it_sends_again_after_it_gave_requests_up),
	    cmocka_unit_test(an_application_that_is_not_there_costs_no_attempt),
	    cmocka_unit_test(an_address_that_is_not_listed_is_not_connected_to),
	    cmocka_unit_test(a_section_that_cannot_work_is_refused_with_its_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
