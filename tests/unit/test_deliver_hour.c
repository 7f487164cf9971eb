/*
 * An hour and more of a [deliver] section whose application is away for most of it, a seed at a
 * time: the dispatch, and around it what the inbox does, with its key queues, timers and back-off.
 * The application refuses, fails, says what makes no sense, is slow, does a thing and loses the
 * answer.
 *
 * Of each message it is known beforehand what may become of it. What is checked: a message is asked
 * about only when all before it of its key have ended; each answer means what it should; each
 * message ends once; those that are dead are those that were refused, or tried ATTEMPTS times.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backoff.h"
#include "dispatch.h"
#include "key_queues.h"
#include "timers.h"

enum {
	SEEDS = 40,
	MESSAGES = 1200,
	KEYS = 25,
	BATCH = 8,
	CONNECTIONS = 4,
	FAILURES = 5,
	PAUSE_MS = 30000,
	ATTEMPTS = 10,
	HOUR_MS = 3600000,
	END_MS = 4 * HOUR_MS,
};

/* What the application does with a message, whenever it is there. */
enum kind { TAKES, REFUSES, FAILS, WAITS_ONCE, HAD_IT, KINDS };

struct hour_message {
	struct item item; /* first; its offset is the number, its key_hash the key */
	char id[12];
	enum kind kind;
	enum outbox_inbox_result wanted; /* of the answer that comes */
	bool apart;                      /* none: it is sent once more, alone */
	bool asked, waited;
	int tries, effects, ends; /* ends: for good */
	bool dead;
	struct hour_message *before; /* of its key */
};

struct request {
	struct parcel *parcel;
	int64_t at; /* of its answer */
	bool away;  /* when it came to the application */
	struct hour_message *messages[BATCH];
	size_t count;
};

struct world {
	uint64_t chance;
	int64_t now, away_from, away_to;
	struct hour_message *messages;
	int arrived, ended, dead, in_outage;
	struct key_queues key_queues;
	struct timers timers;
	struct item_list ready;
	struct dispatch *dispatch;
	enum deliver_form form;
	struct request requests[CONNECTIONS];
	int request_count;
	struct outbox_inbox_end ends[MESSAGES];
	size_t end_count;
};

static int64_t draw(struct world *world, int64_t below)
{
	world->chance = world->chance * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((world->chance >> 33) % (uint64_t)below);
}

/* --- the inbox ------------------------------------------------------------------------------- */

static void take_end(void *context, const struct outbox_inbox_end *ends, size_t count)
{
	struct world *world = context;

	for (size_t i = 0; i < count; i++)
		world->ends[world->end_count++] = ends[i];
}

static void leave(struct world *world, struct hour_message *message, bool dead)
{
	struct item *next = key_queues_leave(&world->key_queues, &message->item);

	message->ends++;
	message->dead = dead;
	world->ended++;
	world->dead += dead;
	if (next)
		item_list_add(&world->ready, next);
}

static void rest(struct world *world, struct hour_message *message, int64_t wait_ms)
{
	message->item.due_ms = world->now + wait_ms;
	timers_add(&world->timers, &message->item);
}

static void try_again(struct world *world, struct hour_message *message)
{
	struct backoff backoff = {.first_ms = 100,
	    .cap_ms = 60000,
	    .jitter = 0.2,
	    .attempts = message->tries,
	    .seed = (uint64_t)draw(world, INT32_MAX)};

	message->tries++;
	if (message->tries == ATTEMPTS)
		leave(world, message, true);
	else
		rest(world, message, backoff_next_ms(&backoff));
}

static void end(struct world *world, const struct outbox_inbox_end *told)
{
	struct hour_message *message = &world->messages[told->ticket];

	if (!message->asked) /* the breaker is open */
		assert_int_equal(told->result, OUTBOX_INBOX_WAIT);
	else if (message->wanted != told->result)
		fail_msg("%s ended as %d, and not as %d", message->id, (int)told->result,
		    (int)message->wanted);
	message->asked = false;
	if (told->result == OUTBOX_INBOX_RETRY)
		try_again(world, message);
	else if (told->result == OUTBOX_INBOX_WAIT) {
		assert_in_range(told->after_ms, 1, PAUSE_MS);
		rest(world, message, told->after_ms);
	} else
		leave(world, message, told->result == OUTBOX_INBOX_DEAD);
}

static void take_ends(struct world *world)
{
	for (size_t i = 0; i < world->end_count; i++)
		end(world, &world->ends[i]);
	world->end_count = 0;
}

static void hand_out(struct world *world)
{
	const struct outbox_inbox_message *some[BATCH];
	size_t most = world->form == DELIVER_BATCH ? BATCH : 1, count;

	do {
		count = 0;
		for (struct item *item; count < most && (item = item_list_take(&world->ready));)
			some[count++] = &item->public;
		if (count)
			dispatch_add(world->dispatch, some, count);
	} while (count);
}

static void arrive(struct world *world)
{
	struct hour_message *message = &world->messages[world->arrived++];

	if (key_queues_add(&world->key_queues, &message->item))
		item_list_add(&world->ready, &message->item);
}

/* --- the application ------------------------------------------------------------------------- */

static bool is_away(const struct world *world)
{
	return world->now >= world->away_from && world->now < world->away_to;
}

static void ask(struct world *world, struct parcel *parcel)
{
	struct request *request = &world->requests[world->request_count++];

	*request =
	    (struct request){.parcel = parcel, .away = is_away(world), .count = parcel->count};
	request->at = world->now + (draw(world, 50) ? 1 + draw(world, 300) : 10000);
	world->in_outage += request->away;
	for (size_t i = 0; i < parcel->count; i++) {
		struct hour_message *message = &world->messages[parcel->messages[i]->ticket];

		request->messages[i] = message;
		assert_false(message->asked && !message->apart);
		assert_int_equal(message->ends, 0);
		for (struct hour_message *other = message->before; other; other = other->before)
			assert_int_equal(other->ends, 1);
		message->asked = true;
		message->apart = false;
	}
}

static int status_of(struct hour_message *message)
{
	switch (message->kind) {
	case REFUSES:
		message->wanted = OUTBOX_INBOX_DEAD;
		return 422;
	case FAILS:
		message->wanted = OUTBOX_INBOX_RETRY;
		return 500;
	case WAITS_ONCE:
		if (message->waited)
			break;
		message->waited = true;
		message->wanted = OUTBOX_INBOX_WAIT;
		return 503;
	case HAD_IT:
		message->wanted = OUTBOX_INBOX_DUPLICATE;
		return 409;
	default:
		break;
	}
	message->wanted = message->effects++ ? OUTBOX_INBOX_DUPLICATE : OUTBOX_INBOX_DONE;
	return message->effects > 1 ? 409 : 200;
}

static void want(struct request *request, enum outbox_inbox_result wanted)
{
	for (size_t i = 0; i < request->count; i++)
		request->messages[i]->wanted = wanted;
}

/* All of them are tried again; what never reached the application does not count as tried. */
static void answer_nonsense(
    struct world *world, struct request *request, bool reached, struct deliver_response *response)
{
	static const char *const bodies[] = {"[", "{}", "[{\"id\":\"nobody\",\"status\":200}]",
	    "[{\"id\":7,\"status\":200}]", "[1]", "<html>"};
	int64_t what = draw(world, world->form == DELIVER_BATCH ? 4 : 3);

	*response = (struct deliver_response){.retry_after_ms = -1, .error = "", .body = ""};
	response->status = what == 0 ? 0 : what == 1 ? 500 + (int)draw(world, 5) : 408;
	if (what == 0) {
		response->failure = "timeout";
		response->error = "no answer";
		response->tried = reached;
	} else if (what == 3) {
		response->status = 200;
		response->body = bodies[draw(world, sizeof bodies / sizeof *bodies)];
	}
	reached = reached && !request->parcel->probe; /* that failed for all of them */
	want(request, what == 0 && !reached ? OUTBOX_INBOX_WAIT : OUTBOX_INBOX_RETRY);
}

static void answer_each(struct world *world, struct request *request, struct text *body)
{
	text_add(body, "[");
	for (size_t i = 0; i < request->count; i++) {
		struct hour_message *message = request->messages[i];
		bool silent = draw(world, 30) == 0;
		int status = silent ? 0 : status_of(message);

		if (silent) {
			message->wanted = OUTBOX_INBOX_RETRY;
			continue;
		}
		text_addf(body, "%s{\"id\":\"%s\",\"status\":%d%s}", body->length > 1 ? "," : "",
		    message->id, status, status == 503 ? ",\"retry_after\":3" : "");
	}
	text_add(body, "]");
}

/* A whole batch is refused, which is said of none of its messages. */
static void refuse_all(struct request *request, struct deliver_response *response)
{
	response->status = 413;
	for (size_t i = 0; i < request->count; i++)
		request->messages[i]->apart = true;
}

static void answer(struct world *world, struct request request)
{
	OWNED(text_finish) struct text body = {0};
	struct deliver_response response = {.retry_after_ms = -1, .error = "", .body = ""};
	bool lost = draw(world, 40) == 0;

	if (request.away || is_away(world))
		answer_nonsense(world, &request, draw(world, 2), &response);
	else if (world->form == DELIVER_BATCH && request.count > 1 && draw(world, 10) == 0)
		refuse_all(&request, &response);
	else if (world->form == DELIVER_BATCH) {
		answer_each(world, &request, &body);
		response.status = 200;
		response.body = text_string(&body);
	} else {
		response.status = status_of(request.messages[0]);
		response.retry_after_ms = response.status == 503 ? 3000 : -1;
	}
	if (lost && !request.messages[0]->apart) /* it is done, and nobody knows */
		answer_nonsense(world, &request, true, &response);
	response.length = strlen(response.body);
	dispatch_answered(world->dispatch, world->now, request.parcel, &response);
}

/* Rebalances are the inbox's matter. */
static bool holds(void *context, uint64_t ticket)
{
	(void)context;
	(void)ticket;
	return true;
}

/* --- the hour -------------------------------------------------------------------------------- */

static struct world *begin(uint64_t seed)
{
	struct world *world = calloc(1, sizeof *world);
	struct hour_message *last[KEYS] = {NULL};
	struct dispatch_settings settings = {.connections = CONNECTIONS,
	    .breaker_failures = FAILURES,
	    .breaker_pause_ms = PAUSE_MS,
	    .holds = holds,
	    .finish = take_end,
	    .context = world};

	world->chance = seed * 0x9e3779b97f4a7c15u;
	world->form = seed % 2 ? DELIVER_BATCH : DELIVER_SINGLE;
	world->away_from = draw(world, HOUR_MS / 6);
	world->away_to = world->away_from + HOUR_MS / 2 + draw(world, HOUR_MS);
	settings.wire = (struct deliver_wire){world->form, DELIVER_BINARY, {"", ""}};
	settings.judge = (struct deliver_judge){world->form, PAUSE_MS};
	world->dispatch = dispatch_create(&settings, 0);
	key_queues_init(&world->key_queues, KEYS);
	world->messages = calloc(MESSAGES, sizeof *world->messages);
	for (int i = 0; i < MESSAGES; i++) {
		struct hour_message *message = &world->messages[i];
		int64_t key = draw(world, KEYS), kind = draw(world, 100);

		snprintf(message->id, sizeof message->id, "m%d", i);
		message->kind = kind < KINDS ? (enum kind)kind : TAKES;
		message->before = last[key];
		last[key] = message;
		message->item.key_hash = (uint64_t)key;
		message->item.public = (struct outbox_inbox_message){.ticket = (uint64_t)i,
		    .topic = "orders",
		    .offset = i,
		    .id = message->id,
		    .id_length = strlen(message->id),
		    .payload = "{}",
		    .payload_length = 2};
	}
	return world;
}

static int64_t earlier(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

static int64_t next_time(const struct world *world)
{
	int64_t next =
	    earlier(timers_next(&world->timers), dispatch_deadline(world->dispatch, world->now));

	if (world->arrived < MESSAGES)
		next = earlier(next, (int64_t)world->arrived * HOUR_MS / MESSAGES);
	for (int i = 0; i < world->request_count; i++)
		next = earlier(next, world->requests[i].at);
	return next;
}

static void answer_due(struct world *world)
{
	for (int i = 0; i < world->request_count;) {
		struct request request = world->requests[i];

		if (request.at > world->now) {
			i++;
			continue;
		}
		world->requests[i] = world->requests[--world->request_count];
		answer(world, request);
		take_ends(world);
	}
}

static void step(struct world *world)
{
	struct parcel *parcel;

	while (
	    world->arrived < MESSAGES && (int64_t)world->arrived * HOUR_MS / MESSAGES <= world->now)
		arrive(world);
	for (struct item *item; (item = timers_take(&world->timers, world->now));)
		item_list_add(&world->ready, item);
	answer_due(world);
	hand_out(world);
	while (world->request_count < CONNECTIONS &&
	       (parcel = dispatch_next(world->dispatch, world->now)))
		ask(world, parcel);
	take_ends(world);
}

static void judge(const struct world *world)
{
	int64_t probes = (world->away_to - world->away_from) / PAUSE_MS;
	int dead = 0;

	for (int i = 0; i < MESSAGES; i++) {
		const struct hour_message *message = &world->messages[i];
		bool refused = message->kind == REFUSES && message->tries < ATTEMPTS;

		assert_int_equal(message->ends, 1);
		assert_in_range(message->tries, 0, ATTEMPTS);
		if (message->dead != (refused || message->tries == ATTEMPTS))
			fail_msg("%s is %sdead after %d tries", message->id,
			    message->dead ? "" : "not ", message->tries);
		if (message->kind == FAILS)
			assert_true(message->dead);
		if (message->kind == TAKES && !message->dead)
			assert_true(message->effects >= 1);
		dead += message->dead;
	}
	assert_int_equal(dead, world->dead);
	assert_int_equal(dispatch_figures(world->dispatch, world->now).messages, 0);
	/* while it is away it is asked once a pause, besides those that find it out */
	assert_in_range(world->in_outage, 1, probes + FAILURES + 2 * CONNECTIONS + 2);
}

static void live(uint64_t seed)
{
	struct world *world = begin(seed);

	for (int64_t next; world->ended < MESSAGES && (next = next_time(world)) < END_MS;) {
		world->now = next > world->now ? next : world->now;
		step(world);
	}
	if (world->ended < MESSAGES)
		fail_msg("seed %d: %d of %d messages ended", (int)seed, world->ended, MESSAGES);
	judge(world);
	dispatch_destroy(world->dispatch);
	key_queues_finish(&world->key_queues);
	timers_finish(&world->timers);
	free(world->messages);
	free(world);
}

static void after_an_hour_away_all_is_delivered_in_order_or_dead_for_a_reason(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		live(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(after_an_hour_away_all_is_delivered_in_order_or_dead_for_a_reason),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
