/*
 * relay/lookback/checker against a living Postgres (TEST_DATABASE_URL), with a transport of the
 * test's own: what the business answers, and when, is up to each test. Each has a database of its
 * own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include "checker.h"
#include "clock.h"
#include "live_database.h"
#include "pg.h"
#include "schema_text.h"

enum { PATIENCE_MS = 30000, NUMBERS = 200000 };

/* --- the business --------------------------------------------------------------------------- */

/* How often each id, a number, was asked about; and what is said of it the n-th time. */
static atomic_int asked[NUMBERS];
static atomic_int requests;
static atomic_bool answers_held; /* nothing is answered meanwhile */

struct reply {
	enum check_word word;
	const char *failure;
	bool not_sent;
	int64_t after_ms, retry_after_ms;
};
typedef struct reply business(int number, int times);
static _Atomic(business *) the_business;

struct held {
	struct held *next;
	struct check_answer answer;
	enum check_word words[1000];
	int64_t at;
};
struct transport {
	struct held *first, *last;
	int fd;
	int64_t now;
};

static struct transport *fake_open(const struct config_check *check, struct err *err)
{
	struct transport *transport = calloc(1, sizeof *transport);

	if (strcmp(check->name, "broken") == 0) {
		free(transport);
		err_set(err, ERR_CONFIG, "it is broken");
		return NULL;
	}
	transport->fd = eventfd(0, EFD_CLOEXEC);
	return transport;
}

static void fake_close(struct transport *transport)
{
	while (transport->first) {
		struct held *held = transport->first;

		transport->first = held->next;
		free(held);
	}
	close(transport->fd);
	free(transport);
}

static bool fake_ask(
    struct transport *transport, const struct check_question *question, struct err *err)
{
	struct held *held = calloc(1, sizeof *held);
	business *say = atomic_load(&the_business);
	struct reply reply = {0};

	(void)err;
	atomic_fetch_add(&requests, 1);
	for (int i = 0; i < question->id_count; i++) {
		int number = (int)strtol(question->ids[i].biz_id, NULL, 10);

		reply = say(number, atomic_fetch_add(&asked[number], 1) + 1);
		held->words[i] = reply.word;
	}
	held->at = clock_ms() + reply.after_ms;
	held->answer = (struct check_answer){
	    .opaque = question->opaque,
	    .words = held->words,
	    .failure = reply.failure,
	    .sent = !reply.not_sent,
	    .reached = !reply.failure,
	    .status = 200,
	    .retry_after_ms = reply.retry_after_ms ? reply.retry_after_ms : -1,
	    .total_us = reply.after_ms * 1000,
	};
	if (reply.failure)
		snprintf(
		    held->answer.error, sizeof held->answer.error, "said \xff%s", reply.failure);
	if (transport->last)
		transport->last->next = held;
	else
		transport->first = held;
	transport->last = held;
	return true;
}

static int fake_fd(const struct transport *transport)
{
	return transport->fd;
}

static int64_t fake_deadline(const struct transport *transport)
{
	int64_t at = INT64_MAX;

	for (const struct held *held = transport->first; held; held = held->next)
		at = held->at < at ? held->at : at;
	return atomic_load(&answers_held) && at < INT64_MAX ? clock_ms() + 10 : at;
}

static void fake_step(struct transport *transport, int64_t now_ms)
{
	transport->now = now_ms;
}

static struct check_answer *fake_take(struct transport *transport)
{
	struct held *before = NULL;

	for (struct held *held = transport->first; held && !atomic_load(&answers_held);
	     before = held, held = held->next) {
		if (held->at > transport->now)
			continue;
		if (before)
			before->next = held->next;
		else
			transport->first = held->next;
		if (transport->last == held)
			transport->last = before;
		return &held->answer;
	}
	return NULL;
}

static void fake_release(struct transport *transport, struct check_answer *answer)
{
	(void)transport;
	free((char *)answer - offsetof(struct held, answer));
}

static const struct transport_kind *fake_kind(enum check_transport transport)
{
	static const struct transport_kind kind = {fake_open, fake_close, fake_ask, fake_fd,
	    fake_deadline, fake_step, fake_take, fake_release};

	(void)transport;
	return &kind;
}

static struct reply commits(int number, int times)
{
	(void)number, (void)times;
	return (struct reply){.word = CHECK_COMMIT};
}

/* --- the stage ------------------------------------------------------------------------------ */

struct stage {
	struct pg *pg;
	char *database; /* its address */
	const char *schema;
	struct config *config;
	struct checker *checkers[2];
	int event_fd;
};

static int64_t ask(struct stage *stage, const char *sql)
{
	struct err err = {0};
	owned_text char *text = schema_text(sql, stage->schema);
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = pg_query(stage->pg, text, NULL, 0, &err);

	if (!result)
		fail_msg("%s: %s", text, err.message);
	return pg_rows(result) ? pg_int(result, 0, 0) : 0;
}

static void run(struct stage *stage, const char *script)
{
	struct err err = {0};
	owned_text char *text = schema_text(script, stage->schema);

	if (!pg_script(stage->pg, text, &err))
		fail_msg("%s: %s", text, err.message);
}

static void wait_until(struct stage *stage, int64_t wanted, const char *sql)
{
	int64_t by = clock_ms() + PATIENCE_MS, is;

	while ((is = ask(stage, sql)) != wanted) {
		if (clock_ms() > by)
			fail_msg("%s: %lld, not %lld", sql, (long long)is, (long long)wanted);
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
}

static int set_up(void **state)
{
	struct err err = {0};
	struct stage *stage = calloc(1, sizeof *stage);

	if (!stage)
		return -1;
	stage->schema = "checker_1";
	stage->database = live_database_make(stage->schema);
	if (!stage->database)
		return -1;

	stage->pg = pg_connect(stage->database, "test", PATIENCE_MS, &err);
	if (!stage->pg) {
		print_error("%s\n", err.message);
		return -1;
	}
	memset(asked, 0, sizeof asked);
	atomic_store(&requests, 0);
	atomic_store(&answers_held, false);
	atomic_store(&the_business, commits);
	stage->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*state = stage;
	return 0;
}

/* Reads the settings of the section and its services; call start next. */
static void configure(struct stage *stage, const char *lookback, const char *check)
{
	struct err err = {0};
	char *const nothing[] = {NULL};
	owned_text char *ini =
	    xformat("[postgres]\ndsn = %s\nschema = %s\n"
		    "[check \"shop\"]\nurl = http://shop/ask\nallow = https://*.shop/ask\n%s\n"
		    "[check \"bare\"]\n[check \"broken\"]\nurl = http://broken/\n"
		    "[check \"other\"]\nurl = http://other/\ntypes = refund\n"
		    "[lookback \"shop\"]\ntypes = order, refund\ncheck = shop\n%s\n",
		stage->database, stage->schema, check, lookback);

	config_destroy(stage->config);
	stage->config = config_parse("test", ini, nothing, &err);
	if (!stage->config)
		fail_msg("%s", err.message);
}

static void start(struct stage *stage, int number)
{
	struct err err = {0};
	const struct checker_options options = {.config = stage->config,
	    .lookback = &stage->config->lookbacks[0],
	    .transport = fake_kind,
	    .event_fd = stage->event_fd};

	stage->checkers[number] = checker_start(&options, &err);
	if (!stage->checkers[number])
		fail_msg("%s", err.message);
}

static void stop(struct stage *stage, int number)
{
	if (stage->checkers[number])
		checker_stop(stage->checkers[number]);
	checker_join(stage->checkers[number]);
	stage->checkers[number] = NULL;
}

static int tear_down(void **state)
{
	struct stage *stage = *state;

	stop(stage, 0);
	stop(stage, 1);
	config_destroy(stage->config);
	pg_destroy(stage->pg);
	live_database_drop(stage->database);
	close(stage->event_fd);
	free(stage);
	return 0;
}

/* Overdue prepares with the ids `from` to `to` - 1, due so many ms from now, the first one first.
 */
static void make_overdue(struct stage *stage, const char *type, int from, int to, int64_t due_ms,
    const char *service, const char *url)
{
	owned_text char *script = xformat(
	    "insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, "
	    "source_partition, source_offset, topic, payload, check_at, digest, event_id) "
	    "select '%s', i::text, now() - interval '1 min', 'prepare', 'shop', 0, i, 't', 'x', "
	    "now(), 'd', gen_random_uuid() from generate_series(%d, %d) i;"
	    "insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, "
	    "check_service, check_url, next_check) select 'shop', biz_type, biz_id, prepared_at, "
	    "%s, %s, now() + %lld * interval '1 ms' + source_offset * interval '1 us' "
	    "from outbox.lookback where biz_type = '%s' and source_offset >= %d and kind = "
	    "'prepare'",
	    type, from, to - 1, service, url, (long long)due_ms, type, from);

	run(stage, script);
}

static const char undecided[] = "select count(*) from outbox.lookback_overdue";
static const char decided[] =
    "select count(*) from outbox.lookback where kind = 'decision' and source = 'check'";

/* --- what is asked and decided -------------------------------------------------------------- */

static struct reply by_number(int number, int times)
{
	(void)times;
	return (struct reply){
	    .word = number % 2 ? CHECK_COMMIT : CHECK_ROLLBACK, .after_ms = number % 7};
}

static void overdue_prepares_are_asked_about_once_and_the_answers_decide(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, by_number);
	make_overdue(stage, "order", 0, 500, 0, "null", "null");
	make_overdue(stage, "refund", 500, 1000, 0, "'other'", "null");
	configure(stage, "", "batch = 20");
	start(stage, 0);
	wait_until(stage, 0, undecided);
	assert_int_equal(ask(stage, decided), 1000);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 500);
	assert_int_equal(ask(stage, "select count(*) from outbox.message m join outbox.lookback l "
				    "using (event_id) where l.kind = 'prepare' and "
				    "l.biz_id::int % 2 = 1"),
	    500);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(asked[i], 1);
	/* those of one service went in batches */
	assert_in_range(requests, 525, 600);
	struct checker_status status = checker_status(stage->checkers[0]);
	assert_string_equal(status.error, "");
	assert_false(status.ended);
	stop(stage, 0);
	eventfd_t ended;
	assert_int_equal(eventfd_read(stage->event_fd, &ended), 0);
}

static void what_comes_due_later_is_asked_about_then(void **state)
{
	struct stage *stage = *state;

	configure(stage, "", "");
	start(stage, 0);
	make_overdue(stage, "order", 0, 1, 700, "null", "null");
	wait_until(stage, 1, decided);
	assert_true(
	    ask(stage, "select (extract(epoch from d.decided_at - p.check_at) * 1000)::bigint "
		       "from outbox.lookback d, outbox.lookback p where d.kind = "
		       "'decision' and p.kind = 'prepare'") >= 700);
}

static struct reply every_wrong_thing(int number, int times)
{
	static const char *const failures[] = {NULL, "status", "answer", "timeout", "closed",
	    "garbled", "too_large", "too_slow", "connect", "resolve", "tls"};
	int kind = (number + times) % 11;

	return (struct reply){.word = kind ? (enum check_word)(times % CHECK_WORDS) : CHECK_UNKNOWN,
	    .failure = failures[kind],
	    .not_sent = kind > 7};
}

static void wrong_answers_decide_nothing_and_count_only_when_they_were_sent(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, every_wrong_thing);
	make_overdue(stage, "order", 0, 20, 0, "null", "null");
	configure(stage, "",
	    "retry_first = 10ms\nretry_max = 20ms\nmax_attempts = 30\nbreaker_failures = 1000000");
	start(stage, 0);
	wait_until(stage, 20,
	    "select count(*) from outbox.lookback_overdue where state = 'parked' and attempts = 30 "
	    "and claim is null and last_error like '30 requests brought no decision%'");
	assert_int_equal(ask(stage, decided), 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 0);
	/* three of eleven were not sent */
	for (int i = 0; i < 20; i++)
		assert_in_range(asked[i], 36, 45);
}

static struct reply is_pending_at_first(int number, int times)
{
	(void)number;
	return (struct reply){.word = times < 5 ? CHECK_PENDING : CHECK_COMMIT};
}

static void a_pending_one_is_asked_again_and_costs_no_budget(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, is_pending_at_first);
	make_overdue(stage, "order", 0, 1, 0, "null", "null");
	configure(stage, "", "pending_every = 50ms\nmax_attempts = 1");
	start(stage, 0);
	wait_until(stage, 1, decided);
	assert_int_equal(asked[0], 5);
}

static void what_has_nowhere_to_be_asked_says_so_and_costs_nothing(void **state)
{
	struct stage *stage = *state;

	make_overdue(stage, "order", 0, 1, 0, "'nobody'", "null");
	make_overdue(stage, "order", 1, 2, 0, "'other'", "null");
	make_overdue(stage, "order", 2, 3, 0, "'bare'", "null");
	make_overdue(stage, "order", 3, 4, 0, "null", "'https://evil/ask?key=secret'");
	make_overdue(stage, "order", 4, 5, 0, "'shop'", "'http://169.254.169.254/ask'");
	make_overdue(stage, "order", 5, 6, 0, "'broken'", "null");
	make_overdue(stage, "order", 6, 7, 0, "null", "'https://a.shop/ask/x'");
	configure(stage, "", "");
	start(stage, 0);
	wait_until(stage, 6,
	    "select count(*) from outbox.lookback_overdue where attempts = 0 and claim is null and "
	    "next_check > now() and last_error is not null");
	assert_int_equal(asked[6], 1);
	assert_int_equal(requests, 1);
	assert_int_equal(
	    ask(stage,
		"select count(*) from outbox.lookback_overdue where (biz_id, last_result) in "
		"(('0', 'unknown_service'), ('1', 'service_not_allowed'), ('2', 'no_route'), "
		"('5', 'refused')) and last_error <> ''"),
	    4);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_overdue where biz_id in "
				    "('3', '4') and last_result = 'url_not_allowed' and last_error "
				    "not like '%secret%'"),
	    2);
}

static void what_has_expired_is_parked(void **state)
{
	struct stage *stage = *state;

	make_overdue(stage, "order", 0, 1, 0, "null", "null");
	run(stage, "update outbox.lookback_overdue set expires_at = now()");
	configure(stage, "", "");
	start(stage, 0);
	wait_until(stage, 1,
	    "select count(*) from outbox.lookback_overdue where state = 'parked' and last_result = "
	    "'expired' and attempts = 0");
	assert_int_equal(requests, 0);
}

/* --- claims --------------------------------------------------------------------------------- */

static struct reply is_slow_at_first(int number, int times)
{
	(void)number;
	return times == 1 ? (struct reply){.word = CHECK_COMMIT, .after_ms = 2000}
			  : (struct reply){.word = CHECK_ROLLBACK, .after_ms = 100};
}

static void an_answer_that_comes_after_the_claim_lapsed_is_ignored(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, is_slow_at_first);
	make_overdue(stage, "order", 0, 1, 0, "null", "null");
	configure(stage, "claim = 1s", "");
	start(stage, 0);
	wait_until(stage, 1, decided);
	assert_int_equal(asked[0], 2);
	while (checker_status(stage->checkers[0]).in_flight > 0)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback where decision = "
				    "'rollback' and source = 'check'"),
	    1);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_conflict"), 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 0);
}

static void another_relays_claim_is_respected_until_it_ends(void **state)
{
	struct stage *stage = *state;

	make_overdue(stage, "order", 0, 2, 0, "null", "null");
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_claim('shop', '{order}', "
				    "'{1}', 77, 60000)"),
	    1);
	configure(stage, "", "");
	start(stage, 0);
	wait_until(stage, 1, decided);
	assert_int_equal(asked[0], 0);
	assert_int_equal(asked[1], 1);
	run(stage, "update outbox.lookback_overdue set next_check = now()");
	wait_until(stage, 2, decided);
	assert_int_equal(asked[0], 1);
}

static void what_another_relay_claimed_meanwhile_is_left_to_it(void **state)
{
	struct stage *stage = *state;

	atomic_store(&answers_held, true);
	make_overdue(stage, "order", 0, 1, 0, "null", "null");
	configure(stage, "", "");
	start(stage, 0);
	wait_until(
	    stage, 1, "select count(*) from outbox.lookback_overdue where claim is not null");
	/* as when the database's clock leaps */
	run(stage, "update outbox.lookback_overdue set claim = 77, next_check = now() + "
		   "interval '1 min'");
	atomic_store(&answers_held, false);
	while (checker_status(stage->checkers[0]).rows > 0 || asked[0] == 0)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	assert_int_equal(ask(stage, undecided), 1);
	assert_int_equal(ask(stage, "select claim from outbox.lookback_overdue"), 77);
	assert_int_equal(ask(stage, decided), 0);
}

static void claims_take_the_oldest_of_each_type_first(void **state)
{
	struct stage *stage = *state;

	make_overdue(stage, "order", 0, 3000, -5000, "null", "null");
	make_overdue(stage, "refund", 3000, 3100, -1000, "null", "null");
	make_overdue(stage, "order", 4000, 4100, -9000, "null", "null");
	/* so the table's order says nothing */
	run(stage, "update outbox.lookback_overdue set state = state where biz_id like '%7'");
	assert_int_equal(
	    ask(stage, "select count(*) from outbox.lookback_claim('shop', '{order,refund}', "
		       "'{150,80}', 5, 60000)"),
	    230);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_overdue where claim = 5 "
				    "and (biz_id::int < 50 or biz_id::int between 3000 and 3079 or "
				    "biz_id::int >= 4000)"),
	    230);
}

static void two_relays_share_a_section_and_ask_about_nothing_twice(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, by_number);
	make_overdue(stage, "order", 0, 4000, 0, "null", "null");
	configure(stage, "", "rate = 4000");
	start(stage, 0);
	start(stage, 1);
	wait_until(stage, 0, undecided);
	assert_int_equal(ask(stage, decided), 4000);
	for (int i = 0; i < 4000; i++)
		assert_int_equal(asked[i], 1);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_conflict"), 0);
}

/* --- races ---------------------------------------------------------------------------------- */

static struct reply rolls_back(int number, int times)
{
	(void)number, (void)times;
	return (struct reply){.word = CHECK_ROLLBACK};
}

static const char readers_commit[] =
    "select d.won from (select array_agg(biz_type) as types, "
    "array_agg(biz_id) as ids, array_agg(prepared_at) as ats, array_agg('commit'::text) as says, "
    "array_agg(0) as parts, array_agg(7::bigint) as offsets from outbox.lookback where kind = "
    "'prepare' and biz_id = %s) p, lateral outbox.lookback_decide('shop', 'message', null, null, "
    "p.types, p.ids, p.ats, p.says, p.parts, p.offsets, null, null, null, null, null, null) d";

static void of_a_decision_and_an_answer_the_first_wins_and_the_other_is_noted(void **state)
{
	struct stage *stage = *state;
	owned_text char *first = xformat(readers_commit, "'0'");
	owned_text char *second = xformat(readers_commit, "'1'");

	atomic_store(&the_business, rolls_back);
	atomic_store(&answers_held, true);
	make_overdue(stage, "order", 0, 1, 0, "null", "null");
	configure(stage, "", "");
	start(stage, 0);
	wait_until(
	    stage, 1, "select count(*) from outbox.lookback_overdue where claim is not null");
	while (asked[0] == 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(ask(stage, first), 1);
	atomic_store(&answers_held, false);
	/* the row went with the decision, and with it the claim: the answer has no effect */
	while (checker_status(stage->checkers[0]).rows > 0)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 1);
	assert_int_equal(ask(stage, decided), 0);

	make_overdue(stage, "order", 1, 2, 0, "null", "null");
	wait_until(stage, 1, decided);
	assert_int_equal(ask(stage, second), 0);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_conflict where biz_id = "
				    "'1' and kept = 'rollback' and refused = 'commit' and source "
				    "= 'message'"),
	    1);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 1);
}

struct reader {
	struct stage *stage;
	int ids;
	int64_t won;
};

static void *read_decisions(void *context)
{
	struct reader *reader = context;
	struct err err = {0};
	struct stage own = *reader->stage;

	own.pg = pg_connect(own.database, "reader", PATIENCE_MS, &err);
	for (int i = 0; i < reader->ids; i++) {
		owned_text char *id = xformat("'%d'", i);
		owned_text char *sql = xformat(readers_commit, id);

		reader->won += ask(&own, sql);
	}
	pg_destroy(own.pg);
	return NULL;
}

static void reader_and_checker_at_once_leave_one_decision_each(void **state)
{
	enum { IDS = 1500 };
	struct stage *stage = *state;
	struct reader reader = {stage, IDS, 0};
	pthread_t thread;

	atomic_store(&the_business, rolls_back);
	make_overdue(stage, "order", 0, IDS, 0, "null", "null");
	run(stage, "analyze outbox.lookback, outbox.lookback_overdue");
	configure(stage, "", "rate = 1000");
	pthread_create(&thread, NULL, read_decisions, &reader);
	start(stage, 0);
	pthread_join(thread, NULL);
	wait_until(stage, 0, undecided);
	wait_until(stage, IDS, "select count(*) from outbox.lookback where kind = 'decision'");
	/* whoever of the two is how fast */
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), reader.won);
	assert_int_equal(ask(stage, decided), IDS - reader.won);
	/* each that the reader lost is noted; the checker's losers may have lost their row before
	 */
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_conflict where source = "
				    "'message' and kept = 'rollback'"),
	    IDS - reader.won);
	assert_int_equal(
	    ask(stage, "select count(*) from (select biz_id from outbox.lookback where "
		       "kind = 'decision' group by biz_id having count(*) > 1) d"),
	    0);
}

/* --- trouble -------------------------------------------------------------------------------- */

static struct reply takes_a_moment(int number, int times)
{
	(void)number, (void)times;
	return (struct reply){.word = CHECK_COMMIT, .after_ms = 20};
}

static void connections_that_are_cut_again_and_again_lose_nothing(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, takes_a_moment);
	make_overdue(stage, "order", 0, 2000, 0, "null", "null");
	/* what was claimed in vain comes back soon */
	configure(stage, "claim = 1s", "rate = 1000");
	start(stage, 0);
	for (int i = 0; i < 20; i++) {
		run(stage, "select pg_terminate_backend(pid) from pg_stat_activity where "
			   "application_name like 'outbox-relay lookback%'");
		wait_until(stage, 2,
		    "select count(*) from pg_stat_activity where application_name like "
		    "'outbox-relay lookback%'");
	}
	wait_until(stage, 0, undecided);
	assert_int_equal(ask(stage, "select count(*) from outbox.message"), 2000);
	assert_int_equal(ask(stage, decided), 2000);
}

static void a_row_that_the_database_refuses_keeps_no_other_from_being_decided(void **state)
{
	struct stage *stage = *state;

	make_overdue(stage, "order", 0, 100, 0, "null", "null");
	run(stage, "alter table outbox.message add constraint none check (topic <> 'bad');"
		   "update outbox.lookback set topic = 'bad' where biz_id = '42'");
	configure(stage, "", "");
	start(stage, 0);
	wait_until(stage, 99, decided);
	wait_until(stage, 1,
	    "select count(*) from outbox.lookback_overdue where biz_id = '42' and claim is null "
	    "and attempts = 1 and last_result = 'database' and last_error is not null");
}

static void a_database_that_is_away_is_waited_for(void **state)
{
	struct stage *stage = *state;

	make_overdue(stage, "order", 0, 10, 0, "null", "null");
	run(stage, "alter schema outbox rename to hidden");
	configure(stage, "", "");
	start(stage, 0);
	int64_t by = clock_ms() + PATIENCE_MS;
	while (!strstr(checker_status(stage->checkers[0]).error, "migrate up") && clock_ms() < by)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	assert_false(checker_status(stage->checkers[0]).works);
	run(stage, "alter schema hidden rename to outbox");
	wait_until(stage, 0, undecided);
	while (!checker_status(stage->checkers[0]).works && clock_ms() < by)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	assert_true(checker_status(stage->checkers[0]).works);
}

static struct reply never_answers(int number, int times)
{
	(void)number, (void)times;
	return (struct reply){.after_ms = 3600 * 1000};
}

static void it_ends_promptly_and_gives_back_what_it_did_not_ask_about(void **state)
{
	struct stage *stage = *state;

	atomic_store(&the_business, never_answers);
	make_overdue(stage, "order", 0, 60, 0, "null", "null");
	configure(stage, "in_flight = 10", "");
	start(stage, 0);
	while (requests < 10)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	int64_t begun = clock_ms();
	stop(stage, 0);
	assert_in_range(clock_ms() - begun, 0, 1700);
	assert_int_equal(requests, 10);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_overdue where claim is "
				    "not null"),
	    10);
	assert_int_equal(ask(stage, "select count(*) from outbox.lookback_overdue where attempts = "
				    "0 and next_check <= now()"),
	    50);
}

static struct reply answers_in_5_ms(int number, int times)
{
	(void)number, (void)times;
	return (struct reply){.word = CHECK_COMMIT, .after_ms = 5};
}

static void many_overdue_are_decided_fast(void **state)
{
	enum { ROWS = 20000 };
	struct stage *stage = *state;

	atomic_store(&the_business, answers_in_5_ms);
	for (int batch = 1; batch <= 100; batch += 99) {
		owned_text char *check = xformat("rate = 0\nbatch = %d", batch);

		run(stage, "truncate outbox.lookback, outbox.lookback_overdue, outbox.message");
		make_overdue(stage, "order", 0, ROWS / 2, 0, "null", "null");
		make_overdue(stage, "refund", ROWS / 2, ROWS, 0, "null", "null");
		run(stage, "analyze outbox.lookback, outbox.lookback_overdue");
		configure(stage, "", check);
		int64_t begun = clock_ms(), took;
		start(stage, 0);
		wait_until(stage, 0, undecided);
		took = clock_ms() - begun;
		stop(stage, 0);
		print_message("%d ids in batches of %d: %lld a second\n", ROWS, batch,
		    (long long)ROWS * 1000 / (took ? took : 1));
		assert_int_equal(ask(stage, decided), ROWS);
		assert_in_range(took, 1, 20000);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    TEST(overdue_prepares_are_asked_about_once_and_the_answers_decide),
	    TEST(what_comes_due_later_is_asked_about_then),
	    TEST(wrong_answers_decide_nothing_and_count_only_when_they_were_sent),
	    TEST(a_pending_one_is_asked_again_and_costs_no_budget),
	    TEST(what_has_nowhere_to_be_asked_says_so_and_costs_nothing),
	    TEST(what_has_expired_is_parked),
	    TEST(an_answer_that_comes_after_the_claim_lapsed_is_ignored),
	    TEST(another_relays_claim_is_respected_until_it_ends),
	    TEST(what_another_relay_claimed_meanwhile_is_left_to_it),
	    TEST(claims_take_the_oldest_of_each_type_first),
	    TEST(two_relays_share_a_section_and_ask_about_nothing_twice),
	    TEST(of_a_decision_and_an_answer_the_first_wins_and_the_other_is_noted),
	    TEST(reader_and_checker_at_once_leave_one_decision_each),
	    TEST(connections_that_are_cut_again_and_again_lose_nothing),
	    TEST(a_row_that_the_database_refuses_keeps_no_other_from_being_decided),
	    TEST(a_database_that_is_away_is_waited_for),
	    TEST(it_ends_promptly_and_gives_back_what_it_did_not_ask_about),
	    TEST(many_overdue_are_decided_fast),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
