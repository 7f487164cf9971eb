/*
 * The admitted messages of each key in a span of time, in a hash table with open addressing. Begin
 * with the lookups, then [adding] and [forgetting]; occurrences_load and occurrences_settle restore
 * a table from a log.
 */
#include "occurrences.h"

#include <stdlib.h>
#include <string.h>
#include "text.h"

enum { FIRST = 64, SWEEP = 4 /* places a call */ };

static bool key_place_is_free(const struct occurrences_key *key)
{
	return (key->hash.low | key->hash.high) == 0;
}

/* The place of the key, or the free place where it would be. */
static size_t place_of_key(const struct occurrences *known, struct fingerprint hash)
{
	size_t mask = known->capacity - 1, place = (size_t)hash.high & mask;
	while (!key_place_is_free(&known->places[place]) &&
	       (known->places[place].hash.low != hash.low ||
		   known->places[place].hash.high != hash.high))
		place = (place + 1) & mask;
	return place;
}

static void grow_key_places(struct occurrences *known)
{
	struct occurrences larger = *known;
	larger.capacity = known->capacity ? known->capacity * 2 : FIRST;
	larger.places = xcalloc(larger.capacity, sizeof *larger.places);
	for (size_t i = 0; i < known->capacity; i++)
		if (!key_place_is_free(&known->places[i]))
			larger.places[place_of_key(&larger, known->places[i].hash)] =
			    known->places[i];
	free(known->places);
	*known = larger;
}

void occurrences_finish(struct occurrences *known)
{
	for (size_t i = 0; i < known->capacity; i++)
		free(known->places[i].list);
	free(known->places);
	hash_set_finish(&known->early);
	*known = (struct occurrences){0};
}

const struct occurrences_key *occurrences_of(
    const struct occurrences *known, struct fingerprint hash)
{
	if (known->keys == 0)
		return NULL;
	const struct occurrences_key *key = &known->places[place_of_key(known, hash)];
	return key_place_is_free(key) ? NULL : key;
}

size_t occurrences_before(const struct occurrences_key *key, int64_t time_ms)
{
	size_t low = 0, high = key->count;
	if (high == 0 || key->list[high - 1].time_ms < time_ms)
		return high; /* as a rule */
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (key->list[middle].time_ms < time_ms)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_early(const struct occurrence *occurrence)
{
	return occurrence->mark & 1;
}

static struct fingerprint early_hash(struct fingerprint hash, int64_t mark)
{
	return (struct fingerprint){hash.low, hash.high ^ (uint64_t)(mark | 1)};
}

bool occurrences_have(
    const struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence)
{
	const struct occurrences_key *key = occurrences_of(known, hash);
	if (!key)
		return false;
	if (hash_set_has(&known->early, early_hash(hash, occurrence->mark)))
		return true;
	for (size_t i = occurrences_before(key, occurrence->time_ms);
	     i < key->count && key->list[i].time_ms == occurrence->time_ms; i++)
		if (key->list[i].mark == occurrence->mark)
			return true;
	return false;
}

/* --- adding --------------------------------------------------------------------------------- */

static struct occurrences_key *key_for(struct occurrences *known, struct fingerprint hash)
{
	/* A search ends at a free place, so that some places must stay free. */
	if (known->keys >= known->capacity / 4 * 3)
		grow_key_places(known);

	struct occurrences_key *key = &known->places[place_of_key(known, hash)];
	if (key_place_is_free(key)) {
		key->hash = hash;
		known->keys++;
	}

	if (key->count == key->capacity) {
		uint32_t capacity = key->capacity ? key->capacity * 2 : 1;
		key->list = xrealloc(key->list, capacity * sizeof *key->list);
		known->list_bytes += (capacity - key->capacity) * sizeof *key->list;
		key->capacity = capacity;
	}
	return key;
}

static void insert_occurrence(struct occurrences *known, struct occurrences_key *key, size_t place,
    const struct occurrence *occurrence)
{
	memmove(
	    &key->list[place + 1], &key->list[place], (key->count++ - place) * sizeof *key->list);
	key->list[place] = *occurrence;
	known->count++;
}

static void note_early(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence)
{
	if (is_early(occurrence))
		hash_set_add(&known->early, early_hash(hash, occurrence->mark));
}

void occurrences_add(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence)
{
	struct occurrences_key *key = key_for(known, hash);
	insert_occurrence(known, key, occurrences_before(key, occurrence->time_ms + 1), occurrence);
	note_early(known, hash, occurrence);
}

void occurrences_load(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence)
{
	struct occurrences_key *key = key_for(known, hash);
	insert_occurrence(known, key, key->count, occurrence);
}

static int compare_occurrences(const void *left, const void *right)
{
	const struct occurrence *a = left, *b = right;
	if (a->time_ms != b->time_ms)
		return a->time_ms < b->time_ms ? -1 : 1;
	return (a->mark > b->mark) - (a->mark < b->mark);
}

static void settle_key(struct occurrences *known, struct occurrences_key *key, int64_t oldest_ms)
{
	uint32_t kept = 0;

	qsort(key->list, key->count, sizeof *key->list, compare_occurrences);
	for (uint32_t i = 0; i < key->count; i++) {
		const struct occurrence next = key->list[i];
		/* A log may have an occurrence more than once. */
		if (next.time_ms < oldest_ms ||
		    (kept > 0 && compare_occurrences(&key->list[kept - 1], &next) == 0))
			continue;
		key->list[kept++] = next;
		note_early(known, key->hash, &next);
	}
	key->count = kept;
	known->count += kept;
}

void occurrences_settle(struct occurrences *known, int64_t oldest_ms)
{
	known->count = 0;
	for (size_t i = 0; i < known->capacity; i++)
		if (!key_place_is_free(&known->places[i]))
			settle_key(known, &known->places[i], oldest_ms);
}

void occurrences_each(const struct occurrences *known,
    void (*see)(void *context, struct fingerprint hash, const struct occurrence *occurrence),
    void *context)
{
	for (size_t i = 0; i < known->capacity; i++)
		for (uint32_t j = 0; j < known->places[i].count; j++)
			see(context, known->places[i].hash, &known->places[i].list[j]);
}

/* --- forgetting ----------------------------------------------------------------------------- */

/* Moves the later entries up, so that no search stops before them. */
static void remove_key_place(struct occurrences *known, size_t hole)
{
	size_t mask = known->capacity - 1;

	free(known->places[hole].list);
	known->list_bytes -= known->places[hole].capacity * sizeof(struct occurrence);
	for (size_t next = (hole + 1) & mask; !key_place_is_free(&known->places[next]);
	     next = (next + 1) & mask) {
		size_t wanted = (size_t)known->places[next].hash.high & mask;
		if (((next - wanted) & mask) < ((next - hole) & mask))
			continue; /* the entry's own place lies behind the hole */
		known->places[hole] = known->places[next];
		hole = next;
	}
	known->places[hole] = (struct occurrences_key){0};
	known->keys--;
}

static void shrink_key_list(struct occurrences *known, struct occurrences_key *key)
{
	if (key->count == 0 || key->count > key->capacity / 4)
		return;
	known->list_bytes -= (key->capacity - key->count) * sizeof *key->list;
	key->capacity = key->count;
	key->list = xrealloc(key->list, key->count * sizeof *key->list);
}

/* Removes at least half of the list at a time, so that the remaining entries are not moved for each
 * removed one. */
static void forget_old_occurrences(
    struct occurrences *known, struct occurrences_key *key, int64_t oldest_ms)
{
	uint32_t old = (uint32_t)occurrences_before(key, oldest_ms);
	if (old == 0 || old < key->count - old)
		return;
	for (uint32_t i = 0; i < old; i++)
		if (is_early(&key->list[i]))
			hash_set_remove(&known->early, early_hash(key->hash, key->list[i].mark));
	key->count -= old;
	known->count -= old;
	memmove(key->list, key->list + old, key->count * sizeof *key->list);
	shrink_key_list(known, key);
}

void occurrences_sweep(struct occurrences *known, int64_t oldest_ms)
{
	for (int i = 0; i < SWEEP && known->keys > 0; i++) {
		size_t place = known->swept & (known->capacity - 1);
		struct occurrences_key *key = &known->places[place];
		if (!key_place_is_free(key))
			forget_old_occurrences(known, key, oldest_ms);
		if (!key_place_is_free(key) && key->count == 0)
			remove_key_place(known, place); /* another key may be in this place now */
		else
			known->swept++;
	}
}

uint64_t occurrences_bytes(const struct occurrences *known)
{
	return known->list_bytes + known->capacity * sizeof *known->places +
	       known->early.capacity * sizeof *known->early.places;
}
