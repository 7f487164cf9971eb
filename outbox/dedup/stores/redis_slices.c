#include "redis_slices.h"

#include <time.h>

enum { DAY_MS = 86400000 };

int64_t redis_slices_number(const struct redis_slices *slices, int64_t now_ms)
{
	/* The time is now, so it is not before 1970, and the division rounds down. */
	if (slices->zone)
		return time_zone_day(slices->zone, now_ms / 1000);
	const struct slice_time time = {.slice_ms = slices->slice_ms};
	return slice_time_number(&time, now_ms);
}

int64_t redis_slices_begin_ms(const struct redis_slices *slices, int64_t number)
{
	if (slices->zone)
		return time_zone_day_begin(slices->zone, number) * 1000;
	return number * slices->slice_ms;
}

/* One slice more than the window has: the slice that has just begun is not full yet. */
int64_t redis_slices_end_ms(const struct redis_slices *slices, int64_t number)
{
	return redis_slices_begin_ms(slices, number + slices->count + 1);
}

void redis_slices_name(
    const struct redis_slices *slices, int64_t number, char ret_name[REDIS_SLICE_NAME])
{
	bool days = slices->zone || slices->slice_ms % DAY_MS == 0;
	int64_t begin_ms = slices->zone ? number * DAY_MS : redis_slices_begin_ms(slices, number);
	time_t second = begin_ms / 1000;
	struct tm utc;

	gmtime_r(&second, &utc);
	strftime(ret_name, REDIS_SLICE_NAME, days ? "%Y%m%d" : "%Y%m%dT%H%M%S", &utc);
}
