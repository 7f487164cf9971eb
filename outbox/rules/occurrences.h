#pragma once
/*
 * The messages that a rule has recorded, by key: a hash table of keys, each with its occurrences in
 * the order of their times. An occurrence takes 16 bytes, in a list that grows by doubling; a key
 * takes 32 in a table that is at most three quarters full. What was early takes a place in a set of
 * hashes besides.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"
#include "hash_set.h"

struct occurrence {
	int64_t time_ms;
	/*
	 * Which message it was. Odd: it was early, that is its record's time was not reached then,
	 * so that time_ms may be another one when it comes again.
	 */
	int64_t mark;
};

struct occurrences_key {
	struct fingerprint hash; /* {0, 0}: a free place */
	struct occurrence *list;
	uint32_t count, capacity;
};

/* {0} is an empty one. */
struct occurrences {
	/* occurrences.c's own */
	struct occurrences_key *places;
	size_t capacity; /* a power of two, or 0 */
	size_t swept;    /* the place that is looked at next */
	uint64_t list_bytes;
	struct hash_set early; /* of key and mark */
	/* to be read */
	size_t keys;
	uint64_t count;
};

void occurrences_finish(struct occurrences *known);

/* Valid until the next change; NULL: nothing is known of it. */
const struct occurrences_key *occurrences_of(
    const struct occurrences *known, struct fingerprint hash);
/* How many of the key are before this time? */
size_t occurrences_before(const struct occurrences_key *key, int64_t time_ms);
/* Is this message, early or not, among them? */
bool occurrences_have(
    const struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence);

void occurrences_add(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence);
/* Many in any order, some more than once; then settle, which leaves out what is older than this. */
void occurrences_load(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence);
void occurrences_settle(struct occurrences *known, int64_t oldest_ms);

void occurrences_each(const struct occurrences *known,
    void (*see)(void *context, struct fingerprint hash, const struct occurrence *occurrence),
    void *context);

/* Looks at the next few keys and forgets of them what is older than this. */
void occurrences_sweep(struct occurrences *known, int64_t oldest_ms);
uint64_t occurrences_bytes(const struct occurrences *known);
