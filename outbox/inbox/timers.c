#include "timers.h"

#include <stdlib.h>
#include "text.h"

static void sift_up(struct timers *timers, size_t place, struct item *item)
{
	for (size_t above; place > 0; place = above) {
		above = (place - 1) / 2;
		if (timers->places[above]->due_ms <= item->due_ms)
			break;
		timers->places[place] = timers->places[above];
	}
	timers->places[place] = item;
}

static void sift_down(struct timers *timers, struct item *item)
{
	size_t place = 0;
	for (size_t below = 1; below < timers->count; below = 2 * place + 1) {
		if (below + 1 < timers->count &&
		    timers->places[below + 1]->due_ms < timers->places[below]->due_ms)
			below++;
		if (timers->places[below]->due_ms >= item->due_ms)
			break;
		timers->places[place] = timers->places[below];
		place = below;
	}
	timers->places[place] = item;
}

void timers_add(struct timers *timers, struct item *item)
{
	if (timers->count == timers->capacity) {
		timers->capacity = timers->capacity ? 2 * timers->capacity : 64;
		timers->places = xrealloc(timers->places, timers->capacity * sizeof(struct item *));
	}
	timers->count++;
	sift_up(timers, timers->count - 1, item);
}

struct item *timers_take(struct timers *timers, int64_t now_ms)
{
	if (timers_next(timers) > now_ms)
		return NULL;
	struct item *item = timers->places[0];
	struct item *last = timers->places[--timers->count];
	if (timers->count > 0)
		sift_down(timers, last);
	return item;
}

int64_t timers_next(const struct timers *timers)
{
	return timers->count ? timers->places[0]->due_ms : INT64_MAX;
}

void timers_finish(struct timers *timers)
{
	free(timers->places);
	*timers = (struct timers){0};
}
