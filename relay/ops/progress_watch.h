#pragma once
/*
 * Callbacks by which a long task reports its progress to the caller, who may show it. All zero:
 * nobody watches.
 */
#include <stdint.h>

struct progress_watch {
	/*
	 * `what` is counted ("rows read"), and `count` is reached. May be called for every piece of
	 * work, so it must return at once; the first call of a count has count 0. `what` lives
	 * until `end`.
	 */
	void (*step)(void *context, const char *what, int64_t count);
	void (*end)(void *context); /* of this count */
	void *context;
};

static inline void progress_watch_step(
    const struct progress_watch *watch, const char *what, int64_t count)
{
	if (watch->step)
		watch->step(watch->context, what, count);
}
static inline void progress_watch_end(const struct progress_watch *watch)
{
	if (watch->end)
		watch->end(watch->context);
}
