#pragma once
/*
 * The take limiter of a process. Its shard workers take shards one at a time, and the wait after a
 * take grows with every shard that the process owns already. So processes that start together end
 * up with about the same number of shards. The more shards a process may take, the shorter each
 * wait is: all of them together last about 10 s at most. A take without an answer for a second no
 * longer delays other takes: its database is away, and other databases may answer. Any thread may
 * call.
 */
#include <stdbool.h>
#include <stdint.h>

struct take_limiter;

/* keeps_all: the process leaves no shard to others and takes them without a wait, as in a drain. */
struct take_limiter *take_limiter_create(bool keeps_all);
void take_limiter_destroy(struct take_limiter *limiter);
/* So many more workers may take a shard; negative: fewer. */
void take_limiter_count(struct take_limiter *limiter, int workers);
int take_limiter_held(struct take_limiter *limiter); /* shards that this process owns now */

/* May a take begin now? If so, the caller ends it with take_limiter_end. */
bool take_limiter_begin(struct take_limiter *limiter, int64_t now);
/* When to call take_limiter_begin again after it returned false; `now` or less: at once. */
int64_t take_limiter_wait(struct take_limiter *limiter, int64_t now);
void take_limiter_end(struct take_limiter *limiter, int64_t now, bool taken);
void take_limiter_lost(struct take_limiter *limiter);
