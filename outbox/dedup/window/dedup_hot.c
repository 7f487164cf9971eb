#include "dedup_hot.h"

#include <stdlib.h>
#include "text.h"

void dedup_hot_init(struct dedup_hot *hot, uint64_t ids)
{
	uint64_t places = 1;
	while (places < ids)
		places *= 2;
	hot->mask = places - 1;
	hot->places = xcalloc(places, sizeof *hot->places);
	for (uint64_t i = 0; i < places; i++)
		hot->places[i].until = INT64_MIN;
}

void dedup_hot_finish(struct dedup_hot *hot)
{
	free(hot->places);
	*hot = (struct dedup_hot){0};
}
