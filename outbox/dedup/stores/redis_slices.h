#pragma once
/*
 * The slices of a window in Redis: stretches of one length, or the days of a time zone. A slice is
 * named by its begin, so that every process writes into the same keys at the same time, and the
 * server deletes them when the slice has left the window.
 *
 * Slices go by the time at which an id is done, and not by the time of its record: the server
 * deletes by its own clock, so a consumer that is behind would have a shorter window.
 */
#include <stdint.h>
#include "clock.h"
#include "slice_time.h"
#include "time_zone.h"

enum { REDIS_SLICE_NAME = 32 };

struct redis_slices {
	struct time_zone *zone; /* its days are the slices; NULL: slice_ms is their length */
	int64_t slice_ms;
	int64_t count; /* of a window; 0: no window, and slice 0 has all times */
};

static inline int64_t redis_slices_now_ms(void)
{
	return clock_wall_us() / 1000;
}

int64_t redis_slices_number(const struct redis_slices *slices, int64_t now_ms);
int64_t redis_slices_begin_ms(const struct redis_slices *slices, int64_t number);
/* When the slice has left the window: the server deletes it then. */
int64_t redis_slices_end_ms(const struct redis_slices *slices, int64_t number);
/* 20261126: the day, in the zone, or the day in UTC that the slice begins with; 20261126T140000:
 * the begin in UTC, for slices that are not whole days. */
void redis_slices_name(
    const struct redis_slices *slices, int64_t number, char ret_name[REDIS_SLICE_NAME]);
