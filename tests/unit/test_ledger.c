#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "ledger.h"

#define PROGRAM "0.2.0"

static const struct sql_file files[] = {
    {"0001_first", 1, "aa", "0.1.0", ""},
    {"0002_second", 2, "bb", "0.1.0", ""},
    {"roles", 0, "cc", "0.1.0", ""},
};
enum { FILES = 3 };

static struct ledger_row row(char *name, int version, char *checksum, char *oldest, char *program)
{
	return (struct ledger_row){
	    version, name, checksum, oldest, program, "2026-01-02T03:04:05Z", "owner"};
}

/* All three as they are now; tests change a copy. */
static struct ledger complete(struct ledger_row rows[4])
{
	rows[0] = row("0001_first", 1, "aa", "0.1.0", "0.1.0");
	rows[1] = row("0002_second", 2, "bb", "0.1.0", PROGRAM);
	rows[2] = row("roles", 0, "cc", "0.1.0", PROGRAM);
	rows[3] = row("0003_third", 3, "dd", "0.2.0", "0.3.0");
	return (struct ledger){.exists = true, .rows = rows, .count = 3};
}

static const char *next(const struct ledger *ledger, bool repeatable)
{
	const struct sql_file *file = ledger_next(ledger, files, FILES, PROGRAM, repeatable);
	return file ? file->name : "";
}

static void an_empty_database_gets_the_files_in_order(void **state)
{
	(void)state;
	struct ledger_row rows[4];
	struct ledger ledger = complete(rows);
	for (ledger.count = 0; ledger.count < FILES; ledger.count++)
		assert_string_equal(next(&ledger, true), files[ledger.count].name);
	assert_string_equal(next(&ledger, true), "");
}

static void without_roles_the_repeatable_file_is_left_out(void **state)
{
	(void)state;
	struct ledger_row rows[4];
	struct ledger ledger = complete(rows);
	ledger.count = 2;
	assert_string_equal(next(&ledger, false), "");
}

static void a_changed_repeatable_file_is_applied_again(void **state)
{
	(void)state;
	struct ledger_row rows[4];
	struct ledger ledger = complete(rows);
	struct err err;
	rows[2].checksum = "old";
	assert_true(ledger_accepts(&ledger, files, FILES, PROGRAM, &err));
	assert_string_equal(next(&ledger, true), "roles");
}

static void what_a_newer_program_did_is_not_undone(void **state)
{
	(void)state;
	struct ledger_row rows[4];
	struct ledger ledger = complete(rows);
	rows[2].checksum = "new";
	rows[2].program = "0.10.0";
	assert_string_equal(next(&ledger, true), "");
	rows[2].program = PROGRAM;
	ledger.count = 4;
	assert_string_equal(next(&ledger, true), "");
}

static void a_changed_file_is_refused_by_name_with_the_cure(void **state)
{
	(void)state;
	struct ledger_row rows[4];
	struct ledger ledger = complete(rows);
	struct err err = {0};
	rows[0].checksum = "other";
	assert_int_equal(ledger_state(&ledger, &files[0]), MIGRATION_CHANGED);
	assert_false(ledger_accepts(&ledger, files, FILES, PROGRAM, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "sql/migrations/0001_first.sql is not the file"));
	assert_non_null(strstr(err.message, "put the file back"));
}

static void a_newer_database_says_whether_this_program_may_run(void **state)
{
	(void)state;
	struct ledger_row rows[4];
	struct ledger ledger = complete(rows);
	struct err err = {0};
	ledger.count = 4;
	assert_true(ledger_accepts(&ledger, files, FILES, PROGRAM, &err));
	rows[3].oldest_program = "0.2.1";
	assert_false(ledger_accepts(&ledger, files, FILES, PROGRAM, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "0003_third, applied by outbox-relay 0.3.0, needs"));
	assert_non_null(strstr(err.message, "0.2.1"));
}

static void programs_are_compared_by_number(void **state)
{
	(void)state;
	assert_int_equal(ledger_compare_programs("0.1.0", "0.1.0"), 0);
	assert_true(ledger_compare_programs("0.10.0", "0.9.9") > 0);
	assert_true(ledger_compare_programs("1.0.0", "0.99.99") > 0);
	assert_true(ledger_compare_programs("0.1.0", "0.1.1") < 0);
	assert_true(ledger_compare_programs("0.1", "0.1.1") < 0);
	assert_true(ledger_compare_programs("", "0.1.1") < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_empty_database_gets_the_files_in_order),
	    cmocka_unit_test(without_roles_the_repeatable_file_is_left_out),
	    cmocka_unit_test(a_changed_repeatable_file_is_applied_again),
	    cmocka_unit_test(what_a_newer_program_did_is_not_undone),
	    cmocka_unit_test(a_changed_file_is_refused_by_name_with_the_cure),
	    cmocka_unit_test(a_newer_database_says_whether_this_program_may_run),
	    cmocka_unit_test(programs_are_compared_by_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
