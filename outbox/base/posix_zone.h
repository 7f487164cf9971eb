#pragma once
/*
 * The rule for all years to come at the end of a TZif file, as POSIX and RFC 8536 have it:
 * CET-1CEST,M3.5.0,M10.5.0/3
 */
#include <stdbool.h>
#include <stdint.h>

/* A stretch of time in which a zone's clock has one offset: seconds since 1970, and of offset. */
struct zone_span {
	int64_t begin, end; /* INT64_MIN, INT64_MAX: has none */
	int32_t offset;     /* what is added to UTC */
};

struct posix_change {
	char form; /* 'M', 'J' or 'D': a weekday of a month; a day, without 29 February; with it */
	int month, week, day;
	int32_t second; /* of that day, by the clock before the change; may be another day's */
};

struct posix_zone {
	int32_t standard, daylight;       /* offsets */
	bool changes;                     /* else it is always standard */
	struct posix_change begins, ends; /* daylight time */
};

bool posix_zone_parse(const char *text, struct posix_zone *ret_zone);
/* second: not beyond 10^16. */
struct zone_span posix_zone_span(const struct posix_zone *zone, int64_t second);
