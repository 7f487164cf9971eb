#pragma once
/*
 * The messages that a rule has recorded, by key: a hash table of keys, each with its occurrences in
 * the order of their times. An occurrence takes 16 bytes, in a list that grows by doubling; a key
 * takes 32 in a table that is at most three quarters full. An early message also takes a place in a
 * set of hashes.
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include "fingerprint.h"
#include "hash_set.h"

struct occurrence {
	int64_t time_ms;
	/*
	 * Identifies the message. Odd: the message was early, that is, its record's time was in the
	 * future, so time_ms may differ when it comes again.
	 */
	int64_t mark;
};

struct occurrences_key {
	struct fingerprint hash; /* {0, 0}: the place is free */
	struct occurrence *list;
	uint32_t count, capacity;
};

/* {0} is an empty one. */
struct occurrences {
	/* private to occurrences.c */
	struct occurrences_key *places;
	size_t capacity; /* a power of two, or 0 */
	size_t swept;    /* the place that is swept next */
	uint64_t list_bytes;
	struct hash_set early; /* hashes of key and mark */
	/* may be read */
	size_t keys;
	uint64_t count;
};

void occurrences_finish(struct occurrences *known);

/* The occurrences of a key, valid until the next change; NULL: the key is unknown. */
const struct occurrences_key *occurrences_of(
    const struct occurrences *known, struct fingerprint hash);
/* How many occurrences of the key are before this time? */
size_t occurrences_before(const struct occurrences_key *key, int64_t time_ms);
/* Is this message, early or not, among the occurrences? */
bool occurrences_have(
    const struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence);

void occurrences_add(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence);
/* For loading: adds occurrences in any order, some more than once. Afterwards settle leaves out
 * those older than the given time. */
void occurrences_load(
    struct occurrences *known, struct fingerprint hash, const struct occurrence *occurrence);
void occurrences_settle(struct occurrences *known, int64_t oldest_ms);

void occurrences_each(const struct occurrences *known,
    void (*see)(void *context, struct fingerprint hash, const struct occurrence *occurrence),
    void *context);

/* Checks the next few keys and forgets their occurrences that are older than this. */
void occurrences_sweep(struct occurrences *known, int64_t oldest_ms);
uint64_t occurrences_bytes(const struct occurrences *known);
