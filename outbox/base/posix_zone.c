#include "posix_zone.h"

#include <ctype.h>
#include <string.h>

enum { HOUR = 3600, DAY = 24 * HOUR, MOST_HOURS = 167 };

/* --- the text ------------------------------------------------------------------------------- */

static bool parse_zone_name(const char **at)
{
	const char *begin = *at;
	if (**at == '<') {
		*at = strchr(begin, '>');
		return *at && (*at)++ > begin + 1;
	}
	while (isalpha((unsigned char)**at))
		++*at;
	return *at - begin >= 3;
}

static bool parse_number(const char **at, int most, int *ret_number)
{
	const char *begin = *at;
	*ret_number = 0;
	while (**at >= '0' && **at <= '9' && *ret_number <= most)
		*ret_number = *ret_number * 10 + (*(*at)++ - '0');
	return *at > begin && *ret_number <= most;
}

/* [+-]hh[:mm[:ss]] */
static bool parse_time(const char **at, int32_t *ret_seconds)
{
	int hours, minutes = 0, seconds = 0, sign = **at == '-' ? -1 : 1;
	*at += **at == '-' || **at == '+';
	if (!parse_number(at, MOST_HOURS, &hours))
		return false;
	if (**at == ':' && (++*at, !parse_number(at, 59, &minutes)))
		return false;
	if (**at == ':' && (++*at, !parse_number(at, 59, &seconds)))
		return false;
	*ret_seconds = sign * (hours * HOUR + minutes * 60 + seconds);
	return true;
}

/* In POSIX, offsets to the west are positive. */
static bool parse_offset(const char **at, int32_t *ret_offset)
{
	if (!parse_time(at, ret_offset))
		return false;
	*ret_offset = -*ret_offset;
	return *ret_offset > -25 * HOUR && *ret_offset < 25 * HOUR;
}

static bool skip_sign(const char **at, char sign)
{
	return **at == sign && ++*at;
}

static bool parse_day(const char **at, struct posix_change *change)
{
	if (skip_sign(at, 'M')) {
		change->form = 'M';
		return parse_number(at, 12, &change->month) && change->month > 0 &&
		       skip_sign(at, '.') && parse_number(at, 5, &change->week) &&
		       change->week > 0 && skip_sign(at, '.') && parse_number(at, 6, &change->day);
	}
	change->form = skip_sign(at, 'J') ? 'J' : 'D';
	return parse_number(at, 365, &change->day) && (change->form == 'D' || change->day > 0);
}

static bool parse_change(const char **at, struct posix_change *change)
{
	change->second = 2 * HOUR;
	return skip_sign(at, ',') && parse_day(at, change) &&
	       (!skip_sign(at, '/') || parse_time(at, &change->second));
}

bool posix_zone_parse(const char *text, struct posix_zone *ret_zone)
{
	*ret_zone = (struct posix_zone){0};
	if (!parse_zone_name(&text) || !parse_offset(&text, &ret_zone->standard))
		return false;
	if (!*text)
		return true;
	ret_zone->changes = true;
	ret_zone->daylight = ret_zone->standard + HOUR;
	if (!parse_zone_name(&text) || (*text != ',' && !parse_offset(&text, &ret_zone->daylight)))
		return false;
	return parse_change(&text, &ret_zone->begins) && parse_change(&text, &ret_zone->ends) &&
	       !*text;
}

/* --- the calendar --------------------------------------------------------------------------- */

static int64_t divide_floor(int64_t number, int64_t divisor)
{
	return number / divisor - (number % divisor < 0);
}

static bool is_leap(int64_t year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* The days from 1970-01-01 to 1 January of the year. */
static int64_t days_before(int64_t year)
{
	int64_t past = year - 1;
	return past * 365 + divide_floor(past, 4) - divide_floor(past, 100) +
	       divide_floor(past, 400) - 719162;
}

static int64_t year_of(int64_t second)
{
	int64_t day = divide_floor(second, DAY), year = 1970 + divide_floor(day * 400, 146097);
	while (days_before(year) > day)
		year--;
	while (days_before(year + 1) <= day)
		year++;
	return year;
}

/* The day of the year, from 0, on which the n-th weekday of a month falls; week 5 is the last. */
static int64_t weekday_of(const struct posix_change *change, int64_t year)
{
	static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
	int leap = is_leap(year);
	int first = before[change->month - 1] + (change->month > 2 ? leap : 0);
	int next = before[change->month] + (change->month > 1 ? leap : 0);
	/* 1970-01-01 was a Thursday */
	int64_t weekday = (days_before(year) + first + 4) % 7;
	int64_t day = first + (change->day - weekday + 14) % 7 + (change->week - 1) * 7;
	return day >= next ? day - 7 : day;
}

static int64_t second_of(const struct posix_change *change, int64_t year, int32_t offset)
{
	int64_t day = change->day;
	if (change->form == 'M')
		day = weekday_of(change, year);
	else if (change->form == 'J')
		day += (is_leap(year) && day >= 60) - 1;
	return (days_before(year) + day) * DAY + change->second - offset;
}

/*
 * Finds the last change before the second and the first one after it, among the changes of the
 * years around. Where daylight time ends and begins in the same moment, it goes on.
 */
struct zone_span posix_zone_span(const struct posix_zone *zone, int64_t second)
{
	struct zone_span span = {INT64_MIN, INT64_MAX, zone->standard};
	if (!zone->changes)
		return span;

	int64_t year = year_of(second);
	/* The changes of a year may lie up to a week outside of it (MOST_HOURS). */
	for (int64_t y = year - 2; y <= year + 2; y++) {
		int64_t ends = second_of(&zone->ends, y, zone->daylight);
		int64_t begins = second_of(&zone->begins, y, zone->standard);
		if (ends <= second && ends > span.begin) {
			span.begin = ends;
			span.offset = zone->standard;
		}
		if (begins <= second && begins >= span.begin) {
			span.begin = begins;
			span.offset = zone->daylight;
		}
		if (ends > second && ends < span.end)
			span.end = ends;
		if (begins > second && begins < span.end)
			span.end = begins;
	}
	return span;
}
