/*
 * Parked keys. A shard may have millions, more than fit into memory. The owner has three sources:
 *
 *   exact keys  keys that this owner parked lately, keys with records to be noted, and keys that
 *               a look-up found parked
 *   filter      a Bloom filter of the digests of all parked keys, at most an eighth of `memory`,
 *               loaded in pages. A second one exists while a filter is loaded again.
 *   look-ups    queries about some hundred records at once
 *
 * The rule: a record is sent only if its key is not parked in the snapshot S of its look-up, nor
 * parked by this owner since S. Only the owner parks and unparks rows, and the log connection
 * carries one call at a time. So S lies between two log rows, and this owner wrote the log row
 * of every key that was parked after S.
 *
 *  - A record is unknown until its look-up is answered. A key that the filter does not hold is not
 *    parked at this moment: that counts as a look-up. After a take-over every key is looked up
 *    until the filter is loaded. When a filter is loaded again the former one stays in force until
 *    the new one has all pages: it holds every parked key, and some that are no longer parked. A
 *    key that this owner parks enters the exact keys and both filters at once.
 *  - Later records of an exact key are parked behind it (record_queue_parks.c). An exact key may be
 *    dropped only when no record in memory relies on a look-up made before the key was parked.
 *    Therefore every waiting record becomes unknown again when keys are dropped. A key stays while
 *    it has records to be noted, and while records in front of its refused record are in memory.
 *  - An unknown record keeps its place: later records of the partition wait behind it, so that
 *    positions grow along the partition. It is neither sent, nor parked, nor matched with a tail.
 *  - Rows of windows that a former owner opened may be parked already. They are looked up by id and
 *    event id as well, with and without a key. A row that is parked already needs nothing more.
 *  - Rows of a listed window come from outbox.parked: they are sent although their key is parked.
 *  - A lost producer changes nothing: its records are pending again and stay known.
 *  - While the outcome of a call is unknown, records to be noted keep their exact keys, and no
 *    look-up is made.
 *
 * Two queues of parked rows with the same digest are treated as one. A record that is parked behind
 * another queue's row is the head of its own queue: it is free at once and is listed in order. So a
 * collision costs only time. The database reports the digests, not the keys, that have no parked
 * row left, so an exact key never ends too early.
 *
 * Read is_key_known and record_queue_lookup_end first.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "record_queue_private.h"

enum {
	LOOKUPS = 500,       /* records in one look-up */
	PAGE_DIGESTS = 5000, /* digests in one page for the filter */
	KEYS_LEAST = 1024,   /* minimum limit of exact keys, however small the memory is */
	KEY_BYTES = 128,     /* memory of an exact key */
	KEYS_SHARE = 16,     /* 1/16 of the memory holds exact keys */
	FILTER_SHARE = 8,    /* 1/8 of the memory holds the filter */
	FIRST_LINES = 1024,  /* initial size of an empty filter */
	LINE_DIGESTS = 48,   /* with more in a line, the filter has too many false hits */
};

static int64_t or_else(int64_t number, int64_t otherwise)
{
	return number ? number : otherwise;
}

/* --- digests -------------------------------------------------------------------------------- */

static int64_t record_digest(struct record_queue *queue, struct record *record)
{
	const struct message *message = &record->message;
	const char *topic = record->topic->name;
	if (record->has_digest)
		return record->digest;

	record->has_digest = true;
	if (queue->parking.digest) {
		record->digest = queue->parking.digest(queue->parking.context, topic,
		    (size_t)message->topic_length, message->key, (size_t)message->key_length);
		return record->digest;
	}
	if (!queue->digester)
		queue->digester = parked_digester_create();
	record->digest = parked_digest(queue->digester, topic, (size_t)message->topic_length,
	    message->key, (size_t)message->key_length);
	return record->digest;
}

static const struct bloom_code *filter_code(void)
{
	return bloom_codes()[0];
}

/* The digests in tests are small numbers: the bits of the filter need a hash. */
static struct fingerprint hash_digest(int64_t digest)
{
	uint64_t low = (uint64_t)digest * 0x9e3779b97f4a7c15u, high;
	low = (low ^ (low >> 32)) * 0xbf58476d1ce4e5b9u;
	high = (low ^ (low >> 29)) * 0x94d049bb133111ebu;
	return (struct fingerprint){low ^ (low >> 32), high ^ (high >> 31)};
}

static bool filter_holds(const struct parked_filter *filter, int64_t digest)
{
	const struct bloom_filter all = {filter->words, filter->lines};
	return all.words && filter_code()->look(&all, 1, hash_digest(digest));
}

/* --- exact keys ----------------------------------------------------------------------------- */

static struct parked_key *find_parked_key(const struct record_queue *queue, int64_t digest)
{
	struct parked_key *key;
	HASH_FIND(hh, queue->keys, &digest, sizeof digest, key);
	return key;
}

static struct parked_key *find_or_add_parked_key(struct record_queue *queue, int64_t digest)
{
	struct parked_key *key = find_parked_key(queue, digest);
	if (key)
		return key;
	key = xcalloc(1, sizeof *key);
	key->digest = digest;
	HASH_ADD(hh, queue->keys, digest, sizeof key->digest, key);
	return key;
}

static void drop_parked_key(struct record_queue *queue, struct parked_key *key)
{
	HASH_DEL(queue->keys, key);
	free(key);
}

struct parked_key *record_queue_key_of(struct record_queue *queue, struct record *record, bool adds)
{
	if (!record->message.key || (!queue->keys && !adds))
		return NULL;
	int64_t digest = record_digest(queue, record);
	return adds ? find_or_add_parked_key(queue, digest) : find_parked_key(queue, digest);
}

void record_queue_unparked(struct record_queue *queue, int64_t digest)
{
	struct parked_key *key = find_parked_key(queue, digest);
	queue->filter.emptied++;
	queue->loading.emptied += filter_holds(&queue->loading, digest);
	if (!key)
		return;
	key->is_parked = false;
	if (!key->parking_count)
		drop_parked_key(queue, key);
}

void record_queue_listed_closed(struct record_queue *queue)
{
	struct parked_key *key, *next;
	HASH_ITER(hh, queue->keys, key, next)
	{
		key->refused_again = 0;
	}
}

/* --- the filter ----------------------------------------------------------------------------- */

static void drop_filter(struct parked_filter *filter)
{
	free(filter->memory);
	*filter = (struct parked_filter){0};
}

static uint64_t most_lines(const struct record_queue *queue)
{
	int64_t lines = queue->memory / FILTER_SHARE / BLOOM_LINE;
	return lines < 1 ? 1 : (uint64_t)lines;
}

static void begin_filter(struct parked_filter *filter, uint64_t lines)
{
	drop_filter(filter);
	filter->memory = xcalloc(lines + 1, BLOOM_LINE);
	uintptr_t start =
	    ((uintptr_t)filter->memory + BLOOM_LINE - 1) & ~(uintptr_t)(BLOOM_LINE - 1);
	filter->words = (uint64_t *)start;
	filter->lines = lines;
	filter->next_digest = INT64_MIN;
}

static void add_to_filter(struct parked_filter *filter, int64_t digest)
{
	const struct bloom_filter all = {filter->words, filter->lines};
	if (!all.words || filter_holds(filter, digest))
		return;
	filter_code()->add(&all, hash_digest(digest));
	filter->count++;
}

/* The shard has no parked key, and nothing is hashed. */
static bool has_no_filter(const struct record_queue *queue)
{
	return !queue->filter.words && !queue->loading.words;
}

/* A key that is not in the filter is not parked. Without a filter in force, any key may be. */
static bool may_be_parked(const struct record_queue *queue, int64_t digest)
{
	return !queue->filter.words || filter_holds(&queue->filter, digest);
}

/* Loads the filter again when it is too small, or when half of its keys are no longer parked. */
static void renew_filter(struct record_queue *queue)
{
	const struct parked_filter *filter = &queue->filter;
	uint64_t most = most_lines(queue);
	if (!filter->words || queue->loading.words)
		return;
	bool small = filter->lines < most && filter->count > (int64_t)filter->lines * LINE_DIGESTS;
	if (small || filter->emptied * 2 > filter->count)
		begin_filter(&queue->loading, most);
}

bool record_queue_wants_digests(const struct record_queue *queue)
{
	return queue->loading.words;
}

int64_t record_queue_digests_call(const struct record_queue *queue, int64_t *ret_from)
{
	*ret_from = queue->loading.next_digest;
	return or_else(queue->parking.page, PAGE_DIGESTS);
}

void record_queue_digest(struct record_queue *queue, int64_t digest)
{
	struct parked_filter *filter = &queue->loading;
	if (digest != filter->last_digest || !filter->loaded)
		add_to_filter(filter, digest);
	filter->loaded++;
	filter->last_digest = digest;
}

/* The last page is not full. An empty filter is dropped, and nothing is hashed from then on. */
void record_queue_digests_end(struct record_queue *queue, int64_t rows)
{
	struct parked_filter *filter = &queue->loading;
	bool last =
	    rows < or_else(queue->parking.page, PAGE_DIGESTS) || filter->last_digest == INT64_MAX;
	if (rows && !last)
		filter->next_digest = filter->last_digest + 1;
	if (!last)
		return;

	drop_filter(&queue->filter);
	queue->filter = *filter;
	*filter = (struct parked_filter){0};
	if (!queue->filter.count && !queue->keys)
		drop_filter(&queue->filter);
}

/* --- records -------------------------------------------------------------------------------- */

static bool is_key_known(struct record_queue *queue, struct record *record)
{
	if (record->from_parked || record->later || record->is_parked)
		return true;
	if (record->tick <= queue->inherited_tick)
		return record->looked_up;
	if (has_no_filter(queue) || !record->message.key || record->topic->policy == STREAM_PASS)
		return true;
	return record_queue_key_of(queue, record, false) ||
	       !may_be_parked(queue, record_digest(queue, record));
}

void record_queue_key_added(struct record_queue *queue, struct record *record)
{
	record->key_known = is_key_known(queue, record);
	queue->unknown += !record->key_known;
}

/*
 * The answers of look-ups no longer count. All records are checked again before the first one goes
 * on: a record that goes on may take others of its topic or partition along, depending on their
 * key_known.
 */
static void forget_lookups(struct record_queue *queue)
{
	for (uint64_t s = queue->acked; s < queue->end; s++) {
		struct record *record = record_queue_at(queue, s);
		if (!record_waits(record))
			continue;
		queue->unknown -= !record->key_known;
		record->looked_up = false;
		record_queue_key_added(queue, record);
	}

	/* Records of an exact key that came meanwhile get no look-up that would release them. */
	for (uint64_t s = queue->acked; s < queue->end; s++)
		if (record_queue_at(queue, s)->key_known)
			record_queue_becomes_known(queue, s);
	queue->looked = queue->acked;
}

static bool is_key_needed(const struct record_queue *queue, const struct parked_key *key)
{
	return key->parking_count || key->refused_again || key->refused_sequence >= queue->acked;
}

static int64_t most_keys(const struct record_queue *queue)
{
	int64_t keys = queue->memory / KEYS_SHARE / KEY_BYTES;
	return or_else(queue->parking.keys, keys < KEYS_LEAST ? KEYS_LEAST : keys);
}

static void drop_unneeded_keys(struct record_queue *queue)
{
	struct parked_key *key, *next;
	HASH_ITER(hh, queue->keys, key, next)
	{
		if (!is_key_needed(queue, key))
			drop_parked_key(queue, key);
	}
	forget_lookups(queue);
}

void record_queue_key_noted(struct record_queue *queue, struct record *record)
{
	struct parked_key *key = record_queue_key_of(queue, record, false);
	if (!key)
		return;

	uint64_t most = most_lines(queue);
	if (has_no_filter(queue))
		begin_filter(&queue->filter, most < FIRST_LINES ? most : FIRST_LINES);
	/* Even if `is_parked` is set: that may be out of date if the answer of a call was lost, and
	   the filter may have been loaded since. */
	add_to_filter(&queue->filter, key->digest);
	add_to_filter(&queue->loading, key->digest);
	key->parking_count--;
	key->is_parked = true;
}

void record_queue_keys_noted(struct record_queue *queue)
{
	renew_filter(queue);
	if ((int64_t)HASH_COUNT(queue->keys) > most_keys(queue))
		drop_unneeded_keys(queue);
}

void record_queue_keys_taken(struct record_queue *queue, bool parked, int64_t inherited_tick)
{
	queue->looked = queue->acked;
	if (!parked)
		return;
	queue->inherited_tick = inherited_tick;
	begin_filter(&queue->loading, most_lines(queue));
}

int64_t record_queue_kept_bytes(const struct record_queue *queue)
{
	return (int64_t)(queue->filter.lines + queue->loading.lines) * BLOOM_LINE +
	       (int64_t)HASH_COUNT(queue->keys) * KEY_BYTES;
}

void record_queue_keys_forget(struct record_queue *queue)
{
	struct parked_key *key, *next;
	HASH_ITER(hh, queue->keys, key, next)
	{
		drop_parked_key(queue, key);
	}

	drop_filter(&queue->filter);
	drop_filter(&queue->loading);
	parked_digester_destroy(queue->digester);
	free(queue->lookups);
	queue->digester = NULL;
	queue->lookups = NULL;
	queue->lookup_count = queue->lookup_capacity = 0;
	queue->unknown = queue->inherited_tick = 0;
}

/* --- look-ups ------------------------------------------------------------------------------- */

bool record_queue_wants_lookup(const struct record_queue *queue)
{
	return queue->unknown > 0;
}

static void add_lookup(struct record_queue *queue, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	if (queue->lookup_count == queue->lookup_capacity) {
		queue->lookup_capacity = queue->lookup_capacity ? queue->lookup_capacity * 2 : 64;
		queue->lookups = xrealloc(
		    queue->lookups, (size_t)queue->lookup_capacity * sizeof *queue->lookups);
	}

	struct stream_lookup *asked = &queue->lookups[queue->lookup_count++];
	*asked = (struct stream_lookup){.sequence = sequence};
	if (record->tick <= queue->inherited_tick) {
		asked->id = record->message.id;
		asked->event_id = record->message.event_id;
	}
	if (!record->message.key || record->topic->policy == STREAM_PASS)
		return;
	asked->has_digest = true;
	asked->digest = record_digest(queue, record);
}

int record_queue_lookup_call(struct record_queue *queue, const struct stream_lookup **ret_asked)
{
	int most = (int)or_else(queue->parking.lookups, LOOKUPS);
	queue->lookup_count = 0;
	if (queue->looked < queue->acked)
		queue->looked = queue->acked;
	for (; queue->looked < queue->end && queue->lookup_count < most; queue->looked++)
		if (!record_queue_at(queue, queue->looked)->key_known)
			add_lookup(queue, queue->looked);
	*ret_asked = queue->lookups;
	return queue->lookup_count;
}

void record_queue_lookup_failed(struct record_queue *queue)
{
	queue->lookup_count = 0;
	queue->looked = queue->acked;
}

void record_queue_looked_up(struct record_queue *queue, int place, bool itself)
{
	if (place < 0 || place >= queue->lookup_count)
		return;
	const struct stream_lookup *asked = &queue->lookups[place];
	record_queue_at(queue, asked->sequence)->is_parked = itself;
	if (itself || !asked->has_digest)
		return;

	/* An earlier owner parked rows of the key: all records in memory are behind those rows,
	 * whichever record was refused first. */
	struct parked_key *key = find_or_add_parked_key(queue, asked->digest);
	key->is_parked = true;
	key->refused_sequence = 0;
}

void record_queue_lookup_end(struct record_queue *queue)
{
	for (int i = 0; i < queue->lookup_count; i++) {
		struct record *record = record_queue_at(queue, queue->lookups[i].sequence);
		record->key_known = record->looked_up = true;
		queue->unknown--;
	}
	for (int i = 0; i < queue->lookup_count; i++)
		record_queue_becomes_known(queue, queue->lookups[i].sequence);
	queue->lookup_count = 0;
}
