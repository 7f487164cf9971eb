#include "hash_set.h"

#include <stdlib.h>
#include <string.h>
#include "text.h"

enum { FIRST = 64 };

static bool hash_is_free(struct fingerprint hash)
{
	return (hash.low | hash.high) == 0;
}

/* The place of the fingerprint, or the free place where it would be. */
static size_t place_of_hash(const struct hash_set *set, struct fingerprint hash)
{
	size_t place = (size_t)hash.high & (set->capacity - 1);
	while (!hash_is_free(set->places[place]) &&
	       (set->places[place].low != hash.low || set->places[place].high != hash.high))
		place = (place + 1) & (set->capacity - 1);
	return place;
}

static void grow_hash_set(struct hash_set *set)
{
	struct hash_set larger = {.capacity = set->capacity ? set->capacity * 2 : FIRST};
	larger.places = xcalloc(larger.capacity, sizeof *larger.places);
	for (size_t i = 0; i < set->capacity; i++)
		if (!hash_is_free(set->places[i]))
			larger.places[place_of_hash(&larger, set->places[i])] = set->places[i];
	larger.count = set->count;
	free(set->places);
	*set = larger;
}

void hash_set_finish(struct hash_set *set)
{
	free(set->places);
	*set = (struct hash_set){0};
}

/* Does not keep memory for a much larger number of earlier entries. */
void hash_set_clear(struct hash_set *set)
{
	if (set->count < set->capacity / 16)
		hash_set_finish(set);
	else if (set->count)
		memset(set->places, 0, set->capacity * sizeof *set->places);
	set->count = 0;
}

bool hash_set_has(const struct hash_set *set, struct fingerprint hash)
{
	return set->count && !hash_is_free(set->places[place_of_hash(set, hash)]);
}

bool hash_set_add(struct hash_set *set, struct fingerprint hash)
{
	if (set->count >= set->capacity / 2)
		grow_hash_set(set);
	size_t place = place_of_hash(set, hash);
	if (!hash_is_free(set->places[place]))
		return false;
	set->places[place] = hash;
	set->count++;
	return true;
}

/* Moves the later entries up, so that no search stops before them. */
bool hash_set_remove(struct hash_set *set, struct fingerprint hash)
{
	if (!set->count)
		return false;

	size_t mask = set->capacity - 1, hole = place_of_hash(set, hash);
	if (hash_is_free(set->places[hole]))
		return false;

	for (size_t next = (hole + 1) & mask; !hash_is_free(set->places[next]);
	     next = (next + 1) & mask) {
		size_t wanted = (size_t)set->places[next].high & mask;
		if (((next - wanted) & mask) < ((next - hole) & mask))
			continue; /* the entry's own place lies behind the hole */
		set->places[hole] = set->places[next];
		hole = next;
	}
	set->places[hole] = (struct fingerprint){0};
	set->count--;
	return true;
}
