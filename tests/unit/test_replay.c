#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cleanup.h"
#include "replay_filter.h"
#include "text.h"

static const int64_t now_us = INT64_C(1767225600) * 1000000; /* 2026-01-01 */

static bool takes(struct replay_filter *filter, const char *term)
{
	struct err err;

	return replay_filter_add(filter, term, now_us, &err);
}

static void is_refused(const char *term, const char *word)
{
	struct replay_filter filter;
	struct err err = {.message = ""};

	replay_filter_init(&filter);
	assert_false(replay_filter_add(&filter, term, now_us, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	assert_non_null(strstr(err.message, word));
	replay_filter_finish(&filter);
}

static void a_range_of_ids_may_be_open_at_either_end(void **state)
{
	static const struct {
		const char *term;
		int64_t from, to;
	} rows[] = {
	    {"ids=10..20", 10, 20},
	    {"ids=10..", 10, INT64_MAX},
	    {"ids=..20", 1, 20},
	    {"ids=7", 7, 7},
	    {"ids=1..9223372036854775807", 1, INT64_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct replay_filter filter;

		replay_filter_init(&filter);
		assert_true(takes(&filter, rows[i].term));
		assert_int_equal(filter.from_id, rows[i].from);
		assert_int_equal(filter.to_id, rows[i].to);
		replay_filter_finish(&filter);
	}
}

static void a_range_of_ids_that_is_none_is_refused(void **state)
{
	(void)state;
	is_refused("ids=", "no range of ids");
	is_refused("ids=..", "no range of ids");
	is_refused("ids=0..1", "no range of ids");
	is_refused("ids=1..x", "no range of ids");
	is_refused("ids=1..2..3", "no range of ids");
	is_refused("ids=9223372036854775808", "no range of ids");
	is_refused("ids=2..1", "reversed");
}

static void moments_are_brought_to_one_form(void **state)
{
	struct replay_filter filter;

	(void)state;
	replay_filter_init(&filter);
	assert_true(takes(&filter, "created=2025-12-01..2025-12-02T03:04"));
	assert_string_equal(filter.from_at, "2025-12-01T00:00:00Z");
	assert_string_equal(filter.to_at, "2025-12-02T03:04:00Z");
	replay_filter_finish(&filter);
	assert_true(takes(&filter, "created=2025-12-01.."));
	assert_string_equal(filter.to_at, "infinity");
	replay_filter_finish(&filter);
	is_refused("created=2026-01-01T00:00:01..", "future");
	is_refused("created=2025-01-01..2026-01-02", "future");
	is_refused("created=2025-01-02..2025-01-01", "reversed");
	is_refused("created=2025-01-01..2025-01-01", "empty");
	is_refused("created=..", "no range of moments");
}

static void a_key_is_kept_as_hexadecimal(void **state)
{
	struct replay_filter filter;

	(void)state;
	replay_filter_init(&filter);
	assert_true(takes(&filter, "key=a'=\xc3\xbc"));
	assert_string_equal(filter.terms[REPLAY_KEY], "\\x61273dc3bc");
	replay_filter_finish(&filter);
	assert_true(takes(&filter, "key=\\x00Ff"));
	assert_string_equal(filter.terms[REPLAY_KEY], "\\x00Ff");
	replay_filter_finish(&filter);
	assert_true(takes(&filter, "key=\\x"));
	assert_string_equal(filter.terms[REPLAY_KEY], "\\x");
	replay_filter_finish(&filter);
	is_refused("key=\\x1", "not hexadecimal");
	is_refused("key=\\x'1", "not hexadecimal");
	is_refused("key=", "names no key");
}

/* They stand within quotes in SQL. */
static void no_term_holds_a_quote(void **state)
{
	(void)state;
	is_refused("topic=a'b", "no topic's name");
	is_refused("topic=..", "no topic's name");
	is_refused("event-id=8c1a3f7e-0b1d-4c55-9f43-6a2d1e0c7b9'", "no uuid");
	is_refused("event-id=8c1a3f7e-0b1d-4c55-9f43-6a2d1e0c7b900", "no uuid");
	is_refused("created='..", "no moment");
	is_refused("ids='1", "no range");
	is_refused("state=published'", "not known");
}

static void what_names_nothing_to_choose_by_is_refused(void **state)
{
	(void)state;
	is_refused("orders", "NAME=VALUE");
	is_refused("id=7", "'id'");
	is_refused("=7", "''");
}

static void a_term_is_given_once(void **state)
{
	struct replay_filter filter;

	(void)state;
	replay_filter_init(&filter);
	assert_true(takes(&filter, "topic=a"));
	assert_false(takes(&filter, "topic=b"));
	assert_string_equal(filter.terms[REPLAY_TOPIC], "a");
	replay_filter_finish(&filter);
}

static void the_state_alone_restricts_too_little(void **state)
{
	struct replay_filter filter;

	(void)state;
	replay_filter_init(&filter);
	assert_true(replay_filter_is_everything(&filter));
	assert_true(takes(&filter, "state=published"));
	assert_true(replay_filter_is_everything(&filter));
	assert_true(takes(&filter, "ids=1.."));
	assert_false(replay_filter_is_everything(&filter));
	replay_filter_finish(&filter);
}

static void a_filter_comes_back_from_the_database_as_it_was(void **state)
{
	struct replay_filter filter, again;
	struct err err;

	(void)state;
	replay_filter_init(&filter);
	replay_filter_init(&again);
	assert_true(takes(&filter, "ids=5..9"));
	assert_true(takes(&filter, "created=2025-12-01.."));
	assert_true(takes(&filter, "topic=orders"));
	assert_true(takes(&filter, "key=\"k\\"));
	assert_true(takes(&filter, "event-id=8c1a3f7e-0b1d-4c55-9f43-6a2d1e0c7b90"));
	assert_true(takes(&filter, "state=published"));
	owned_text char *json = replay_filter_json(&filter);
	assert_true(replay_filter_from_json(&again, json, &err));
	for (int i = 0; i < REPLAY_TERMS; i++)
		assert_string_equal(again.terms[i], filter.terms[i]);
	assert_int_equal(again.from_id, 5);
	assert_int_equal(again.to_id, 9);
	assert_string_equal(again.from_at, filter.from_at);
	replay_filter_finish(&filter);
	replay_filter_finish(&again);
}

static void a_filter_that_others_wrote_is_checked_as_well(void **state)
{
	static const char *const wrong[] = {"", "[]", "{\"ids\": 5}", "{\"topic\": \"a'b\"}",
	    "{\"colour\": \"red\"}", "{\"ids\": \"1..x\", \"topic\": \"a\"}"};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct replay_filter filter;
		struct err err;

		replay_filter_init(&filter);
		assert_false(replay_filter_from_json(&filter, wrong[i], &err));
		replay_filter_finish(&filter);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_range_of_ids_may_be_open_at_either_end),
	    cmocka_unit_test(a_range_of_ids_that_is_none_is_refused),
	    cmocka_unit_test(moments_are_brought_to_one_form),
	    cmocka_unit_test(a_key_is_kept_as_hexadecimal),
	    cmocka_unit_test(no_term_holds_a_quote),
	    cmocka_unit_test(what_names_nothing_to_choose_by_is_refused),
	    cmocka_unit_test(a_term_is_given_once),
	    cmocka_unit_test(the_state_alone_restricts_too_little),
	    cmocka_unit_test(a_filter_comes_back_from_the_database_as_it_was),
	    cmocka_unit_test(a_filter_that_others_wrote_is_checked_as_well),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
