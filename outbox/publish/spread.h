#pragma once
/*
 * How the publishers of one process share out the taking of shards: one take at a time, and after
 * each the next waits longer for every shard that is held already, so that processes started
 * together come away with about as many each. A take that is under way for a second keeps no other
 * waiting any more: its database does not answer, and others may. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct spread;

/* keeps_all: none is left to others, and a take follows the one before at once, as a drain's do. */
struct spread *spread_create(bool keeps_all);
void spread_destroy(struct spread *spread);
int spread_held(struct spread *spread); /* shards this process owns now */

/* May a take begin now? If so it must be ended by spread_end. */
bool spread_begin(struct spread *spread, int64_t now);
/* When to ask again after spread_begin said no; `now` or less: at once. */
int64_t spread_wait(struct spread *spread, int64_t now);
void spread_end(struct spread *spread, int64_t now, bool taken);
void spread_lost(struct spread *spread);
