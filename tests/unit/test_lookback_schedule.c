/*
 * relay/lookback/schedule, with the breaker and the verdicts in it: by hand, and as a simulated
 * world of a database that holds overdue rows and of businesses that answer as a test wants. Time
 * passes from event to event.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schedule.h"
#include "text.h"

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

static int number_of(const char *text)
{
	return (int)strtol(text, NULL, 10);
}

static struct config_check usual_check(void)
{
	return (struct config_check){
	    .name = "shop",
	    .batch = 1,
	    .host_in_flight = 64,
	    .type_in_flight = 64,
	    .rate = 0,
	    .retry_first_ms = 5 * SECOND,
	    .retry_max_ms = 10 * MINUTE,
	    .max_attempts = 20,
	    .pending_every_ms = MINUTE,
	    .pending_max_ms = DAY,
	    .retry_after_max_ms = HOUR,
	    .breaker_failures = 10,
	    .breaker_pause_ms = 30 * SECOND,
	};
}

/* --- the world ------------------------------------------------------------------------------ */

enum { TYPES_MAX = 4, HOSTS_MAX = 4 };

struct row {
	int type, host, attempts, pendings, asked;
	int64_t next_check, prepared_at, claim, claimed_until;
	enum { OVERDUE, PARKED, COMMITTED, ROLLED_BACK } state;
	bool waits; /* in the heap of its type */
	char id[16];
	char result[40];
};

struct heap {
	struct row **rows;
	int count;
};

struct answer {
	int64_t at;
	struct schedule_question *question;
	struct check_answer answer;
	enum check_word words[1000];
	struct answer *next;
};

struct world {
	struct config_check checks[HOSTS_MAX];
	int hosts, types, row_count;
	struct row *rows;
	struct heap due[TYPES_MAX];
	struct schedule *schedule;
	int64_t now, poll_at, poll_ms, claim, claim_ms, in_flight;
	struct answer *answers;
	/* what a business says: fills in the answer; returns how long it takes */
	int64_t (*business)(struct world *world, int host, const struct schedule_question *question,
	    struct answer *answer);
	bool down[HOSTS_MAX];
	uint64_t seed;
	/* what was seen */
	int64_t claimed, sent_requests, requests, settled, uncounted;
	int asking[HOSTS_MAX], asking_most[HOSTS_MAX], type_asking_most, overall_most;
	int type_asking[TYPES_MAX];
	int64_t decided[TYPES_MAX];
	int64_t *each_second; /* requests, or NULL */
};

static uint64_t draw(struct world *world)
{
	world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
	return world->seed >> 33;
}

static void push(struct heap *heap, struct row *row)
{
	int at = heap->count++;

	row->waits = true;
	while (at > 0 && heap->rows[(at - 1) / 2]->next_check > row->next_check) {
		heap->rows[at] = heap->rows[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->rows[at] = row;
}

static struct row *pop(struct heap *heap)
{
	struct row *first = heap->rows[0], *last = heap->rows[--heap->count];
	int at = 0;

	for (;;) {
		int child = 2 * at + 1;

		if (child + 1 < heap->count &&
		    heap->rows[child + 1]->next_check < heap->rows[child]->next_check)
			child++;
		if (child >= heap->count || heap->rows[child]->next_check >= last->next_check)
			break;
		heap->rows[at] = heap->rows[child];
		at = child;
	}
	if (heap->count > 0)
		heap->rows[at] = last;
	first->waits = false;
	return first;
}

/* Rows are spread over types and hosts in turn; call open_world next. */
static void fill_world(struct world *world, int rows)
{
	world->row_count = rows;
	world->rows = calloc((size_t)rows, sizeof *world->rows);
	for (int i = 0; i < world->types; i++)
		world->due[i].rows = calloc((size_t)rows, sizeof(struct row *));
	for (int i = 0; i < rows; i++) {
		struct row *row = &world->rows[i];

		*row =
		    (struct row){.type = i % world->types, .host = i / world->types % world->hosts};
		snprintf(row->id, sizeof row->id, "%d", i);
		push(&world->due[row->type], row);
	}
}

static void open_world(struct world *world)
{
	const struct schedule_settings settings = {
	    .services = world->checks,
	    .service_count = world->hosts,
	    .type_count = world->types,
	    .in_flight = world->in_flight,
	    .claim_ms = world->claim_ms,
	    .seed = 7,
	};

	world->schedule = schedule_create(&settings, world->now);
}

static void close_world(struct world *world)
{
	schedule_destroy(world->schedule);
	while (world->answers) {
		struct answer *answer = world->answers;

		world->answers = answer->next;
		free(answer);
	}
	for (int i = 0; i < world->types; i++)
		free(world->due[i].rows);
	free(world->rows);
}

static int claim_type(struct world *world, int type, int most)
{
	struct heap *heap = &world->due[type];
	int count = 0;

	while (count < most && heap->count > 0 && heap->rows[0]->next_check <= world->now) {
		struct row *row = pop(heap);
		struct destination route = {.service = row->host};
		const struct schedule_claimed claimed = {
		    .type = type,
		    .biz_id = row->id,
		    .prepared_at = "2026-01-01T00:00:00.000000Z",
		    .attempts = row->attempts,
		    .pendings = row->pendings,
		    .age_ms = world->now - row->prepared_at,
		    .claim = ++world->claim,
		    .claimed_at = world->now,
		};

		row->claim = world->claim;
		row->claimed_until = world->now + world->claim_ms;
		snprintf(route.host, sizeof route.host, "host-%d:80", row->host);
		schedule_add(world->schedule, world->now, &claimed, &route);
		count++;
	}
	world->claimed += count;
	return count;
}

static void claim(struct world *world)
{
	int most[TYPES_MAX], came[TYPES_MAX] = {0}, sum = 0;
	bool full = false;

	if (world->now < world->poll_at || schedule_wants(world->schedule, world->now, most) == 0)
		return;
	for (int i = 0; i < world->types; i++) {
		came[i] = claim_type(world, i, most[i]);
		sum += came[i];
		full |= most[i] > 0 && came[i] == most[i];
	}
	schedule_claim_over(world->schedule, world->now, most, came);
	assert_true(schedule_figures(world->schedule).rows <= SCHEDULE_ROWS);
	world->poll_ms = sum > 0 ? 10 : world->poll_ms < 100 ? world->poll_ms * 2 : 200;
	world->poll_at = world->now + (full ? 1 : world->poll_ms);
}

static void join_answers(struct world *world, struct answer *answer)
{
	struct answer **at = &world->answers;

	while (*at && (*at)->at <= answer->at)
		at = &(*at)->next;
	answer->next = *at;
	*at = answer;
}

static void count_ask(struct world *world, const struct schedule_question *question)
{
	int host = question->service, overall = 0;

	world->requests++;
	world->asking[host]++;
	world->type_asking[question->type]++;
	for (int i = 0; i < world->hosts; i++)
		overall += world->asking[i];
	if (world->asking[host] > world->asking_most[host])
		world->asking_most[host] = world->asking[host];
	if (world->type_asking[question->type] > world->type_asking_most)
		world->type_asking_most = world->type_asking[question->type];
	if (overall > world->overall_most)
		world->overall_most = overall;
	if (world->each_second)
		world->each_second[world->now / SECOND]++;
	for (int i = 0; i < question->ask.id_count; i++) {
		struct row *row = &world->rows[number_of(question->ask.ids[i].biz_id)];

		row->asked++;
		assert_int_equal(row->type, question->type);
		assert_int_equal(question->ask.ids[i].attempt, row->attempts + 1);
		assert_true(world->now < row->claimed_until);
	}
}

static void ask(struct world *world)
{
	struct schedule_question *question;

	while ((question = schedule_next(world->schedule, world->now))) {
		struct answer *answer = calloc(1, sizeof *answer);

		count_ask(world, question);
		answer->question = question;
		answer->answer = (struct check_answer){.opaque = question,
		    .words = answer->words,
		    .sent = true,
		    .reached = true,
		    .status = 200,
		    .retry_after_ms = -1};
		if (world->down[question->service]) {
			answer->answer.failure = "connect";
			answer->answer.sent = answer->answer.reached = false;
			answer->at = world->now + 1;
		} else {
			answer->at = world->now +
				     world->business(world, question->service, question, answer);
		}
		world->sent_requests += answer->answer.sent;
		join_answers(world, answer);
	}
}

static void hear(struct world *world)
{
	while (world->answers && world->answers->at <= world->now) {
		struct answer *answer = world->answers;

		world->answers = answer->next;
		world->asking[answer->question->service]--;
		world->type_asking[answer->question->type]--;
		schedule_answered(world->schedule, world->now, answer->question, &answer->answer);
		free(answer);
	}
}

static void settle_row(struct world *world, const struct schedule_row *settled)
{
	struct row *row = &world->rows[number_of(settled->biz_id)];
	const struct check_verdict *verdict = settled->verdict;

	assert_int_equal(settled->claim, row->claim);
	assert_int_equal(row->state, OVERDUE);
	row->claim = 0;
	world->settled++;
	snprintf(row->result, sizeof row->result, "%s", verdict->result);
	if (verdict->decision) {
		row->state = strcmp(verdict->decision, "commit") == 0 ? COMMITTED : ROLLED_BACK;
		world->decided[row->type]++;
		return;
	}
	row->attempts += verdict->counts;
	row->pendings += verdict->counts && strcmp(verdict->result, "pending") == 0;
	world->uncounted += !verdict->counts;
	row->next_check = world->now + verdict->next_ms;
	row->state = verdict->parks ? PARKED : OVERDUE;
	if (row->state == OVERDUE)
		push(&world->due[row->type], row);
}

static void settle(struct world *world)
{
	int64_t since;

	while (schedule_settlements(world->schedule, &since) > 0) {
		struct schedule_row *row = schedule_take(world->schedule, 500);

		while (row) {
			struct schedule_row *next = row->next;

			settle_row(world, row);
			schedule_release(world->schedule, row);
			row = next;
		}
	}
}

static void sooner(int64_t *at, int64_t other)
{
	if (other < *at)
		*at = other;
}

/* The next moment at which something may happen. */
static int64_t next_event(const struct world *world)
{
	int64_t at = schedule_deadline(world->schedule, true), due = INT64_MAX;

	if (world->answers)
		sooner(&at, world->answers->at);
	for (int i = 0; i < world->types; i++)
		if (world->due[i].count > 0)
			sooner(&due, world->due[i].rows[0]->next_check);
	/* empty polls are passed over: the first one that finds something, at the latest */
	if (due < INT64_MAX)
		sooner(&at, due > world->poll_at ? due + 200 : world->poll_at);
	return at > world->now ? at : world->now + 1;
}

/* Until then, or until everything is decided or parked. Returns whether it is. */
static bool is_open(const struct world *world)
{
	bool open = world->answers || schedule_figures(world->schedule).rows > 0;

	for (int i = 0; i < world->types; i++)
		open |= world->due[i].count > 0;
	return open;
}

static bool pass(struct world *world, int64_t until)
{
	while (is_open(world) && world->now < until) {
		int64_t at;

		hear(world);
		claim(world);
		ask(world);
		settle(world);
		at = next_event(world);
		if (is_open(world))
			world->now = at < until ? at : until;
	}
	return !is_open(world);
}

static int64_t commits(
    struct world *world, int host, const struct schedule_question *question, struct answer *answer)
{
	(void)world, (void)host;
	for (int i = 0; i < question->ask.id_count; i++)
		answer->words[i] = CHECK_COMMIT;
	return 5;
}

static struct world usual_world(int types, int hosts)
{
	struct world world = {.types = types,
	    .hosts = hosts,
	    .claim_ms = 2 * MINUTE,
	    .in_flight = 256,
	    .poll_ms = 10,
	    .business = commits,
	    .seed = 1};

	for (int i = 0; i < hosts; i++)
		world.checks[i] = usual_check();
	return world;
}

static int count_state(const struct world *world, int state)
{
	int count = 0;

	for (int i = 0; i < world->row_count; i++)
		count += (int)world->rows[i].state == state;
	return count;
}

/* --- in the simulated world ----------------------------------------------------------------- */

/*
 * Every wrong thing that the interface knows: failures with any words beside them, right forms that
 * say unknown, and answers that were not sent and hold a decision all the same.
 */
static int64_t answers_nonsense(
    struct world *world, int host, const struct schedule_question *question, struct answer *answer)
{
	static const char *const failures[] = {"status", "answer", "timeout", "too_slow",
	    "too_large", "headers_too_large", "closed", "garbled", "resolve", "resolve_timeout",
	    "address_refused", "connect", "connect_timeout", "tls", "url", "queue_timeout",
	    "internal", "database"};
	struct check_answer *told = &answer->answer;
	uint64_t kind = draw(world) % 24;

	(void)host;
	for (int i = 0; i < question->ask.id_count; i++)
		answer->words[i] = (enum check_word)(draw(world) % CHECK_WORDS);
	told->retry_after_ms = draw(world) % 4 ? -1 : (int64_t)(draw(world) % (2 * DAY));
	if (kind < sizeof failures / sizeof *failures) {
		told->failure = failures[kind];
		told->sent = kind < 8 || draw(world) % 2;
		told->reached = kind < 2 || draw(world) % 2;
		snprintf(told->error, sizeof told->error, "commit %s", failures[kind]);
		told->status = (int)(draw(world) % 700);
	} else if (kind == 18) {
		told->sent = false;
	} else if (kind == 19) {
		told->words = NULL;
	} else {
		for (int i = 0; i < question->ask.id_count; i++)
			answer->words[i] = kind == 20 ? (enum check_word)17 : CHECK_UNKNOWN;
	}
	return 1 + (int64_t)(draw(world) % (20 * SECOND));
}

static void an_endpoint_that_answers_every_wrong_thing_for_a_day_decides_nothing(void **state)
{
	(void)state;
	for (int batch = 1; batch <= 10; batch += 9) {
		struct world world = usual_world(3, 2);
		int64_t attempts = 0;

		for (int i = 0; i < world.hosts; i++) {
			world.checks[i].batch = batch;
			world.checks[i].max_attempts = 1000000;
			world.checks[i].breaker_pause_ms = SECOND;
		}
		world.business = answers_nonsense;
		fill_world(&world, 300);
		open_world(&world);
		assert_false(pass(&world, DAY));
		for (int i = 0; i < world.row_count; i++) {
			assert_int_equal(world.rows[i].state, OVERDUE);
			assert_true(world.rows[i].attempts <= world.rows[i].asked);
			attempts += world.rows[i].attempts;
		}
		assert_int_equal(world.decided[0] + world.decided[1] + world.decided[2], 0);
		assert_true(attempts > 20 * 300 && world.sent_requests > 0);
		/* and once it answers clearly, all of it is decided */
		world.business = commits;
		assert_true(pass(&world, world.now + 2 * HOUR));
		assert_int_equal(count_state(&world, COMMITTED), 300);
		close_world(&world);
	}
}

static void what_never_gets_an_answer_is_parked_after_its_attempts_and_none_more(void **state)
{
	struct world world = usual_world(2, 1);

	(void)state;
	world.business = answers_nonsense;
	world.checks[0].breaker_failures = 1000000;
	fill_world(&world, 100);
	open_world(&world);
	assert_true(pass(&world, 10 * DAY));
	assert_int_equal(count_state(&world, PARKED), 100);
	for (int i = 0; i < 100; i++)
		assert_int_equal(world.rows[i].attempts, 20);
	close_world(&world);
}

/*
 * An hour's outage of one of two hosts, and 100,000 overdue. While it lasts nobody is asked there
 * but by probes, no attempt is spent, and the other host's rows of the same types are decided; then
 * all are, at no more requests a second than asked for, and the types fairly.
 */
static void an_hours_outage_with_100000_overdue_is_drained_bounded_and_fair(void **state)
{
	enum { ROWS = 100000, RATE = 1000 };
	struct world world = usual_world(4, 2);
	int64_t outage_requests, begun;

	(void)state;
	world.checks[0].rate = world.checks[1].rate = RATE;
	world.each_second = calloc(4 * 3600, sizeof *world.each_second);
	world.down[0] = true;
	fill_world(&world, ROWS);
	open_world(&world);
	assert_false(pass(&world, HOUR));
	assert_int_equal(count_state(&world, COMMITTED), ROWS / 2);
	outage_requests = world.requests - world.sent_requests;
	/* those that opened the breaker, the ones beside them, and one probe in 30 s */
	assert_in_range(outage_requests, 100, 10 + 64 + 121);
	for (int i = 0; i < ROWS; i++)
		assert_int_equal(world.rows[i].attempts, 0);

	world.down[0] = false;
	begun = world.now;
	/* the rows of one type are a fourth, and so is what is decided of it on the way */
	memset(world.decided, 0, sizeof world.decided);
	assert_false(pass(&world, begun + 40 * SECOND));
	for (int i = 0; i < world.types; i++)
		assert_in_range(world.decided[i],
		    (count_state(&world, COMMITTED) - ROWS / 2) / 4 * 9 / 10, ROWS);
	assert_true(count_state(&world, COMMITTED) > ROWS / 2 + 8 * RATE);
	assert_true(pass(&world, begun + 150 * SECOND));
	assert_int_equal(count_state(&world, COMMITTED), ROWS);
	for (int i = 0; i < 4 * 3600; i++)
		assert_in_range(world.each_second[i], 0, 2 * (RATE + RATE / 20));
	for (int i = 0; i < ROWS; i++)
		assert_int_equal(world.rows[i].attempts, 0);
	/* the database's work is bounded as well: a few rows a second are looked at in vain */
	assert_in_range(world.claimed, ROWS, ROWS + HOUR / SECOND * 150);
	assert_in_range(world.asking_most[0], 1, 64);
	assert_in_range(world.type_asking_most, 1, 64);
	free(world.each_second);
	close_world(&world);
}

static void an_outage_of_the_only_host_touches_few_rows(void **state)
{
	struct world world = usual_world(1, 1);

	(void)state;
	world.down[0] = true;
	fill_world(&world, 50000);
	open_world(&world);
	assert_false(pass(&world, 10 * MINUTE));
	/* by opening it: a window; then scouts */
	assert_in_range(world.uncounted, 1, 150 * 600);
	assert_true(schedule_figures(world.schedule).rows <= 1);
	world.down[0] = false;
	assert_true(pass(&world, world.now + 70 * SECOND));
	assert_int_equal(count_state(&world, COMMITTED), 50000);
	close_world(&world);
}

static int64_t is_slow(
    struct world *world, int host, const struct schedule_question *question, struct answer *answer)
{
	commits(world, host, question, answer);
	return 500 + (int64_t)(draw(world) % 1000);
}

static void a_slow_endpoint_is_not_asked_for_more_than_may_be_under_way(void **state)
{
	struct world world = usual_world(3, 2);

	(void)state;
	world.business = is_slow;
	world.in_flight = 70;
	world.checks[0].host_in_flight = 30;
	world.checks[0].type_in_flight = 25;
	world.checks[1].host_in_flight = 60;
	world.checks[1].type_in_flight = 25;
	fill_world(&world, 6000);
	open_world(&world);
	assert_true(pass(&world, HOUR));
	assert_int_equal(world.asking_most[0], 30);
	assert_in_range(world.asking_most[1], 30, 60);
	assert_int_equal(world.type_asking_most, 25);
	assert_int_equal(world.overall_most, 70);
	assert_int_equal(count_state(&world, COMMITTED), 6000);
	/* few were claimed long before they could be asked about */
	assert_in_range(world.claimed, 6000, 6600);
	close_world(&world);
}

static void a_rate_holds_for_each_second_and_nothing_that_waits_for_it_is_an_attempt(void **state)
{
	struct world world = usual_world(2, 1);

	(void)state;
	world.checks[0].rate = 50;
	world.each_second = calloc(3600, sizeof *world.each_second);
	fill_world(&world, 3000);
	open_world(&world);
	assert_true(pass(&world, HOUR));
	assert_in_range(world.now, 58 * SECOND, 64 * SECOND);
	for (int i = 0; i < 3600; i++)
		assert_in_range(world.each_second[i], 0, 53);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(world.rows[i].attempts, 0);
	free(world.each_second);
	close_world(&world);
}

static void a_small_type_does_not_wait_for_a_large_one(void **state)
{
	struct world world = usual_world(2, 1);

	(void)state;
	world.checks[0].rate = 100;
	fill_world(&world, 20000);
	/* all but 100 of the second type are due tomorrow */
	world.due[1].count = 0;
	for (int i = 0; i < world.row_count; i++)
		if (world.rows[i].type == 1) {
			world.rows[i].next_check = i < 200 ? 0 : DAY;
			push(&world.due[1], &world.rows[i]);
		}
	open_world(&world);
	assert_false(pass(&world, 4 * SECOND));
	assert_int_equal(world.decided[1], 100);
	close_world(&world);
}

static void ids_of_a_type_go_together_in_full_questions(void **state)
{
	struct world world = usual_world(2, 1);

	(void)state;
	world.checks[0].batch = 100;
	fill_world(&world, 50000);
	open_world(&world);
	assert_true(pass(&world, MINUTE));
	assert_in_range(world.requests, 500, 540);
	close_world(&world);
}

/* --- by hand -------------------------------------------------------------------------------- */

struct stage {
	struct config_check checks[2];
	struct schedule *schedule;
	int64_t now;
};

static struct stage *set_stage_for(struct config_check check, int64_t claim_ms)
{
	struct stage *stage = calloc(1, sizeof *stage);

	stage->checks[0] = stage->checks[1] = check;
	const struct schedule_settings settings = {.services = stage->checks,
	    .service_count = 2,
	    .type_count = 2,
	    .in_flight = 100,
	    .claim_ms = claim_ms,
	    .seed = 3};

	stage->schedule = schedule_create(&settings, 0);
	return stage;
}

static void clear_stage(struct stage *stage)
{
	schedule_destroy(stage->schedule);
	free(stage);
}

static void add_at(struct stage *stage, const char *id, const char *host, const char *url)
{
	const struct schedule_claimed claimed = {.biz_id = id,
	    .prepared_at = "then",
	    .url = url,
	    .claim = 9,
	    .claimed_at = stage->now,
	    .age_ms = 7 * SECOND};
	struct destination route = {.service = 0};

	snprintf(route.host, sizeof route.host, "%s", host);
	schedule_add(stage->schedule, stage->now, &claimed, &route);
}

static void add(struct stage *stage, const char *id)
{
	add_at(stage, id, "a:80", NULL);
}

static struct schedule_question *next(struct stage *stage)
{
	return schedule_next(stage->schedule, stage->now);
}

static void answer(struct stage *stage, struct schedule_question *question, enum check_word word,
    const char *failure, bool reached)
{
	enum check_word words[] = {word, word, word, word};
	struct check_answer told = {.words = words,
	    .failure = failure,
	    .sent = true,
	    .reached = reached,
	    .retry_after_ms = -1};

	text_copy(told.error, sizeof told.error, failure);
	schedule_answered(stage->schedule, stage->now, question, &told);
}

/* The next settlement as "id result counts next_ms"; the caller frees. */
static char *settlement(struct stage *stage)
{
	struct schedule_row *row = schedule_take(stage->schedule, 1);
	char *text;

	if (!row)
		return xstrdup("");
	text = xformat("%s %s %d %lld%s", row->biz_id, row->verdict->result, row->verdict->counts,
	    (long long)row->verdict->next_ms, row->verdict->parks ? " parked" : "");
	schedule_release(stage->schedule, row);
	return text;
}

#define assert_settled(stage, expected)                                                            \
	do {                                                                                       \
		char *text_ = settlement(stage);                                                   \
		assert_string_equal(text_, expected);                                              \
		free(text_);                                                                       \
	} while (0)

static void trip(struct stage *stage)
{
	for (int i = 0; i < 10; i++) {
		add(stage, "trip");
		answer(stage, next(stage), CHECK_UNKNOWN, "timeout", false);
		free(settlement(stage));
	}
	schedule_claim_over(stage->schedule, stage->now, (int[]){1, 0}, (int[]){1, 0});
	/* the next one that comes shows it */
	add(stage, "trip");
	schedule_claim_over(stage->schedule, stage->now, (int[]){1, 0}, (int[]){1, 0});
	free(settlement(stage));
}

static void an_open_breaker_keeps_no_claims_and_costs_no_attempt(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), MINUTE);
	int most[2];

	(void)state;
	stage->checks[0].host_in_flight = 1;
	for (int i = 0; i < 9; i++) {
		add(stage, "1");
		answer(stage, next(stage), CHECK_UNKNOWN, "timeout", false);
		free(settlement(stage));
	}
	add(stage, "1");
	add(stage, "2");
	struct schedule_question *last = next(stage);
	assert_null(next(stage));
	answer(stage, last, CHECK_UNKNOWN, "timeout", false);
	assert_int_equal(schedule_figures(stage->schedule).waiting, 0);
	free(settlement(stage));
	char *given_back = settlement(stage);
	assert_ptr_equal(strstr(given_back, "2 breaker 0 3"), given_back);
	assert_in_range(number_of(given_back + 12), 30 * SECOND, 36 * SECOND);
	free(given_back);
	/* another host is asked meanwhile, and this one's type not in vain */
	add_at(stage, "3", "b:80", NULL);
	answer(stage, next(stage), CHECK_COMMIT, NULL, true);
	assert_settled(stage, "3 commit 1 0");
	add(stage, "4");
	assert_null(next(stage));
	assert_int_equal(schedule_wants(stage->schedule, stage->now, most), 64);
	assert_int_equal(most[0], 0);
	clear_stage(stage);
}

static void a_half_open_breaker_lets_one_probe_through_and_that_decides(void **state)
{
	struct config_check check = usual_check();
	check.batch = 4;
	struct stage *stage = set_stage_for(check, MINUTE);
	struct schedule_host_figures host;
	int most[2];

	(void)state;
	trip(stage);
	for (int i = 0; i < 3; i++) {
		stage->now += 30 * SECOND;
		schedule_wants(stage->schedule, stage->now, most);
		if (i != 1) /* it was found then that it had not been about the host */
			assert_int_equal(most[0], 1);
		add(stage, "1"), add(stage, "2");
		struct schedule_question *probe = next(stage);
		assert_int_equal(probe->ask.id_count, 1);
		assert_null(next(stage));
		add(stage, "3");
		assert_null(next(stage));
		assert_true(schedule_host(stage->schedule, 0, stage->now, &host));
		assert_int_equal(host.breaker, BREAKER_HALF_OPEN);
		assert_int_equal(host.in_flight, 1);
		if (i == 0) /* it says nothing of the host */
			answer(stage, probe, CHECK_UNKNOWN, "internal", false);
		else
			answer(stage, probe, CHECK_UNKNOWN, i == 1 ? "timeout" : NULL, i == 2);
		assert_true(schedule_host(stage->schedule, 0, stage->now, &host));
		assert_string_equal(host.error, i == 0 ? "internal" : i == 1 ? "timeout" : "");
		assert_int_equal(host.breaker, i == 0   ? BREAKER_HALF_OPEN
					       : i == 1 ? BREAKER_OPEN
							: BREAKER_CLOSED);
	}
	add(stage, "5"), add(stage, "6");
	assert_int_equal(next(stage)->ask.id_count, 2);
	schedule_wants(stage->schedule, stage->now, most);
	assert_true(most[0] > 1);
	clear_stage(stage);
}

static void answers_from_before_it_opened_do_not_move_a_breaker(void **state)
{
	struct breaker breaker = {0};

	(void)state;
	for (int i = 0; i < 3; i++)
		breaker_end(&breaker, 0, false, BREAKER_FAILURE, 3, 100);
	assert_int_equal(breaker_state(&breaker, 99), BREAKER_OPEN);
	assert_int_equal(breaker_wait(&breaker, 40), 60);
	breaker_end(&breaker, 50, false, BREAKER_SUCCESS, 3, 100);
	breaker_end(&breaker, 50, false, BREAKER_FAILURE, 3, 100);
	assert_int_equal(breaker_state(&breaker, 99), BREAKER_OPEN);
	assert_int_equal(breaker_state(&breaker, 100), BREAKER_HALF_OPEN);
	assert_true(breaker_begin(&breaker, 100));
	assert_false(breaker_allows(&breaker, 100));
	breaker_end(&breaker, 110, true, BREAKER_SUCCESS, 3, 100);
	assert_int_equal(breaker_state(&breaker, 110), BREAKER_CLOSED);
	for (int i = 0; i < 5; i++) { /* in a row is what counts */
		breaker_end(&breaker, 110, false, BREAKER_FAILURE, 3, 100);
		breaker_end(&breaker, 110, false, BREAKER_FAILURE, 3, 100);
		breaker_end(&breaker, 110, false, BREAKER_NEITHER, 3, 100);
		assert_true(breaker_allows(&breaker, 110));
		breaker_end(&breaker, 110, false, BREAKER_SUCCESS, 3, 100);
	}
}

static void an_answer_after_the_claims_end_is_ignored(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), 10 * SECOND);

	(void)state;
	add(stage, "1");
	struct schedule_question *question = next(stage);
	stage->now += 10 * SECOND;
	answer(stage, question, CHECK_COMMIT, NULL, true);
	assert_settled(stage, "");
	assert_int_equal(schedule_figures(stage->schedule).late, 1);
	assert_int_equal(schedule_figures(stage->schedule).rows, 0);
	clear_stage(stage);
}

static void what_waits_for_too_long_goes_back_and_is_not_asked(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), 10 * SECOND);

	(void)state;
	stage->checks[0].host_in_flight = 1;
	add(stage, "1"), add(stage, "2");
	struct schedule_question *question = next(stage);
	assert_null(next(stage));
	stage->now += 2500;
	answer(stage, question, CHECK_ROLLBACK, NULL, true);
	assert_null(next(stage));
	assert_settled(stage, "1 rollback 1 0");
	assert_settled(stage, "2 waited 0 0");
	clear_stage(stage);
}

static void a_question_holds_ids_of_one_url(void **state)
{
	struct config_check check = usual_check();
	check.batch = 3;
	struct stage *stage = set_stage_for(check, MINUTE);

	(void)state;
	add_at(stage, "1", "a:80", "http://a/x");
	add_at(stage, "2", "a:80", "http://a/y");
	add_at(stage, "3", "a:80", NULL);
	for (int i = 0; i < 3; i++)
		add_at(stage, "4", "a:80", "http://a/x");
	struct schedule_question *question = next(stage);
	assert_int_equal(question->ask.id_count, 3);
	assert_string_equal(question->ask.url, "http://a/x");
	assert_string_equal(question->ask.ids[2].biz_id, "4");
	question = next(stage);
	assert_int_equal(question->ask.id_count, 1);
	assert_string_equal(question->ask.url, "http://a/y");
	question = next(stage);
	assert_int_equal(question->ask.id_count, 1);
	assert_null(question->ask.url);
	assert_int_equal(next(stage)->ask.id_count, 1);
	assert_null(next(stage));
	clear_stage(stage);
}

static void a_question_that_finds_no_room_is_asked_again_as_it_was(void **state)
{
	struct config_check check = usual_check();
	check.batch = 2;
	struct stage *stage = set_stage_for(check, MINUTE);

	(void)state;
	add(stage, "1"), add(stage, "2"), add(stage, "3");
	schedule_put_back(stage->schedule, stage->now, next(stage));
	assert_null(next(stage));
	assert_int_equal(schedule_deadline(stage->schedule, true), stage->now + 10);
	stage->now += 10;
	struct schedule_question *question = next(stage);
	assert_int_equal(question->ask.id_count, 2);
	assert_string_equal(question->ask.ids[0].biz_id, "1");
	assert_string_equal(question->ask.ids[1].biz_id, "2");
	add(stage, "4");
	question = next(stage);
	assert_int_equal(question->ask.id_count, 2);
	assert_string_equal(question->ask.ids[0].biz_id, "3");
	assert_string_equal(question->ask.ids[1].biz_id, "4");
	clear_stage(stage);
}

static void what_cannot_be_asked_costs_nothing_and_comes_again(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), MINUTE);
	const struct schedule_claimed claimed = {
	    .biz_id = "2", .prepared_at = "then", .claim = 9, .claimed_at = 0, .age_ms = 60 * HOUR};
	const struct destination nowhere = {.service = -1, .refusal = {"no_route", "who?"}};

	(void)state;
	add(stage, "1");
	schedule_refused(stage->schedule, stage->now, next(stage), "a header is none");
	char *told = settlement(stage);
	assert_ptr_equal(strstr(told, "1 refused 0 5"), told);
	free(told);
	schedule_add(stage->schedule, stage->now, &claimed, &nowhere);
	struct schedule_row *row = schedule_take(stage->schedule, 1);
	assert_string_equal(row->verdict->result, "no_route");
	assert_string_equal(row->verdict->error, "who?");
	assert_false(row->verdict->counts || row->verdict->parks);
	assert_in_range(row->verdict->next_ms, 10 * MINUTE, 12 * MINUTE);
	schedule_release(stage->schedule, row);
	clear_stage(stage);
}

static void what_has_expired_is_parked_and_not_asked(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), MINUTE);
	const struct schedule_claimed claimed = {
	    .biz_id = "1", .prepared_at = "then", .claim = 9, .expired = true};
	const struct destination route = {.service = 0, .host = "a:80"};

	(void)state;
	schedule_add(stage->schedule, stage->now, &claimed, &route);
	assert_null(next(stage));
	assert_settled(stage, "1 expired 0 0 parked");
	clear_stage(stage);
}

static void settlements_are_taken_by_claim(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), MINUTE);
	const struct destination nowhere = {.service = -1, .refusal = {"no_route", "who?"}};

	(void)state;
	for (int i = 0; i < 9; i++) {
		const struct schedule_claimed claimed = {
		    .biz_id = "1", .prepared_at = "then", .claim = 1 + i % 2};
		schedule_add(stage->schedule, stage->now, &claimed, &nowhere);
	}
	for (int round = 0; round < 3; round++) {
		static const int claims[] = {1, 2, 1};
		static const int left[] = {6, 3, 1};
		int64_t since;
		struct schedule_row *row = schedule_take(stage->schedule, round == 2 ? 2 : 3);
		int count = 0;

		while (row) {
			struct schedule_row *after = row->next;

			assert_int_equal(row->claim, claims[round]);
			schedule_release(stage->schedule, row);
			row = after;
			count++;
		}
		assert_int_equal(count, round == 2 ? 2 : 3);
		assert_int_equal(schedule_settlements(stage->schedule, &since), left[round]);
	}
	clear_stage(stage);
}

static void a_schedule_that_drains_gives_back_what_waits_and_claims_nothing(void **state)
{
	struct stage *stage = set_stage_for(usual_check(), MINUTE);
	int most[2];

	(void)state;
	stage->checks[0].host_in_flight = 1;
	add(stage, "1"), add(stage, "2");
	struct schedule_question *question = next(stage);
	schedule_drain(stage->schedule, stage->now);
	assert_settled(stage, "2 waited 0 0");
	assert_null(next(stage));
	assert_int_equal(schedule_wants(stage->schedule, stage->now, most), 0);
	answer(stage, question, CHECK_COMMIT, NULL, true);
	assert_settled(stage, "1 commit 1 0");
	clear_stage(stage);
}

/* --- verdicts ------------------------------------------------------------------------------- */

static struct check_verdict judge(
    struct check_verdict_id id, enum check_word word, const char *failure, int64_t retry_after_ms)
{
	static uint64_t seed = 11;
	const struct config_check check = usual_check();
	const struct check_answer told = {
	    .failure = failure, .sent = true, .retry_after_ms = retry_after_ms};

	return check_verdict_of_answer(&check, &id, word, &told, &seed);
}

static void only_a_right_answer_decides_and_only_by_these_two_words(void **state)
{
	const struct check_verdict_id id = {0};

	(void)state;
	assert_string_equal(judge(id, CHECK_COMMIT, NULL, -1).decision, "commit");
	assert_string_equal(judge(id, CHECK_ROLLBACK, NULL, -1).decision, "rollback");
	assert_null(judge(id, CHECK_COMMIT, "status", -1).decision);
	assert_null(judge(id, CHECK_ROLLBACK, "answer", -1).decision);
	assert_null(judge(id, CHECK_PENDING, NULL, -1).decision);
	assert_null(judge(id, CHECK_UNKNOWN, NULL, -1).decision);
	assert_null(judge(id, (enum check_word)99, NULL, -1).decision);
	assert_string_equal(judge(id, (enum check_word)99, NULL, -1).result, "unknown");
	assert_string_equal(judge(id, CHECK_COMMIT, "status", -1).result, "status");
}

static void the_pause_doubles_up_to_the_longest_a_fifth_more_or_less(void **state)
{
	(void)state;
	for (int attempts = 0; attempts < 19; attempts++) {
		int64_t pause = 5 * SECOND, low = INT64_MAX, high = 0;

		for (int i = 0; i < attempts && pause < 10 * MINUTE; i++)
			pause *= 2;
		pause = pause < 10 * MINUTE ? pause : 10 * MINUTE;
		for (int i = 0; i < 500; i++) {
			/* those with "pending" are none of them */
			struct check_verdict verdict = judge(
			    (struct check_verdict_id){attempts + 7, 7, 0}, CHECK_UNKNOWN, NULL, -1);

			assert_true(verdict.counts && !verdict.parks);
			low = verdict.next_ms < low ? verdict.next_ms : low;
			high = verdict.next_ms > high ? verdict.next_ms : high;
		}
		assert_in_range(low, pause * 8 / 10, pause * 82 / 100);
		assert_in_range(high, pause * 118 / 100, pause * 12 / 10);
	}
}

static void a_retry_after_is_kept_to_within_its_bound(void **state)
{
	const struct check_verdict_id id = {0};

	(void)state;
	assert_int_equal(judge(id, CHECK_UNKNOWN, "status", 90 * SECOND).next_ms, 90 * SECOND);
	assert_int_equal(judge(id, CHECK_UNKNOWN, "status", 20 * DAY).next_ms, HOUR);
	assert_in_range(judge(id, CHECK_UNKNOWN, "status", 1).next_ms, 4 * SECOND, 6 * SECOND);
	assert_int_equal(judge(id, CHECK_PENDING, NULL, 90 * SECOND).next_ms, 90 * SECOND);
}

static void a_pending_one_has_its_own_pause_and_age_and_no_count_of_attempts(void **state)
{
	struct check_verdict verdict =
	    judge((struct check_verdict_id){5000, 5000, DAY - 1}, CHECK_PENDING, NULL, -1);

	(void)state;
	assert_false(verdict.parks);
	assert_in_range(verdict.next_ms, 48 * SECOND, 72 * SECOND);
	verdict = judge((struct check_verdict_id){1, 1, DAY}, CHECK_PENDING, NULL, -1);
	assert_true(verdict.parks && verdict.counts);
	assert_string_equal(verdict.result, "pending");
	assert_string_equal(verdict.error, "still pending 86400 s after its prepare");
}

static void after_its_attempts_it_is_parked_with_the_reason(void **state)
{
	static uint64_t seed;
	const struct config_check check = usual_check();
	const struct check_answer told = {
	    .failure = "status", .error = "http://a: 500", .sent = true, .retry_after_ms = -1};
	struct check_verdict verdict = check_verdict_of_answer(
	    &check, &(struct check_verdict_id){18, 0, 0}, CHECK_UNKNOWN, &told, &seed);

	(void)state;
	assert_false(verdict.parks);
	verdict = check_verdict_of_answer(
	    &check, &(struct check_verdict_id){19, 0, 0}, CHECK_UNKNOWN, &told, &seed);
	assert_true(verdict.parks);
	assert_string_equal(
	    verdict.error, "20 requests brought no decision; the last one: http://a: 500");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(only_a_right_answer_decides_and_only_by_these_two_words),
	    cmocka_unit_test(the_pause_doubles_up_to_the_longest_a_fifth_more_or_less),
	    cmocka_unit_test(a_retry_after_is_kept_to_within_its_bound),
	    cmocka_unit_test(a_pending_one_has_its_own_pause_and_age_and_no_count_of_attempts),
	    cmocka_unit_test(after_its_attempts_it_is_parked_with_the_reason),
	    cmocka_unit_test(answers_from_before_it_opened_do_not_move_a_breaker),
	    cmocka_unit_test(an_open_breaker_keeps_no_claims_and_costs_no_attempt),
	    cmocka_unit_test(a_half_open_breaker_lets_one_probe_through_and_that_decides),
	    cmocka_unit_test(an_answer_after_the_claims_end_is_ignored),
	    cmocka_unit_test(what_waits_for_too_long_goes_back_and_is_not_asked),
	    cmocka_unit_test(a_question_holds_ids_of_one_url),
	    cmocka_unit_test(a_question_that_finds_no_room_is_asked_again_as_it_was),
	    cmocka_unit_test(what_cannot_be_asked_costs_nothing_and_comes_again),
	    cmocka_unit_test(what_has_expired_is_parked_and_not_asked),
	    cmocka_unit_test(settlements_are_taken_by_claim),
	    cmocka_unit_test(a_schedule_that_drains_gives_back_what_waits_and_claims_nothing),
	    cmocka_unit_test(a_slow_endpoint_is_not_asked_for_more_than_may_be_under_way),
	    cmocka_unit_test(
		a_rate_holds_for_each_second_and_nothing_that_waits_for_it_is_an_attempt),
	    cmocka_unit_test(a_small_type_does_not_wait_for_a_large_one),
	    cmocka_unit_test(ids_of_a_type_go_together_in_full_questions),
	    cmocka_unit_test(an_outage_of_the_only_host_touches_few_rows),
	    cmocka_unit_test(an_hours_outage_with_100000_overdue_is_drained_bounded_and_fair),
	    cmocka_unit_test(an_endpoint_that_answers_every_wrong_thing_for_a_day_decides_nothing),
	    cmocka_unit_test(what_never_gets_an_answer_is_parked_after_its_attempts_and_none_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
