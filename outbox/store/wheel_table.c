#include "wheel_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "text.h"

enum { GOING_A_CALL = 8, LEAST = 1024 };

static bool is_none(struct fingerprint hash)
{
	return (hash.low | hash.high) == 0;
}

/* Reserves memory that is used only where it is touched. */
static void *reserve_memory(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	return memory;
}

void wheel_table_init(struct wheel_table *table, uint64_t ids, int64_t window_ms)
{
	*table = (struct wheel_table){.used = 1, .newest = INT64_MIN};
	table->reserved = (ids < LEAST ? LEAST : ids) + 1;
	table->entries = reserve_memory(table->reserved * sizeof *table->entries);
	for (table->bucket_count = LEAST; table->bucket_count < ids;)
		table->bucket_count *= 2;
	table->buckets = reserve_memory(table->bucket_count * sizeof *table->buckets);
	table->tick_ms = (window_ms + WHEEL_TICKS - 1) / WHEEL_TICKS;
}

void wheel_table_finish(struct wheel_table *table)
{
	munmap(table->entries, table->reserved * sizeof *table->entries);
	munmap(table->buckets, table->bucket_count * sizeof *table->buckets);
	*table = (struct wheel_table){0};
}

/* --- the table ------------------------------------------------------------------------------ */

static uint32_t *bucket_of_hash(const struct wheel_table *table, struct fingerprint hash)
{
	return &table->buckets[hash.high & (table->bucket_count - 1)];
}

/* The pointer to the entry, or to the end of its chain. */
static uint32_t *find_link(const struct wheel_table *table, struct fingerprint hash)
{
	uint32_t *at = bucket_of_hash(table, hash);
	while (*at && (table->entries[*at].hash.low != hash.low ||
			  table->entries[*at].hash.high != hash.high))
		at = &table->entries[*at].next;
	return at;
}

static void grow_buckets(struct wheel_table *table)
{
	munmap(table->buckets, table->bucket_count * sizeof *table->buckets);
	table->bucket_count *= 2;
	table->buckets = reserve_memory(table->bucket_count * sizeof *table->buckets);
	for (uint64_t i = 1; i < table->used; i++) {
		struct wheel_entry *entry = &table->entries[i];
		if (is_none(entry->hash))
			continue;
		uint32_t *bucket = bucket_of_hash(table, entry->hash);
		entry->next = *bucket;
		*bucket = (uint32_t)i;
	}
}

static uint32_t take_entry(struct wheel_table *table)
{
	uint32_t place = table->free;

	if (place) {
		table->free = table->entries[place].next;
		return place;
	}
	if (table->used == table->reserved) {
		uint64_t larger = table->reserved + table->reserved / 2;
		table->entries = mremap(table->entries, table->reserved * sizeof *table->entries,
		    larger * sizeof *table->entries, MREMAP_MAYMOVE);
		/* Indexes of entries have 32 bits. */
		if (table->entries == MAP_FAILED || larger > UINT32_MAX)
			abort();
		table->reserved = larger;
	}
	return (uint32_t)table->used++;
}

static void give_entry(struct wheel_table *table, uint32_t place)
{
	table->entries[place] = (struct wheel_entry){.next = table->free};
	table->free = place;
}

/* at: the pointer to the entry. The list of its tick still has the entry. */
static void unlink_entry(struct wheel_table *table, uint32_t *at)
{
	struct wheel_entry *entry = &table->entries[*at];
	*at = entry->next;
	entry->hash = (struct fingerprint){0};
	table->count--;
}

bool wheel_table_remove(struct wheel_table *table, struct fingerprint hash)
{
	bool there = false;
	for (uint32_t *at = find_link(table, hash); *at; at = find_link(table, hash)) {
		unlink_entry(table, at);
		there = true;
	}
	return there;
}

/* --- the wheel ------------------------------------------------------------------------------ */

static uint32_t *tick_at(struct wheel_table *table, int64_t tick)
{
	int64_t place = tick % (WHEEL_TICKS + 1);
	return &table->ticks[place < 0 ? place + WHEEL_TICKS + 1 : place];
}

/* Finds this entry, because the same id may have another one in a later tick. */
static void remove_wheel_entry(struct wheel_table *table, uint32_t place)
{
	uint32_t *at = bucket_of_hash(table, table->entries[place].hash);
	while (*at != place)
		at = &table->entries[*at].next;
	unlink_entry(table, at);
}

static void remove_some(struct wheel_table *table)
{
	for (int i = 0; i < GOING_A_CALL && table->going; i++) {
		uint32_t place = table->going;
		struct wheel_entry *entry = &table->entries[place];
		table->going = entry->next_of_tick;
		if (!is_none(entry->hash))
			remove_wheel_entry(table, place);
		give_entry(table, place);
	}
}

static void put_behind_going(struct wheel_table *table, uint32_t *tick)
{
	uint32_t *last = &table->going;
	while (*last) /* nearly always the list of expired ticks is empty */
		last = &table->entries[*last].next_of_tick;
	*last = *tick;
	*tick = 0;
}

/* Expired ticks then make room for the next one. */
static void turn_wheel(struct wheel_table *table, int64_t tick)
{
	int64_t first = table->newest == INT64_MIN ? tick : table->newest + 1;
	if (first < tick - WHEEL_TICKS)
		first = tick - WHEEL_TICKS;
	for (int64_t next = first; next <= tick; next++)
		put_behind_going(table, tick_at(table, next));
	table->newest = tick;
}

static int64_t tick_of(struct wheel_table *table, int64_t time_ms)
{
	int64_t tick = time_ms / table->tick_ms - (time_ms % table->tick_ms < 0);
	if (table->newest == INT64_MIN || tick > table->newest)
		turn_wheel(table, tick);
	return tick < table->newest - WHEEL_TICKS ? table->newest - WHEEL_TICKS : tick;
}

/* --- use ------------------------------------------------------------------------------------ */

void wheel_table_prefetch(const struct wheel_table *table, struct fingerprint hash)
{
	__builtin_prefetch(bucket_of_hash(table, hash));
}

bool wheel_table_has(const struct wheel_table *table, struct fingerprint hash)
{
	return *find_link(table, hash) != 0;
}

bool wheel_table_add(struct wheel_table *table, struct fingerprint hash, int64_t time_ms)
{
	remove_some(table);
	int64_t tick = tick_of(table, time_ms);
	/* While expired entries remain, the entry that is found may be one of them. */
	if (!table->going && wheel_table_has(table, hash))
		return false;
	if (table->count >= table->bucket_count * 2)
		grow_buckets(table);

	uint32_t place = take_entry(table), *list = tick_at(table, tick),
		 *bucket = bucket_of_hash(table, hash);
	table->entries[place] = (struct wheel_entry){hash, *bucket, *list};
	*bucket = *list = place;
	table->count++;
	return true;
}

uint64_t wheel_table_bytes(const struct wheel_table *table)
{
	return table->used * sizeof *table->entries + table->bucket_count * sizeof *table->buckets +
	       sizeof *table;
}
