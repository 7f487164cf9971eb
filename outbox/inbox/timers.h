#pragma once
/* Messages that wait for a time: a binary heap by due_ms. Owned by one thread. */
#include "item.h"

struct timers {
	struct item **places;
	size_t count, capacity;
};

void timers_add(struct timers *timers, struct item *item);
/* A message that is due; NULL: none is. */
struct item *timers_take(struct timers *timers, int64_t now_ms);
int64_t timers_next(const struct timers *timers); /* INT64_MAX: none */
/* Forgets all messages and frees the heap's memory. */
void timers_finish(struct timers *timers);
