#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "dedup_stores.h"

static void a_line_says_all(void **state)
{
	(void)state;
	struct dedup_spec spec;
	struct err err;
	assert_true(dedup_spec_parse(
	    "bloom ids=50M  rate=0.5%\twindow=7d slices=7 path=/var/lib/x", &spec, &err));
	assert_ptr_equal(spec.type, &bloom_store);
	assert_int_equal(spec.ids, 50000000);
	assert_true(fabs(spec.rate - 0.005) < 1e-12);
	assert_int_equal(spec.window_ms, 7 * 86400000LL);
	assert_int_equal(spec.slices, 7);
	assert_string_equal(spec.path, "/var/lib/x");
	dedup_spec_finish(&spec);
}

static void a_value_in_quotes_may_have_blanks_and_quotes(void **state)
{
	(void)state;
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	struct err err;
	assert_true(dedup_spec_parse(
	    "bloom ids=7 confirm=sql query=\"select \"\"id\"\" from t\" \"path=/a b\"", &spec,
	    &err));
	assert_string_equal(spec.query, "select \"id\" from t");
	assert_string_equal(spec.path, "/a b");
}

static void what_is_not_said_has_a_default(void **state)
{
	(void)state;
	struct dedup_spec spec;
	struct err err;
	assert_true(dedup_spec_parse("bloom ids=7", &spec, &err));
	assert_true(spec.rate == 0.001 && spec.slices == 5 && spec.window_ms == 86400000);
	assert_int_equal(spec.counter_bits, 4);
	assert_null(spec.path);
	dedup_spec_finish(&spec);
}

static void wider_counters_are_planned_with_twice_the_memory(void **state)
{
	(void)state;
	OWNED(dedup_spec_finish) struct dedup_spec narrow, wide;
	struct err err;
	assert_true(dedup_spec_parse("counting lossy ids=1M counter=4", &narrow, &err));
	assert_true(dedup_spec_parse("counting lossy ids=1M counter=8", &wide, &err));
	assert_true(narrow.planned_bytes > 0);
	assert_int_equal(wide.planned_bytes, 2 * narrow.planned_bytes);
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
	    {"bloom ids", "ids ''", "ids=50M"},
	    {"bloom ids=0", "ids '0'", "ids=50M"},
	    {"bloom ids=-1", "ids '-1'", "ids=50M"},
	    {"bloom ids=101G", "ids '101G'", "1 to 100G"},
	    {"bloom ids=99999999999999999999", "ids '9999", "1 to 100G"},
	    {"bloom ids=5x", "ids '5x'", "ids=50M"},
	    {"bloom ids=90G rate=0.000001%", "ids=90000000000", "lower ids"},
	    {"counting lossy ids=100G", "ids=100000000000", "raise rate"},
	    {"counting lossy ids=5 counter=16", "counter '16'", "4 or 8"},
	    {"counting lossy ids=5 counter=0", "counter '0'", "counter=8"},
	    {"counting lossy ids=5 counter=", "counter ''", "counter=8"},
	    {"bloom ids=5 counter=8", "'counter' is no setting of 'bloom'", "rate"},
	    {"exact ids=100G", "ids=100000000000", "choose bloom"},
	    {"redis lossy form=bloom ids=5 window=1h url=redis://x name=x", "window=3600000ms",
		"whole days"},
	    {"redis lossy form=bloom ids=5 window=1d zone=X url=redis://x name=x", "zone=X",
		"zone"},
	    {"redis lossy form=bloom ids=5 zone=UTC url=redis://x name=x", "zone", "window=30d"},
	    {"redis form=bloom ids=5 confirm=sql url=redis://x name=x", "query is missing",
		"query="},
	    {"redis lossy form=bitmap ids=5 slices=2 url=redis://x name=x", "slices", "add window"},
	    {"redis lossy form=bitmap ids=5 window=24s url=redis://x name=x", "4800 ms",
		"lengthen window"},
	    {"redis slices=2 url=redis://x name=x", "slices", "form=bitmap"},
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
	    {"bitmap ids=5 slices=3", "slices=3", "window=24h"},
	    {"bitmap lossy form=hash ids=5 slices=5", "slices=5", "window=24h"},
	    {"bitmap ids=5 window=0s", "window '0s'", "window=24h"},
	    {"bitmap ids=5 window=4ms", "window=4ms", "lengthen window"},
	    {"bitmap ids=5 window=1h slices=32", "slices '32'", "1 to 31"},
	    {"bloom ids=5 path=", "path ''", "path=/"},
	    {"bloom ids=5 colour=red", "'colour'", "ids, rate, alarm, window"},
	    {"bloom ids=5 url=redis://x", "'url' is no setting of 'bloom'", "path"},
	    {"exact ids=5 rate=1%", "'rate' is no setting of 'exact'", "ids, window"},
	    {"bloom ids=5 \"path=/a b", "quote", "end"},
	    {"bloom lossy ids=5", "'bloom' is not lossy", "leave"},
	    {"counting ids=5", "'counting'", "'counting lossy'"},
	    {"bitmap form=hash ids=5", "'bitmap form=hash'", "'bitmap lossy form=hash'"},
	    {"redis form=bloom ids=5 url=redis://x name=x", "'redis form=bloom'", "lossy"},
	    {"redis form=plain url=redis://x name=x", "form=plain", "key, bitmap, bloom"},
	    {"bitmap form=key ids=5", "form=key", "plain, hash"},
	    {"redis name=x", "url is missing", "url=redis://"},
	    {"redis url=redis://x", "name is missing", "name=billing"},
	    {"redis url=redis://x name=a:b", "name 'a:b'", "letters"},
	    {"redis lossy form=bitmap url=redis://x name=x", "ids is missing", "ids=50M"},
	    {"postgres", "name is missing", "name=billing"},
	    {"bloom ids=5 confirm=sql", "query is missing", "query="},
	    {"bloom ids=5 confirm=maybe", "confirm 'maybe'", "log, or sql"},
	    {"bloom ids=5 dsn=x", "confirm=sql", "leave"},
	    {"bloom ids=5 pending=0", "pending '0'", "pending=100k"},
	    {"redis url=redis://x name=x lease=1ms", "lease '1ms'", "lease=30s"},
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

static void only_a_store_with_a_window_forgets(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		bool forgets;
	} lines[] = {
	    {"bloom ids=7", true},
	    {"exact ids=7", true},
	    {"bitmap ids=7", false},
	    {"bitmap ids=7 window=1h", true},
	    {"bitmap lossy form=hash ids=7", false},
	    {"bitmap lossy form=hash ids=7 window=1h slices=1", true},
	    {"sequence", false},
	};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		OWNED(dedup_spec_finish) struct dedup_spec spec;
		struct err err;
		assert_true(dedup_spec_parse(lines[i].line, &spec, &err));
		assert_int_equal(dedup_spec_forgets(&spec), lines[i].forgets);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_says_all),
	    cmocka_unit_test(a_value_in_quotes_may_have_blanks_and_quotes),
	    cmocka_unit_test(what_is_not_said_has_a_default),
	    cmocka_unit_test(wider_counters_are_planned_with_twice_the_memory),
	    cmocka_unit_test(only_a_store_with_a_window_forgets),
	    cmocka_unit_test(a_bad_line_is_told_which_setting_and_what_to_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
