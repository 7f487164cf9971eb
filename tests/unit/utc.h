#pragma once
/* Moments as people write them, for tests. */
#include <stdint.h>
#include <time.h>

/* Seconds since 1970. */
static inline int64_t utc_second(int year, int month, int day, int hour, int minute)
{
	struct tm time = {.tm_year = year - 1900,
	    .tm_mon = month - 1,
	    .tm_mday = day,
	    .tm_hour = hour,
	    .tm_min = minute};
	return timegm(&time);
}
