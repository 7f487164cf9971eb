/*
 * At most N in a day of the calendar of a zone. A day is the time in which the zone's clock shows
 * the same date, so it has 23, 24 or 25 hours. If the clock goes back over midnight, the last hour
 * of the day comes in two pieces.
 */
#include <stdlib.h>
#include "rule.h"
#include "text.h"
#include "time_zone.h"

enum { SECOND = 1000, DAY = 86400, FURTHEST = 26 * 3600 };

/* A day, in UTC. */
struct day {
	int64_t number; /* days since 1970-01-01 in the zone */
	struct {
		int64_t begin_ms, end_ms;
	} pieces[RULE_MOST_PIECES];
	int count;
};

struct daily {
	struct rule rule;
	struct time_zone *zone;
	struct day day; /* the day of the last call */
};

static bool set_zone(
    void *object, const struct spec_setting *setting, const char *value, struct err *err)
{
	struct daily *daily = object;
	(void)setting;
	time_zone_destroy(daily->zone);
	daily->zone = time_zone_open(value, err);
	return daily->zone;
}

static const struct spec_setting daily_settings[] = {
    {"zone", "a time zone of this system, as zone=Europe/Berlin", set_zone},
    {NULL},
};

static bool check_daily(struct rule *rule, struct err *err)
{
	struct daily *daily = (struct daily *)rule;
	if (!daily->zone)
		daily->zone = time_zone_open("UTC", err);
	rule->reach_ms = (int64_t)2 * DAY * SECOND; /* longer than any day in any zone */
	return daily->zone;
}

static void finish_daily(struct rule *rule)
{
	time_zone_destroy(((struct daily *)rule)->zone);
}

/* --- days ----------------------------------------------------------------------------------- */

static int64_t floor_quotient(int64_t number, int64_t divisor)
{
	return number / divisor - (number % divisor < 0);
}

static int64_t later_bound(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t earlier_bound(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The parts of the day in each span of the zone around it. */
static void find_day(const struct time_zone *zone, int64_t number, struct day *ret_day)
{
	*ret_day = (struct day){.number = number};
	for (int64_t at = number * DAY - FURTHEST; at < (number + 1) * DAY + FURTHEST;) {
		struct zone_span span = time_zone_span(zone, at);
		int64_t begin = later_bound(span.begin, number * DAY - span.offset);
		int64_t end = earlier_bound(span.end, (number + 1) * DAY - span.offset);
		if (begin < end && ret_day->count < RULE_MOST_PIECES) {
			ret_day->pieces[ret_day->count].begin_ms = begin * SECOND;
			ret_day->pieces[ret_day->count++].end_ms = end * SECOND;
		}
		at = span.end;
	}
}

static const struct day *day_of(struct daily *daily, int64_t time_ms)
{
	const struct day *day = &daily->day;
	for (int i = 0; i < day->count; i++)
		if (time_ms >= day->pieces[i].begin_ms && time_ms < day->pieces[i].end_ms)
			return day;
	find_day(
	    daily->zone, time_zone_day(daily->zone, floor_quotient(time_ms, SECOND)), &daily->day);
	return day;
}

/* --- the rule ------------------------------------------------------------------------------- */

static bool exceeds_day(struct rule *rule, const struct occurrences_key *known, int64_t time_ms)
{
	const struct day *day = day_of((struct daily *)rule, time_ms);
	size_t count = 0;
	for (int i = 0; i < day->count; i++)
		count += occurrences_before(known, day->pieces[i].end_ms) -
			 occurrences_before(known, day->pieces[i].begin_ms);
	return count >= (size_t)rule->most;
}

/* The beginning of the time's day; or of the day before, if the clock is about to go back to that
 * day. */
static int64_t oldest_of_day(const struct rule *rule, int64_t time_ms)
{
	const struct time_zone *zone = ((const struct daily *)rule)->zone;
	int64_t second = floor_quotient(time_ms, SECOND);
	struct zone_span span = time_zone_span(zone, second);
	int64_t number = time_zone_day(zone, second);

	if (span.end < second + DAY)
		number = earlier_bound(number, time_zone_day(zone, span.end));
	return time_zone_day_begin(zone, number) * SECOND;
}

static void span_day(struct rule *rule, int64_t time_ms, struct rule_span *ret_span)
{
	const struct day *day = day_of((struct daily *)rule, time_ms);

	*ret_span = (struct rule_span){.count = day->count, .until_ms = time_ms + 1};
	for (int i = 0; i < day->count; i++) {
		ret_span->pieces[i].begin_ms = day->pieces[i].begin_ms;
		ret_span->pieces[i].end_ms = day->pieces[i].end_ms;
		if (day->pieces[i].end_ms > ret_span->until_ms)
			ret_span->until_ms = day->pieces[i].end_ms;
	}
}

const struct rule_type rule_daily = {
    .spec = {"daily", rule_settings, RULE_TAKES, RULE_NEEDS, daily_settings},
    .size = sizeof(struct daily),
    .check = check_daily,
    .finish = finish_daily,
    .exceeds = exceeds_day,
    .oldest = oldest_of_day,
    .span = span_day,
};
