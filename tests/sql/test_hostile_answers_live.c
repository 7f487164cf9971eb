/*
 * A database that answers with anything: its functions are replaced by some with other types.
 * Nothing is read beyond an answer, nothing asserts, and the error names the column. Needs a living
 * Postgres (TEST_DATABASE_URL).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "check_calls.h"
#include "clock.h"
#include "logging.h"
#include "statements.h"

enum { PATIENCE_MS = 30000 };

static const char *dsn;

static struct pg *connected(void)
{
	struct err err;
	struct pg *pg = pg_connect(dsn, "hostile", PATIENCE_MS, &err);
	if (!pg)
		fail_msg("%s", err.message);
	return pg;
}

/* The answer to what was sent, in binary form. */
static struct pg_result *answer_of(struct pg *pg)
{
	struct pg_result *result = NULL;
	struct err err;
	bool done = false;
	while (!done) {
		struct pollfd wanted = {.fd = pg_fd(pg), .events = pg_events(pg)};
		if (poll(&wanted, 1, PATIENCE_MS) == 0)
			fail_msg("no answer");
		if (!pg_step(pg, &err) || !pg_receive(pg, &done, &result, &err))
			fail_msg("%s", err.message);
	}
	return result;
}

static struct pg_result *ask(struct pg *pg, const char *sql)
{
	struct err err;
	if (!pg_send(pg, sql, NULL, 0, &err))
		fail_msg("%s", err.message);
	return answer_of(pg);
}

static void a_text_that_is_no_number_reads_as_zero(void **state)
{
	(void)state;
	static const char *const values[] = {
	    "'abc'", "''", "'99999999999999999999'", "'1.5'", "'1 '", "null"};
	OWNED(owned_pg_destroy) struct pg *pg = connected();
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		char sql[64] = "select ";
		struct err err;
		strncat(sql, values[i], sizeof sql - strlen(sql) - 1);
		OWNED(owned_pg_result_destroy)
		struct pg_result *result = pg_query(pg, sql, NULL, 0, &err);
		assert_non_null(result);
		assert_int_equal(pg_int(result, 0, 0), 0);
	}
}

static void what_the_server_did_not_send_reads_as_null(void **state)
{
	(void)state;
	OWNED(owned_pg_destroy) struct pg *pg = connected();
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = ask(pg, "select 7::int8 where false");
	assert_int_equal(pg_rows(result), 0);
	assert_true(pg_is_null(result, 0, 0));
	assert_string_equal(pg_value(result, 0, 0), "");
	assert_int_equal(pg_length(result, 0, 3), 0);
	assert_int_equal(pg_int8(result, 0, 0), 0);
	assert_int_equal(pg_int4(result, 5, 5), 0);
}

static void binary_numbers_have_their_width(void **state)
{
	(void)state;
	OWNED(owned_pg_destroy) struct pg *pg = connected();
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = ask(pg, "select 7::int8, 8::int4, 'a'::text, null::int8");
	assert_int_equal(pg_int8(result, 0, 0), 7);
	assert_int_equal(pg_int4(result, 0, 1), 8);
	assert_int_equal(pg_int8(result, 0, 1), 0);
	assert_int_equal(pg_int4(result, 0, 2), 0);
	assert_int_equal(pg_int8(result, 0, 3), 0);
}

/* --- a publisher's statements ---------------------------------------------------------------- */

#define TICK_FUNCTION(columns, values)                                                             \
	"create function hostile.tick(text, int, int, bigint, bigint, bigint, bigint, int, "       \
	"bigint, jsonb, bigint, boolean, boolean, int, bigint, text, jsonb, boolean, int, "        \
	"int[], boolean, boolean) returns table (verdict text, seen text, id bigint, "             \
	"created_at timestamptz, event_id uuid, " columns                                          \
	", key text, payload text, headers json, partition int, deliver_at timestamptz, "          \
	"key_bytes bytea, payload_bytes bytea, requests bigint, due_ms bigint, took_ms bigint, "   \
	"paused boolean, paused_topics json) language sql as $$ select " values " $$"
#define TAKE_FUNCTION(count, number)                                                               \
	"create function hostile.take(text, int, int, bigint, text, bigint, bigint) "              \
	"returns table (outcome text, n " number ", epoch bigint, first_tick bigint, "             \
	"acked_id bigint, windows int, holder text, wait_ms bigint, former_epoch bigint, "         \
	"listed_tick bigint, parked boolean, scheduled boolean, requests bigint, "                 \
	"identity uuid, deaths int, alone_deaths int, paused boolean, paused_topics jsonb) "       \
	"language sql as $$ "                                                                      \
	"select 'taken', '1'::" number ", 1::int8, 1::int8, 0::int8, " count                       \
	", 'x', 0::int8, 1::int8, "                                                                \
	"0::int8, false, false, 0::int8, '00000000-0000-0000-0000-000000000000'::uuid, 0, 0, "     \
	"false, null::jsonb $$"

/* A renewal looks as well. */
#define RENEW_FUNCTIONS(rows, type, value)                                                         \
	"create function hostile.look(text, xid8) returns table (seen text, version text, "        \
	"has_rows " type ") language sql as $$ select '1:1:'::text, '1'::text, " value " $$; "     \
	"create function hostile.renew(text, int, bigint, bigint, bigint, bigint, int[]) "         \
	"returns setof text language sql as $$ select 'noted'::text limit " rows " $$"

static const struct lie {
	enum stream_call call;
	const char *sql; /* replaces the schema `hostile` */
	const char *words;
} lies[] = {
    {STREAM_TICK,
	TICK_FUNCTION("topic bytea",
	    "'rows', null::text, null::int8, now(), null::uuid, null::bytea, 'k', 'p', "
	    "null::json, "
	    "0, null::timestamptz, null::bytea, null::bytea, "
	    "0::int8, 0::int8, -9223372036854775808, false, null::json union all select null, "
	    "null, 1, now(), "
	    "'00000000-0000-0000-0000-000000000000'::uuid, '\\x6f00726465727321'::bytea, 'k', 'p', "
	    "null, 0, null, null, null, 0, 0, 0, false, null"),
	"text without NUL"},
    {STREAM_TICK,
	TICK_FUNCTION("topic int",
	    "'rows', null::text, 1::int8, now(), null::uuid, 7, 'k', 'p', null::json, "
	    "0, null::timestamptz, null::bytea, null::bytea, 0::int8, 0::int8, 0::int8, false, "
	    "null::json "
	    "limit 0"),
	"no row"},
    {STREAM_TAKE, TAKE_FUNCTION("0", "int"), "column 2"},
    {STREAM_TAKE, TAKE_FUNCTION("0", "text"), "column 2"},
    {STREAM_TAKE, TAKE_FUNCTION("2147483647", "bigint"), "2147483647 open windows"},
    {STREAM_TAKE, TAKE_FUNCTION("-1", "bigint"), "-1 open windows"},
    {STREAM_RENEW, RENEW_FUNCTIONS("0", "boolean", "false"), "no row"},
    {STREAM_RENEW, RENEW_FUNCTIONS("1", "int", "7"), "column 4"},
    {STREAM_PLACES,
	"create function hostile.parked_places(text, int, bigint, bigint, text, int, int) "
	"returns table (topic bytea, partition int) language sql as $$ select '\\x6100'::bytea, 0 "
	"$$",
	"column 1"},
    {STREAM_PLACES,
	"create function hostile.parked_places(text, int, bigint, bigint, text, int, int) "
	"returns table (topic text, partition bool) language sql as $$ select 'a'::text, true $$",
	"column 2"},
    {STREAM_DIGESTS,
	"create function hostile.parked_digests(text, int, bigint, bigint, bigint, int) "
	"returns setof text language sql as $$ select 'a'::text $$",
	"column 1"},
};

static void renew_schema(struct pg *pg, const char *sql)
{
	struct err err;
	if (!pg_script(pg,
		"drop schema if exists hostile cascade; create schema hostile; "
		"create table hostile.log (publisher text, shard int, n bigint, nonce bigint, txid "
		"xid8)",
		&err) ||
	    !pg_script(pg, sql, &err))
		fail_msg("%s", err.message);
}

static void tell_lie(struct pg *pg, const struct lie *lie)
{
	const struct stream_settings settings = {
	    .max_in_flight = 10, .memory = 1 << 20, .lease_ms = 10000, .seed = 1};
	const struct stream_tick call = {
	    .call = lie->call, .after = "", .max_topics = 10, .most = 10};
	struct link link = {.pg = pg, .made = 1};
	struct stream *stream = stream_create(&settings);
	struct statements *statements = statements_create("hostile", "main", 0, 1, "me");
	char holder[64];
	struct err err = {0};
	bool done;

	renew_schema(pg, lie->sql);
	if (!statements_send_call(statements, &link, &call, &err))
		fail_msg("%s", err.message);
	OWNED(owned_pg_result_destroy) struct pg_result *result = answer_of(pg);
	assert_false(statements_answer(
	    statements, &link, result, stream, 0, false, holder, sizeof holder, &done, &err));
	if (!strstr(err.message, lie->words))
		fail_msg("\"%s\" does not say \"%s\"", err.message, lie->words);
	assert_int_equal(err.kind, ERR_FATAL);
	statements_destroy(statements);
	stream_destroy(stream);
}

static void a_publisher_takes_no_answer_of_another_form(void **state)
{
	(void)state;
	OWNED(owned_pg_destroy) struct pg *pg = connected();
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
		tell_lie(pg, &lies[i]);
}

/* --- the checker's --------------------------------------------------------------------------- */

static void the_checker_takes_no_answer_of_another_form(void **state)
{
	(void)state;
	static const struct {
		enum check_answer_of what;
		const char *sql, *words; /* NULL: a good one */
	} answers[] = {
	    {CHECK_ANSWER_CLAIMS, "select 2, 'a', 'b', 0, 0, null, null, false, 0::int8", NULL},
	    {CHECK_ANSWER_CLAIMS, "select 3, 'a', 'b', 0, 0, null, null, false, 0::int8",
		"type number 3 of 2"},
	    {CHECK_ANSWER_CLAIMS, "select 0, 'a', 'b', 0, 0, null, null, false, 0::int8",
		"type number 0 of 2"},
	    {CHECK_ANSWER_CLAIMS, "select null::int, 'a', 'b', 0, 0, null, null, false, 0::int8",
		"type number 0 of 2"},
	    {CHECK_ANSWER_CLAIMS, "select 1, 'a', 'b', 0, 0, null, null, false, 0::int2",
		"column 9"},
	    {CHECK_ANSWER_CLAIMS, "select 1, '\\x00'::bytea, 'b', 0, 0, null, null, false, 0::int8",
		"column 2"},
	    {CHECK_ANSWER_CLAIMS, "select 1", "1 columns"},
	    {CHECK_ANSWER_FIGURES, "select 3, 0::int8, 0::int8, 0::int8, 0::int8, 0::int8",
		"type number 3 of 2"},
	    {CHECK_ANSWER_FIGURES, "select 1, 0, 0, 0, 0, 0", "column 2"},
	    {CHECK_ANSWER_SETTLED, "select 1, 2, 'three', 0, 0", "column 3"},
	};
	static char *types[] = {"order", "bill"};
	const struct postgres_settings postgres = {.name = "main", .schema = "outbox"};
	const struct config_lookback lookback = {
	    .name = "a", .postgres = &postgres, .types = {.items = types, .count = 2}};
	struct check_calls *calls = check_calls_create(&lookback);
	OWNED(owned_pg_destroy) struct pg *pg = connected();
	for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
		struct err err = {0};
		OWNED(owned_pg_result_destroy) struct pg_result *result = ask(pg, answers[i].sql);
		assert_int_equal(check_calls_usable(calls, answers[i].what, result, &err),
		    answers[i].words == NULL);
		if (answers[i].words && !strstr(err.message, answers[i].words))
			fail_msg("\"%s\" does not say \"%s\"", err.message, answers[i].words);
	}
	check_calls_destroy(calls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_text_that_is_no_number_reads_as_zero),
	    cmocka_unit_test(what_the_server_did_not_send_reads_as_null),
	    cmocka_unit_test(binary_numbers_have_their_width),
	    cmocka_unit_test(a_publisher_takes_no_answer_of_another_form),
	    cmocka_unit_test(the_checker_takes_no_answer_of_another_form),
	};

	dsn = getenv("TEST_DATABASE_URL");
	if (!dsn) {
		print_error("TEST_DATABASE_URL is not set\n");
		return 1;
	}
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
