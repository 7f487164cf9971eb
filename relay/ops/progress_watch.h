#pragma once
/*
 * Callbacks by which a long task reports its progress to the caller, who may show it. All zero:
 * nobody watches.
 */
#include <stdint.h>
#include "errors.h"

struct progress_watch {
	/*
	 * `what` is counted ("rows read"), and `count` is reached. May be called for every piece of
	 * work, so it must return at once; the first call of a count has count 0. `what` lives
	 * until `end`.
	 */
	void (*step)(void *context, const char *what, int64_t count);
	void (*end)(void *context); /* of this count */
	/*
	 * Called as often as step, and at least each second while the task waits for an answer.
	 * False: the task ends with this error. NULL: it always goes on.
	 */
	bool (*goes_on)(void *context, struct err *err);
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
static inline bool progress_watch_goes_on(const struct progress_watch *watch, struct err *err)
{
	return !watch->goes_on || watch->goes_on(watch->context, err);
}
