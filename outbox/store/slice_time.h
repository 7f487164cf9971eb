#pragma once
/*
 * The slices of a window, by number: slice n has the times from n * slice_ms on. The newest slice
 * and the `slices` before it are alive, so that each time is kept for at least slices * slice_ms
 * behind the newest. Without a window slice_ms and slices are 0, and slice 0 has all times.
 */
#include <stdbool.h>
#include <stdint.h>

struct slice_time {
	int64_t slice_ms, slices;
	int64_t newest; /* the largest number that was noted; INT64_MIN: none */
};

/* Division that rounds down, also before 1970. */
static inline int64_t slice_time_number(const struct slice_time *time, int64_t time_ms)
{
	if (time->slice_ms == 0)
		return 0;
	return time_ms / time->slice_ms - (time_ms % time->slice_ms < 0);
}

static inline bool slice_time_is_gone(const struct slice_time *time, int64_t number)
{
	return time->newest != INT64_MIN && number < time->newest - time->slices;
}

/* The slice in which a time is kept: a time from before the window is kept in the oldest one that
 * is alive. */
static inline int64_t slice_time_place(const struct slice_time *time, int64_t time_ms)
{
	int64_t number = slice_time_number(time, time_ms);
	return slice_time_is_gone(time, number) ? time->newest - time->slices : number;
}

/* True: the number is later than all before, so that others may be gone now. */
static inline bool slice_time_note(struct slice_time *time, int64_t number)
{
	bool later = number > time->newest;
	if (later)
		time->newest = number;
	return later;
}
