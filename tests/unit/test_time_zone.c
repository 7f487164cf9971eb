#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text.h"
#include "time_zone.h"
#include "utc.h"

enum { HOUR = 3600, DAY = 24 * HOUR };
static const char zones[] = "/usr/share/zoneinfo";
static const int64_t year_1800 = INT64_C(-5364662400), year_2150 = INT64_C(5680281600);

static struct time_zone *open_zone(const char *name)
{
	struct err err;
	struct time_zone *zone = time_zone_open(name, &err);
	if (!zone)
		fail_msg("%s", err.message);
	return zone;
}

static int32_t offset_at(const struct time_zone *zone, int64_t second)
{
	struct zone_span span = time_zone_span(zone, second);
	assert_true(span.begin <= second && second < span.end);
	return span.offset;
}

/* --- against libc --------------------------------------------------------------------------- */

static void expect_libc(const char *name, const struct time_zone *zone, int64_t second)
{
	struct tm time;
	time_t at = (time_t)second;
	assert_non_null(localtime_r(&at, &time));
	if (offset_at(zone, second) != time.tm_gmtoff)
		fail_msg("%s at %lld: %d, and libc says %ld", name, (long long)second,
		    offset_at(zone, second), time.tm_gmtoff);
}

static int compared;

static void compare(const char *name)
{
	struct time_zone *zone = open_zone(name);
	setenv("TZ", name, 1);
	tzset();
	for (int64_t at = year_1800; at < year_2150; at = time_zone_span(zone, at).end) {
		expect_libc(name, zone, at - 1);
		expect_libc(name, zone, at);
	}
	for (int64_t at = year_1800; at < year_2150; at += 47 * DAY + 12345)
		expect_libc(name, zone, at);
	time_zone_destroy(zone);
	compared++;
}

/* Not those that count leap seconds, nor what is no zone. */
static int see_file(const char *path, const struct stat *status, int type, struct FTW *place)
{
	const char *name = path + sizeof zones;
	char magic[5] = "";
	(void)status, (void)place;
	FILE *file = type == FTW_F && !text_starts(name, "right/") ? fopen(path, "r") : NULL;
	if (file && fread(magic, 1, 4, file) == 4 && text_equal(magic, "TZif"))
		compare(name);
	if (file)
		fclose(file);
	return 0;
}

static void every_zone_is_as_libc_has_it(void **state)
{
	(void)state;
	assert_int_equal(nftw(zones, see_file, 16, 0), 0);
	print_message("%d zones\n", compared);
	assert_in_range(compared, 300, 5000); /* else tzdata is missing */
	unsetenv("TZ");
	tzset();
}

/* --- single zones --------------------------------------------------------------------------- */

static void a_change_is_there_to_the_second(void **state)
{
	(void)state;
	struct time_zone *zone = open_zone("Europe/Berlin");
	int64_t spring = utc_second(2024, 3, 31, 1, 0), autumn = utc_second(2024, 10, 27, 1, 0);
	assert_int_equal(offset_at(zone, spring - 1), HOUR);
	assert_int_equal(offset_at(zone, spring), 2 * HOUR);
	assert_int_equal(offset_at(zone, autumn - 1), 2 * HOUR);
	assert_int_equal(offset_at(zone, autumn), HOUR);
	struct zone_span span = time_zone_span(zone, spring + 5);
	assert_true(span.begin == spring && span.end == autumn);
	time_zone_destroy(zone);
}

static void years_behind_the_last_change_of_the_file_have_the_rule(void **state)
{
	(void)state;
	struct time_zone *zone = open_zone("Europe/Berlin");
	int64_t spring = utc_second(2401, 3, 25, 1, 0), autumn = utc_second(2401, 10, 28, 1, 0);
	assert_int_equal(offset_at(zone, spring - 1), HOUR);
	assert_int_equal(offset_at(zone, spring), 2 * HOUR);
	assert_int_equal(offset_at(zone, autumn - 1), 2 * HOUR);
	assert_int_equal(offset_at(zone, autumn), HOUR);
	time_zone_destroy(zone);
}

static void utc_needs_no_file(void **state)
{
	(void)state;
	setenv("TZDIR", "/nowhere", 1);
	struct time_zone *zone = open_zone("UTC");
	struct zone_span span = time_zone_span(zone, 1700000000);
	assert_true(span.begin == INT64_MIN && span.end == INT64_MAX && span.offset == 0);
	time_zone_destroy(zone);
	struct err err;
	assert_null(time_zone_open("Europe/Berlin", &err));
	assert_non_null(strstr(err.message, "tzdata"));
	unsetenv("TZDIR");
}

static void what_is_no_zone_is_refused(void **state)
{
	(void)state;
	static const char *const wrong[] = {"", "Mars/Olympus", "Europe", "/etc/localtime",
	    "../zoneinfo/UTC", "Europe/../UTC", "zone.tab", "right/Europe/Berlin"};
	struct err err;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_null(time_zone_open(wrong[i], &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_non_null(strstr(err.message, "zone=Europe/Berlin"));
	}
}

/* --- the rule at the end -------------------------------------------------------------------- */

static int32_t rule_at(const char *text, int64_t second)
{
	struct posix_zone zone;
	if (!posix_zone_parse(text, &zone))
		fail_msg("%s", text);
	struct zone_span span = posix_zone_span(&zone, second);
	assert_true(span.begin <= second && second < span.end);
	return span.offset;
}

static void expect_begin(const char *name, int64_t date, int64_t begin)
{
	struct time_zone *zone = open_zone(name);
	int64_t day = date / DAY;
	assert_int_equal(time_zone_day_begin(zone, day), begin);
	assert_int_equal(time_zone_day(zone, begin), day);
	assert_true(time_zone_day(zone, begin - 1) < day);
	time_zone_destroy(zone);
}

static void a_day_begins_when_the_clock_first_shows_its_date(void **state)
{
	(void)state;
	expect_begin("UTC", utc_second(1969, 12, 31, 0, 0), utc_second(1969, 12, 31, 0, 0));
	/* before and after each change of Berlin's clock */
	expect_begin(
	    "Europe/Berlin", utc_second(2026, 3, 29, 0, 0), utc_second(2026, 3, 28, 23, 0));
	expect_begin(
	    "Europe/Berlin", utc_second(2026, 3, 30, 0, 0), utc_second(2026, 3, 29, 22, 0));
	expect_begin(
	    "Europe/Berlin", utc_second(2026, 10, 25, 0, 0), utc_second(2026, 10, 24, 22, 0));
	expect_begin(
	    "Europe/Berlin", utc_second(2026, 10, 26, 0, 0), utc_second(2026, 10, 25, 23, 0));
	/* Cairo leaves out the hour after midnight, and Havana has it twice. */
	expect_begin("Africa/Cairo", utc_second(2026, 4, 24, 0, 0), utc_second(2026, 4, 23, 22, 0));
	expect_begin(
	    "America/Havana", utc_second(2026, 11, 1, 0, 0), utc_second(2026, 11, 1, 4, 0));

	/* Samoa had no 30 December 2011. */
	struct time_zone *apia = open_zone("Pacific/Apia");
	int64_t left_out = utc_second(2011, 12, 30, 0, 0) / DAY;
	assert_int_equal(time_zone_day_begin(apia, left_out), utc_second(2011, 12, 30, 10, 0));
	assert_int_equal(time_zone_day_begin(apia, left_out + 1), utc_second(2011, 12, 30, 10, 0));
	time_zone_destroy(apia);
}

static void a_rule_is_read_in_all_its_forms(void **state)
{
	(void)state;
	int64_t winter = utc_second(2051, 1, 15, 0, 0), summer = utc_second(2051, 7, 15, 0, 0);
	assert_int_equal(rule_at("<+0330>-3:30", summer), 3 * HOUR + 1800);
	assert_int_equal(rule_at("XYZ5:30:15", summer), -(5 * HOUR + 1815));
	assert_int_equal(rule_at("NZST-12NZDT,M9.5.0,M4.1.0/3", winter), 13 * HOUR); /* the south */
	assert_int_equal(rule_at("NZST-12NZDT,M9.5.0,M4.1.0/3", summer), 12 * HOUR);
	assert_int_equal(rule_at("IST-1GMT0,M10.5.0,M3.5.0/1", winter), 0); /* less in winter */
	assert_int_equal(rule_at("IST-1GMT0,M10.5.0,M3.5.0/1", summer), HOUR);
	for (int day = 1; day < 730; day++) /* daylight time all year */
		assert_int_equal(
		    rule_at("XXX3EDT4,0/0,J365/23", utc_second(2051, 1, 1, 3, 0) + day * DAY / 2),
		    -4 * HOUR);
}

static void days_of_a_year_count_with_and_without_a_leap_day(void **state)
{
	(void)state;
	const char *julian = "AAA0BBB,J60/0,J300/0", *plain = "AAA0BBB,59/0,300/0";
	assert_int_equal(rule_at(julian, utc_second(2052, 2, 29, 12, 0)), 0);
	assert_int_equal(rule_at(julian, utc_second(2052, 3, 1, 0, 0)), HOUR);
	assert_int_equal(rule_at(julian, utc_second(2051, 3, 1, 0, 0)), HOUR);
	assert_int_equal(rule_at(plain, utc_second(2052, 2, 29, 0, 0)), HOUR);
	assert_int_equal(rule_at(plain, utc_second(2051, 2, 28, 23, 59)), 0);
	assert_int_equal(rule_at(plain, utc_second(2051, 3, 1, 0, 0)), HOUR);
}

static void a_change_may_be_on_another_day_than_its_rule_says(void **state)
{
	(void)state;
	/* Godthab: Saturday before the last Sunday, at 22:00 */
	const char *before = "<-02>2<-01>,M3.5.0/-1,M10.5.0/0";
	assert_int_equal(rule_at(before, utc_second(2051, 3, 26, 0, 59)), -2 * HOUR);
	assert_int_equal(rule_at(before, utc_second(2051, 3, 26, 1, 0)), -HOUR);
	/* Gaza has had such ones: the Saturday behind the fourth Thursday */
	const char *behind = "EET-2EEST,M3.4.4/50,M10.4.4/50";
	assert_int_equal(rule_at(behind, utc_second(2051, 3, 24, 23, 59)), 2 * HOUR);
	assert_int_equal(rule_at(behind, utc_second(2051, 3, 25, 0, 0)), 3 * HOUR);
}

static void a_rule_that_is_none_is_refused(void **state)
{
	(void)state;
	static const char *const wrong[] = {"", "CE-1", "CET", "CET-", "CET-25", "<>1", "<CET-1",
	    "CET-1CEST", "CET-1CEST,", "CET-1CEST,M3.5.0", "CET-1CEST,M3.5.0,", "CET-1CE,M3.5.0,J1",
	    "CET-1CEST,M0.5.0,M10.5.0", "CET-1CEST,M13.5.0,M10.5.0", "CET-1CEST,M3.6.0,M10.5.0",
	    "CET-1CEST,M3.0.0,M10.5.0", "CET-1CEST,M3.5.7,M10.5.0", "CET-1CEST,M3.5,M10.5.0",
	    "CET-1CEST,J0,M10.5.0", "CET-1CEST,366,M10.5.0", "CET-1CEST,M3.5.0/168,M10.5.0",
	    "CET-1CEST,M3.5.0/1:60,M10.5.0", "CET-1CEST,M3.5.0,M10.5.0/3 "};
	struct posix_zone zone;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (posix_zone_parse(wrong[i], &zone))
			fail_msg("%s", wrong[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_zone_is_as_libc_has_it),
	    cmocka_unit_test(a_change_is_there_to_the_second),
	    cmocka_unit_test(years_behind_the_last_change_of_the_file_have_the_rule),
	    cmocka_unit_test(utc_needs_no_file),
	    cmocka_unit_test(what_is_no_zone_is_refused),
	    cmocka_unit_test(a_day_begins_when_the_clock_first_shows_its_date),
	    cmocka_unit_test(a_rule_is_read_in_all_its_forms),
	    cmocka_unit_test(days_of_a_year_count_with_and_without_a_leap_day),
	    cmocka_unit_test(a_change_may_be_on_another_day_than_its_rule_says),
	    cmocka_unit_test(a_rule_that_is_none_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
