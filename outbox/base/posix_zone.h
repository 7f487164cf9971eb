#pragma once
/*
 * The rule at the end of a TZif file, which holds for all later years, in the form of POSIX and RFC
 * 8536: CET-1CEST,M3.5.0,M10.5.0/3
 */
#include <stdbool.h>
#include <stdint.h>

/* A stretch of time in which a zone's clock has one offset. */
struct zone_span {
	int64_t begin, end; /* seconds since 1970; INT64_MIN, INT64_MAX: has none */
	int32_t offset;     /* seconds to add to UTC */
};

struct posix_change {
	char form; /* 'M', 'J' or 'D': a weekday of a month; a day, without 29 February; with it */
	int month, week, day;
	int32_t second; /* since the day's midnight, by the clock before the change; may be outside
			   of the day */
};

struct posix_zone {
	int32_t standard, daylight;       /* offsets */
	bool changes;                     /* false: always standard time */
	struct posix_change begins, ends; /* of daylight time */
};

bool posix_zone_parse(const char *text, struct posix_zone *ret_zone);
/* second: at most 10^16 from 1970. */
struct zone_span posix_zone_span(const struct posix_zone *zone, int64_t second);
