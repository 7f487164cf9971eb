#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dedup_spec.h"

static void a_line_says_all(void **state)
{
	(void)state;
	struct dedup_spec spec;
	struct err err;
	assert_true(dedup_spec_parse(
	    "bloom ids=50M  rate=0.5%\twindow=7d slices=7 path=/var/lib/x", &spec, &err));
	assert_int_equal(spec.store, DEDUP_BLOOM);
	assert_int_equal(spec.ids, 50000000);
	assert_true(fabs(spec.rate - 0.005) < 1e-12);
	assert_int_equal(spec.window_ms, 7 * 86400000LL);
	assert_int_equal(spec.slices, 7);
	assert_string_equal(spec.path, "/var/lib/x");
	dedup_spec_finish(&spec);
}

static void what_is_not_said_has_a_default(void **state)
{
	(void)state;
	struct dedup_spec spec;
	struct err err;
	assert_true(dedup_spec_parse("bloom ids=7", &spec, &err));
	assert_true(spec.rate == 0.001 && spec.slices == 5 && spec.window_ms == 86400000);
	assert_null(spec.path);
	dedup_spec_finish(&spec);
}

static void a_bad_line_is_told_which_setting_and_what_to_write(void **state)
{
	(void)state;
	static const struct {
		const char *line, *place, *cure;
	} wrong[] = {
	    {"", "no store", "bloom"},
	    {"blom ids=5", "'blom'", "bloom"},
	    {"bloom", "ids", "ids=50M"},
	    {"bloom ids", "'ids'", "ids=50M"},
	    {"bloom ids=0", "ids '0'", "ids=50M"},
	    {"bloom ids=-1", "ids '-1'", "ids=50M"},
	    {"bloom ids=101G", "ids '101G'", "1 to 100G"},
	    {"bloom ids=99999999999999999999", "ids '9999", "1 to 100G"},
	    {"bloom ids=5x", "ids '5x'", "ids=50M"},
	    {"bloom ids=90G rate=0.000001%", "ids=90000000000", "lower ids"},
	    {"bloom ids=5 rate=0", "rate '0'", "rate=0.1%"},
	    {"bloom ids=5 rate=1", "rate '1'", "rate=0.1%"},
	    {"bloom ids=5 rate=100%", "rate '100%'", "rate=0.1%"},
	    {"bloom ids=5 rate=-0.1", "rate '-0.1'", "rate=0.1%"},
	    {"bloom ids=5 rate=nan", "rate 'nan'", "rate=0.1%"},
	    {"bloom ids=5 rate=inf", "rate 'inf'", "rate=0.1%"},
	    {"bloom ids=5 rate=0.1%%", "rate '0.1%%'", "rate=0.1%"},
	    {"bloom ids=5 rate=", "rate ''", "rate=0.1%"},
	    {"bloom ids=5 window=24", "window '24'", "window=24h"},
	    {"bloom ids=5 window=0s", "window '0s'", "window=24h"},
	    {"bloom ids=5 window=4ms", "window=4ms", "lengthen window"},
	    {"bloom ids=5 slices=0", "slices '0'", "1 to 31"},
	    {"bloom ids=5 slices=32", "slices '32'", "1 to 31"},
	    {"bloom ids=5 path=", "path ''", "path=/"},
	    {"bloom ids=5 colour=red", "'colour'", "ids, rate, window"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct dedup_spec spec;
		struct err err = {0};
		assert_false(dedup_spec_parse(wrong[i].line, &spec, &err));
		dedup_spec_finish(&spec);
		print_message("%s: %s\n", wrong[i].line, err.message);
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_non_null(strstr(err.message, wrong[i].place));
		assert_non_null(strstr(err.message, wrong[i].cure));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_says_all),
	    cmocka_unit_test(what_is_not_said_has_a_default),
	    cmocka_unit_test(a_bad_line_is_told_which_setting_and_what_to_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
