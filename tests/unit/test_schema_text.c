#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "schema_text.h"

static void assert_becomes(const char *sql, const char *expected)
{
	owned_text char *text = schema_text(sql, "shop");
	assert_string_equal(text, expected);
}

static void the_schema_is_a_whole_word(void **state)
{
	(void)state;
	assert_becomes("select outbox.publish('outbox')", "select shop.publish('shop')");
	assert_becomes("\"outbox\".\"message\"", "\"shop\".\"message\"");
	assert_becomes("outbox", "shop");
	assert_becomes("outbox outbox", "shop shop");
	assert_becomes("", "");
}

static void its_roles_take_its_name(void **state)
{
	(void)state;
	assert_becomes("'outbox_writer', outbox_relay;outbox_reader,outbox_consumer",
	    "'shop_writer', shop_relay;shop_reader,shop_consumer");
}

static void a_part_of_a_longer_word_stays(void **state)
{
	(void)state;
	assert_becomes("liboutbox outboxes outbox_id outbox_relays",
	    "liboutbox outboxes outbox_id outbox_relays");
	assert_becomes("outbox-relay outbox-id my-outbox OUTBOX outboxA Aoutbox",
	    "outbox-relay outbox-id my-outbox OUTBOX outboxA Aoutbox");
	assert_becomes("outboxoutbox", "outboxoutbox");
}

static void a_name_that_needs_no_quotes_passes(void **state)
{
	(void)state;
	struct err err;
	assert_true(schema_text_check("outbox", &err));
	assert_true(schema_text_check("_shop_2", &err));
	assert_true(schema_text_check("a123456789b123456789c123456789d123456789", &err));
}

static void any_other_name_is_refused(void **state)
{
	(void)state;
	static const char *const names[] = {"", "Shop", "2shop", "shop-x", "shop x", "shöp",
	    "pg_shop", "a\"b", "a123456789b123456789c123456789d123456789e"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct err err = {0};
		assert_false(schema_text_check(names[i], &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_non_null(strstr(err.message, "a schema's name is"));
	}
}

static void a_reserved_word_is_refused(void **state)
{
	(void)state;
	static const char *const names[] = {
	    "order", "all", "xmltable", "loop", "if", "begin", "while"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct err err = {0};
		assert_false(schema_text_check(names[i], &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_non_null(strstr(err.message, "reserved word"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_schema_is_a_whole_word),
	    cmocka_unit_test(its_roles_take_its_name),
	    cmocka_unit_test(a_part_of_a_longer_word_stays),
	    cmocka_unit_test(a_name_that_needs_no_quotes_passes),
	    cmocka_unit_test(any_other_name_is_refused),
	    cmocka_unit_test(a_reserved_word_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
