#include "dispatch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MESSAGES = 64, PAUSE_MS = 30000 };

/* Messages by number, whose tickets are their numbers, and what became of them. */
struct world {
	struct dispatch *dispatch;
	struct outbox_inbox_message messages[MESSAGES];
	char ids[MESSAGES][8];
	bool lost[MESSAGES]; /* its partition */
	int ended[MESSAGES];
	struct outbox_inbox_end ends[MESSAGES];
	char reasons[MESSAGES][400];
};

static void finish(void *context, const struct outbox_inbox_end *ends, size_t count)
{
	struct world *world = context;

	for (size_t i = 0; i < count; i++) {
		uint64_t number = ends[i].ticket;

		world->ended[number]++;
		world->ends[number] = ends[i];
		snprintf(world->reasons[number], sizeof world->reasons[number], "%s",
		    ends[i].reason ? ends[i].reason : "");
	}
}

static bool holds(void *context, uint64_t ticket)
{
	const struct world *world = context;

	return !world->lost[ticket];
}

static struct dispatch_settings settings(enum deliver_form form)
{
	return (struct dispatch_settings){.wire = {form, DELIVER_BINARY, {"", ""}},
	    .judge = {form, 60000},
	    .connections = 2,
	    .breaker_failures = 3,
	    .breaker_pause_ms = PAUSE_MS,
	    .holds = holds,
	    .finish = finish};
}

static void begin(struct world *world, struct dispatch_settings with)
{
	*world = (struct world){0};
	with.context = world;
	world->dispatch = dispatch_create(&with, 0);
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

static void add(struct world *world, int first, int count)
{
	const struct outbox_inbox_message *messages[MESSAGES];

	for (int i = 0; i < count; i++)
		messages[i] = &world->messages[first + i];
	dispatch_add(world->dispatch, messages, (size_t)count);
}

static const char *answer(struct world *world, int64_t now, struct parcel *parcel, int status)
{
	const struct deliver_response response = {
	    .status = status, .retry_after_ms = -1, .body = ""};

	return dispatch_answered(world->dispatch, now, parcel, &response);
}

static uint64_t first_of(const struct parcel *parcel)
{
	assert_non_null(parcel);
	return parcel->messages[0]->ticket;
}

static void assert_ended(const struct world *world, int number, enum outbox_inbox_result result)
{
	if (world->ended[number] != 1 || world->ends[number].result != result)
		fail_msg("%d ended %d times, as %d", number, world->ended[number],
		    (int)world->ends[number].result);
}

/* Three failures in a row, of messages 0 to 2. */
static void trip(struct world *world, int64_t now)
{
	for (int i = 0; i < 3; i++) {
		add(world, i, 1);
		answer(world, now, dispatch_next(world->dispatch, now), 500);
		assert_ended(world, i, OUTBOX_INBOX_RETRY);
	}
	assert_int_equal(dispatch_figures(world->dispatch, now).breaker, BREAKER_OPEN);
}

/* -------------------------------------------------------------------------------------------- */

static void messages_are_sent_in_their_order_on_so_many_connections(void **state)
{
	struct world world;
	struct parcel *first, *second;

	(void)state;
	begin(&world, settings(DELIVER_SINGLE));
	assert_null(dispatch_next(world.dispatch, 0));
	assert_int_equal(dispatch_deadline(world.dispatch, 0), INT64_MAX);
	for (int i = 0; i < 3; i++)
		add(&world, i, 1);
	first = dispatch_next(world.dispatch, 0);
	second = dispatch_next(world.dispatch, 0);
	assert_int_equal(first_of(first), 0);
	assert_int_equal(first_of(second), 1);
	assert_null(dispatch_next(world.dispatch, 0));
	assert_int_equal(dispatch_figures(world.dispatch, 0).in_flight, 2);
	assert_string_equal(answer(&world, 5, second, 200), "2xx");
	assert_ended(&world, 1, OUTBOX_INBOX_DONE);
	assert_null(world.ends[1].reason);
	second = dispatch_next(world.dispatch, 5);
	assert_int_equal(first_of(second), 2);
	answer(&world, 6, first, 422);
	answer(&world, 6, second, 409);
	assert_ended(&world, 0, OUTBOX_INBOX_DEAD);
	assert_string_equal(world.reasons[0], "status 422");
	assert_ended(&world, 2, OUTBOX_INBOX_DUPLICATE);
	assert_int_equal(dispatch_figures(world.dispatch, 6).messages, 0);
	dispatch_destroy(world.dispatch);
}

static void messages_that_came_together_travel_together(void **state)
{
	struct world world;
	struct parcel *parcel;
	const char body[] = "[{\"id\":\"1\",\"status\":503},{\"id\":\"0\",\"status\":200}]";

	(void)state;
	begin(&world, settings(DELIVER_BATCH));
	add(&world, 0, 3);
	parcel = dispatch_next(world.dispatch, 0);
	assert_int_equal(parcel->count, 3);
	dispatch_answered(world.dispatch, 0, parcel,
	    &(struct deliver_response){
		.status = 200, .retry_after_ms = -1, .body = body, .length = strlen(body)});
	assert_ended(&world, 0, OUTBOX_INBOX_DONE);
	assert_ended(&world, 1, OUTBOX_INBOX_RETRY);
	assert_ended(&world, 2, OUTBOX_INBOX_RETRY);
	dispatch_destroy(world.dispatch);
}

static void a_batch_that_is_refused_is_sent_apart_and_only_who_is_refused_alone_is_dead(
    void **state)
{
	struct world world;
	struct parcel *parcel;

	(void)state;
	begin(&world, settings(DELIVER_BATCH));
	add(&world, 0, 3);
	add(&world, 3, 2);
	assert_string_equal(answer(&world, 0, dispatch_next(world.dispatch, 0), 413), "4xx");
	assert_int_equal(dispatch_figures(world.dispatch, 0).messages, 5);
	for (int i = 0; i < 3; i++) {
		parcel = dispatch_next(world.dispatch, 0);
		assert_int_equal(parcel->count, 1);
		assert_int_equal(first_of(parcel), i);
		answer(&world, 0, parcel, i == 1 ? 413 : 200);
	}
	assert_ended(&world, 0, OUTBOX_INBOX_DONE);
	assert_ended(&world, 1, OUTBOX_INBOX_DEAD);
	assert_ended(&world, 2, OUTBOX_INBOX_DONE);
	assert_int_equal(dispatch_next(world.dispatch, 0)->count, 2);
	dispatch_destroy(world.dispatch);
}

static void two_events_with_the_same_id_never_share_a_request(void **state)
{
	struct world world;

	(void)state;
	begin(&world, settings(DELIVER_BATCH));
	world.messages[1].id = "0";
	add(&world, 0, 2);
	assert_int_equal(dispatch_next(world.dispatch, 0)->count, 1);
	assert_int_equal(dispatch_next(world.dispatch, 0)->count, 1);
	assert_int_equal(dispatch_figures(world.dispatch, 0).messages, 2);
	dispatch_destroy(world.dispatch);
}

static void no_more_requests_begin_in_a_second_than_the_rate(void **state)
{
	struct dispatch_settings slow = settings(DELIVER_SINGLE);
	struct world world;
	int64_t due;

	(void)state;
	slow.rate = 10;
	begin(&world, slow);
	add(&world, 0, 1);
	add(&world, 1, 1);
	answer(&world, 0, dispatch_next(world.dispatch, 0), 200);
	assert_null(dispatch_next(world.dispatch, 0));
	due = dispatch_deadline(world.dispatch, 0);
	assert_in_range(due, 100, 101);
	assert_null(dispatch_next(world.dispatch, due - 2));
	assert_int_equal(first_of(dispatch_next(world.dispatch, due)), 1);
	dispatch_destroy(world.dispatch);
}

static void while_the_breaker_is_open_messages_wait_and_are_not_tried(void **state)
{
	struct world world;

	(void)state;
	begin(&world, settings(DELIVER_SINGLE));
	trip(&world, 0);
	add(&world, 10, 1);
	assert_null(dispatch_next(world.dispatch, 1000));
	assert_ended(&world, 10, OUTBOX_INBOX_WAIT);
	assert_int_equal(world.ends[10].after_ms, PAUSE_MS - 1000);
	assert_int_equal(dispatch_figures(world.dispatch, 1000).messages, 0);
	dispatch_destroy(world.dispatch);
}

static void one_probe_finds_out_and_lets_the_others_through(void **state)
{
	struct world world;
	struct parcel *probe;

	(void)state;
	begin(&world, settings(DELIVER_SINGLE));
	trip(&world, 0);
	add(&world, 10, 1);
	add(&world, 11, 1);
	probe = dispatch_next(world.dispatch, PAUSE_MS);
	assert_int_equal(first_of(probe), 10);
	assert_null(dispatch_next(world.dispatch, PAUSE_MS));
	assert_int_equal(dispatch_deadline(world.dispatch, PAUSE_MS), INT64_MAX);
	assert_int_equal(world.ended[11], 0);
	answer(&world, PAUSE_MS + 5, probe, 400); /* it is there */
	assert_int_equal(first_of(dispatch_next(world.dispatch, PAUSE_MS + 5)), 11);
	assert_int_equal(dispatch_figures(world.dispatch, PAUSE_MS + 5).breaker, BREAKER_CLOSED);
	dispatch_destroy(world.dispatch);
}

static void a_probe_that_fails_opens_it_again_for_those_behind_it(void **state)
{
	struct world world;
	struct parcel *probe;

	(void)state;
	begin(&world, settings(DELIVER_SINGLE));
	trip(&world, 0);
	add(&world, 10, 1);
	add(&world, 11, 1);
	probe = dispatch_next(world.dispatch, PAUSE_MS);
	answer(&world, PAUSE_MS + 100, probe, 503);
	assert_ended(&world, 10, OUTBOX_INBOX_RETRY);
	assert_null(dispatch_next(world.dispatch, PAUSE_MS + 100));
	assert_ended(&world, 11, OUTBOX_INBOX_WAIT);
	assert_int_equal(world.ends[11].after_ms, PAUSE_MS);
	dispatch_destroy(world.dispatch);
}

static void what_has_no_room_goes_first_the_next_time(void **state)
{
	struct dispatch_settings limited = settings(DELIVER_SINGLE);
	struct world world;
	struct parcel *parcel;

	(void)state;
	limited.rate = 1;
	begin(&world, limited);
	add(&world, 0, 1);
	add(&world, 1, 1);
	dispatch_put_back(world.dispatch, dispatch_next(world.dispatch, 0), 0);
	assert_int_equal(world.ended[0], 0);
	parcel = dispatch_next(world.dispatch, 0); /* the token was given back as well */
	assert_int_equal(first_of(parcel), 0);
	answer(&world, 0, parcel, 200);
	assert_ended(&world, 0, OUTBOX_INBOX_DONE);
	dispatch_destroy(world.dispatch);
}

static void what_cannot_be_sent_failed_and_says_why(void **state)
{
	struct world world;

	(void)state;
	begin(&world, settings(DELIVER_SINGLE));
	for (int i = 0; i < 4; i++) {
		add(&world, i, 1);
		dispatch_refused(world.dispatch, dispatch_next(world.dispatch, 0), 0, "no header");
		assert_ended(&world, i, OUTBOX_INBOX_RETRY);
	}
	assert_string_equal(world.reasons[0], "no header");
	/* which is not the application's fault */
	assert_int_equal(dispatch_figures(world.dispatch, 0).breaker, BREAKER_CLOSED);
	dispatch_destroy(world.dispatch);
}

static void what_waits_ends_when_it_is_drained_and_what_is_under_way_may_be_abandoned(void **state)
{
	struct world world;

	(void)state;
	begin(&world, settings(DELIVER_BATCH));
	add(&world, 0, 2);
	assert_non_null(dispatch_next(world.dispatch, 0));
	add(&world, 2, 1);
	dispatch_drain(world.dispatch, 777);
	assert_ended(&world, 2, OUTBOX_INBOX_WAIT);
	assert_int_equal(world.ends[2].after_ms, 777);
	assert_int_equal(world.ended[0], 0);
	dispatch_abandon(world.dispatch, 0, "the end");
	assert_ended(&world, 0, OUTBOX_INBOX_WAIT);
	assert_ended(&world, 1, OUTBOX_INBOX_WAIT);
	assert_string_equal(world.reasons[1], "the end");
	assert_int_equal(dispatch_figures(world.dispatch, 0).messages, 0);
	assert_int_equal(dispatch_figures(world.dispatch, 0).in_flight, 0);
	dispatch_destroy(world.dispatch);
}

static void what_somebody_else_has_by_now_is_not_sent(void **state)
{
	struct world world;
	struct parcel *parcel;

	(void)state;
	begin(&world, settings(DELIVER_BATCH));
	add(&world, 0, 3);
	add(&world, 3, 2);
	add(&world, 5, 1);
	dispatch_put_back(world.dispatch, dispatch_next(world.dispatch, 0), 0); /* is written */
	world.lost[1] = world.lost[3] = world.lost[4] = true;
	parcel = dispatch_next(world.dispatch, 0);
	assert_int_equal(parcel->count, 2);
	assert_int_equal(parcel->messages[1]->ticket, 2);
	assert_non_null(strstr(parcel->request.body, "\"id\":\"2\""));
	assert_null(strstr(parcel->request.body, "\"id\":\"1\""));
	assert_ended(&world, 1, OUTBOX_INBOX_WAIT);
	assert_int_equal(first_of(dispatch_next(world.dispatch, 0)), 5);
	assert_ended(&world, 3, OUTBOX_INBOX_WAIT);
	assert_ended(&world, 4, OUTBOX_INBOX_WAIT);
	assert_int_equal(dispatch_figures(world.dispatch, 0).messages, 3);
	answer(&world, 0, parcel, 200);
	assert_ended(&world, 2, OUTBOX_INBOX_DONE);
	world.lost[6] = true;
	add(&world, 6, 1);
	assert_null(dispatch_next(world.dispatch, 0));
	assert_ended(&world, 6, OUTBOX_INBOX_WAIT);
	dispatch_destroy(world.dispatch);
}

static void fail_to_connect(struct world *world, int64_t now, struct parcel *parcel, bool tried)
{
	dispatch_answered(world->dispatch, now, parcel,
	    &(struct deliver_response){.failure = "why", .error = "", .tried = tried, .body = ""});
}

/* A message alone, through an hour in which nobody answers; returns the attempts that it costs. */
static int attempts_of_an_hour(bool tried)
{
	struct world world;
	int attempts = 0;

	begin(&world, settings(DELIVER_SINGLE));
	for (int64_t now = 0; now < 3600 * 1000; now += world.ends[0].after_ms + 100) {
		struct parcel *parcel;

		world.ended[0] = 0;
		add(&world, 0, 1);
		if ((parcel = dispatch_next(world.dispatch, now)))
			fail_to_connect(&world, now, parcel, tried);
		assert_int_equal(world.ended[0], 1);
		attempts += world.ends[0].result == OUTBOX_INBOX_RETRY;
	}
	dispatch_destroy(world.dispatch);
	return attempts;
}

static void an_application_that_is_away_for_an_hour_costs_no_attempt(void **state)
{
	(void)state;
	assert_int_equal(attempts_of_an_hour(false), 0);
	/* one that takes requests and does not answer: those before it is known that it is so */
	assert_int_equal(attempts_of_an_hour(true), 3);
}

/* --- by chance ------------------------------------------------------------------------------- */

enum { SEEDS = 300, TURNS = 400, CONNECTIONS = 4 };

struct chance {
	uint64_t state;
};

static int draw(struct chance *chance, int below)
{
	chance->state = chance->state * 6364136223846793005u + 1442695040888963407u;
	return (int)((chance->state >> 33) % (uint64_t)below);
}

/* Messages by number are used again once they ended. */
struct life {
	struct world world;
	struct chance chance;
	int64_t now;
	int most;              /* messages that come together */
	bool is_out[MESSAGES]; /* with the dispatch */
	struct parcel *sent[CONNECTIONS];
	int sent_count;
};

static void live_add(struct life *life)
{
	const struct outbox_inbox_message *messages[4];
	size_t count = 0, most = 1 + (size_t)draw(&life->chance, life->most);

	for (int i = 0; i < MESSAGES && count < most; i++) {
		int number = draw(&life->chance, MESSAGES);

		if (life->is_out[number])
			continue;
		life->is_out[number] = true;
		life->world.ended[number] = 0;
		messages[count++] = &life->world.messages[number];
	}
	if (count > 0)
		dispatch_add(life->world.dispatch, messages, count);
}

static void live_send(struct life *life)
{
	struct parcel *parcel = dispatch_next(life->world.dispatch, life->now);
	struct dispatch_figures figures = dispatch_figures(life->world.dispatch, life->now);

	if (!parcel)
		return;
	assert_true(life->sent_count < CONNECTIONS);
	assert_int_not_equal(figures.breaker, BREAKER_OPEN);
	if (figures.breaker == BREAKER_HALF_OPEN)
		assert_true(parcel->probe);
	assert_false(deliver_request_is_ambiguous(&parcel->request));
	life->sent[life->sent_count++] = parcel;
	assert_int_equal(figures.in_flight, life->sent_count);
}

static void live_end(struct life *life)
{
	static const int statuses[] = {200, 204, 409, 413, 422, 429, 500, 503, 0};
	int place = life->sent_count > 0 ? draw(&life->chance, life->sent_count) : -1;
	struct deliver_response response = {.retry_after_ms = draw(&life->chance, 3) - 1,
	    .error = "",
	    .body = draw(&life->chance, 2) ? "" : "[]"};
	struct parcel *parcel;

	if (place < 0)
		return;
	parcel = life->sent[place];
	life->sent[place] = life->sent[--life->sent_count];
	response.length = strlen(response.body);
	response.status = statuses[draw(&life->chance, 9)];
	response.failure = response.status ? NULL : "timeout";
	if (draw(&life->chance, 20) == 0)
		dispatch_put_back(life->world.dispatch, parcel, life->now);
	else if (draw(&life->chance, 20) == 0)
		dispatch_refused(life->world.dispatch, parcel, life->now, "no");
	else
		dispatch_answered(life->world.dispatch, life->now, parcel, &response);
}

/* Returns how many are with the dispatch. */
static size_t live_check(struct life *life)
{
	size_t out = 0;

	for (int i = 0; i < MESSAGES; i++) {
		if (life->world.ended[i] > 1)
			fail_msg("%d ended %d times", i, life->world.ended[i]);
		if (life->world.ended[i] == 1)
			life->is_out[i] = false;
		out += life->is_out[i];
	}
	assert_int_equal(dispatch_figures(life->world.dispatch, life->now).messages, out);
	return out;
}

static void live(uint64_t seed)
{
	struct life life = {.chance = {seed}, .most = seed % 2 ? 4 : 1};
	struct dispatch_settings with = settings(seed % 2 ? DELIVER_BATCH : DELIVER_SINGLE);

	with.connections = CONNECTIONS;
	with.breaker_pause_ms = 50;
	with.rate = seed % 3 ? 0 : 100;
	begin(&life.world, with);
	if (seed % 5 == 0)
		life.world.messages[1].id = life.world.messages[2].id;
	for (int i = 0; i < TURNS; i++) {
		switch (draw(&life.chance, 4)) {
		case 0:
			live_add(&life);
			break;
		case 1:
			life.now += draw(&life.chance, 30);
			break;
		case 2:
			live_send(&life);
			break;
		default:
			live_end(&life);
		}
		live_check(&life);
	}
	dispatch_drain(life.world.dispatch, 1);
	dispatch_abandon(life.world.dispatch, life.now, "the end");
	assert_int_equal(live_check(&life), 0);
	dispatch_destroy(life.world.dispatch);
}

static void whatever_happens_each_message_ends_once_and_limits_hold(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		live(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_are_sent_in_their_order_on_so_many_connections),
	    cmocka_unit_test(messages_that_came_together_travel_together),
	    cmocka_unit_test(
		a_batch_that_is_refused_is_sent_apart_and_only_who_is_refused_alone_is_dead),
	    cmocka_unit_test(two_events_with_the_same_id_never_share_a_request),
	    cmocka_unit_test(no_more_requests_begin_in_a_second_than_the_rate),
	    cmocka_unit_test(while_the_breaker_is_open_messages_wait_and_are_not_tried),
	    cmocka_unit_test(one_probe_finds_out_and_lets_the_others_through),
	    cmocka_unit_test(a_probe_that_fails_opens_it_again_for_those_behind_it),
	    cmocka_unit_test(what_has_no_room_goes_first_the_next_time),
	    cmocka_unit_test(what_cannot_be_sent_failed_and_says_why),
	    cmocka_unit_test(
		what_waits_ends_when_it_is_drained_and_what_is_under_way_may_be_abandoned),
	    cmocka_unit_test(what_somebody_else_has_by_now_is_not_sent),
	    cmocka_unit_test(an_application_that_is_away_for_an_hour_costs_no_attempt),
	    cmocka_unit_test(whatever_happens_each_message_ends_once_and_limits_hold),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
