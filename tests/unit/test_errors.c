#include "errors.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void an_error_keeps_its_kind_and_its_words(void **state)
{
	struct err err;

	(void)state;
	assert_false(err_set(&err, ERR_DENIED, "user %s: no %s", "anna", "password"));
	assert_int_equal(err.kind, ERR_DENIED);
	assert_string_equal(err.message, "user anna: no password");
}

static void a_prefix_names_the_place_and_keeps_the_kind(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_RETRY, "connection refused");
	assert_false(err_prefix(&err, "publisher %s", "main"));
	assert_int_equal(err.kind, ERR_RETRY);
	assert_string_equal(err.message, "publisher main: connection refused");
}

static void a_prefix_keeps_who_was_in_the_way_and_a_new_error_does_not(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_RETRY, "a lock was not free");
	assert_false(err.contended);
	assert_false(err_contended(&err));
	err_prefix(&err, "rebase");
	assert_true(err.contended);
	err_set(&err, ERR_RETRY, "no server");
	assert_false(err.contended);
}

static void an_error_may_be_made_from_itself(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_RETRY, "inner");
	err_set(&err, ERR_FATAL, "outer: %s", err.message);
	assert_string_equal(err.message, "outer: inner");
	err_prefix(&err, "%s", err.message);
	assert_string_equal(err.message, "outer: inner: outer: inner");
}

static void a_message_of_many_lines_becomes_one(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_REJECT, "ERROR: no\n\tHINT:  yes\n");
	assert_string_equal(err.message, "ERROR: no HINT:  yes");
}

static void a_message_that_is_too_long_is_cut(void **state)
{
	struct err err;
	char longer[3000];

	(void)state;
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	err_set(&err, ERR_FATAL, "%s", longer);
	assert_int_equal(strlen(err.message), sizeof err.message - 1);
	err_prefix(&err, "%s", longer);
	assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

static void nobody_has_to_listen(void **state)
{
	(void)state;
	assert_false(err_set(NULL, ERR_FATAL, "%d", 1));
	assert_false(err_prefix(NULL, "%d", 1));
}

static void each_kind_has_its_exit_status(void **state)
{
	static const int status[] = {69, 65, 78, 77, 75, 70};

	(void)state;
	for (int kind = ERR_RETRY; kind <= ERR_FATAL; kind++) {
		struct err err = {.kind = (enum err_kind)kind};
		assert_int_equal(err_exit_status(&err), status[kind]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_error_keeps_its_kind_and_its_words),
	    cmocka_unit_test(a_prefix_names_the_place_and_keeps_the_kind),
	    cmocka_unit_test(a_prefix_keeps_who_was_in_the_way_and_a_new_error_does_not),
	    cmocka_unit_test(an_error_may_be_made_from_itself),
	    cmocka_unit_test(a_message_of_many_lines_becomes_one),
	    cmocka_unit_test(a_message_that_is_too_long_is_cut),
	    cmocka_unit_test(nobody_has_to_listen),
	    cmocka_unit_test(each_kind_has_its_exit_status),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
