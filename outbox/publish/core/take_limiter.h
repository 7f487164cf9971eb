#pragma once
/*
 * The take limiter of a process: its shard workers take shards one at a time, and after each take
 * the next one waits longer for every shard that the process owns already. So processes that start
 * together end up with about as many shards each. A take that got no answer for a second no longer
 * keeps other takes waiting: its database is away, and other databases may answer. Any thread may
 * call.
 */
#include <stdbool.h>
#include <stdint.h>

struct take_limiter;

/* keeps_all: as a drain, the process leaves no shard to others and takes them without a wait. */
struct take_limiter *take_limiter_create(bool keeps_all);
void take_limiter_destroy(struct take_limiter *limiter);
int take_limiter_held(struct take_limiter *limiter); /* shards that this process owns now */

/* May a take begin now? If so, the caller ends it with take_limiter_end. */
bool take_limiter_begin(struct take_limiter *limiter, int64_t now);
/* When to call take_limiter_begin again after it returned false; `now` or less: at once. */
int64_t take_limiter_wait(struct take_limiter *limiter, int64_t now);
void take_limiter_end(struct take_limiter *limiter, int64_t now, bool taken);
void take_limiter_lost(struct take_limiter *limiter);
