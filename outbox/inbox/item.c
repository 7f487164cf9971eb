/*
 * An item is one message in the inbox, with a copy of its record. The table of states comes first;
 * then the memory of items, which is pooled, the copy of a record, and the lists that items are in.
 */
#include "item.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "claimer.h"
#include "clock.h"
#include "text.h"

enum { FEW_HEADERS = 16 };

#define MAY(state) (1U << ITEM_##state)
/* item_destroy may come in every state: the partition is revoked. */
static const struct state_row item_rows[ITEM_STATES] = {
    [ITEM_ARRIVED] = {"arrived",
	MAY(QUEUED) | MAY(CLAIMING) | MAY(READY) | MAY(RESTING) | MAY(SENDING) | MAY(BLOCKED) |
	    MAY(LOGGING),
	"waits until the store says whether it is new"},
    [ITEM_QUEUED] = {"queued",
	MAY(CLAIMING) | MAY(READY) | MAY(RESTING) | MAY(SENDING) | MAY(BLOCKED) | MAY(LOGGING),
	"waits for the message in front of it in its key queue"},
    [ITEM_CLAIMING] = {"claiming", MAY(READY) | MAY(RESTING),
	"waits until its id is claimed, or another consumer is known to have the claim"},
    [ITEM_READY] = {"ready", MAY(IN_PROGRESS) | MAY(CLAIMING), "waits for a free handler"},
    [ITEM_IN_PROGRESS] = {"in_progress", MAY(ENDED), "its handler works on it"},
    [ITEM_ENDED] = {"ended", MAY(RESTING) | MAY(SENDING) | MAY(BLOCKED) | MAY(LOGGING),
	"its handler has finished, and the loop has not seen that yet"},
    [ITEM_RESTING] = {"resting",
	MAY(CLAIMING) | MAY(READY) | MAY(RESTING) | MAY(SENDING) | MAY(BLOCKED) | MAY(LOGGING),
	"waits for the time of its next attempt"},
    [ITEM_SENDING] = {"sending", MAY(LOGGING) | MAY(BLOCKED),
	"waits until the broker acknowledges its record in a retry or dead-letter topic"},
    [ITEM_BLOCKED] = {"blocked", MAY(RESTING),
	"blocks its partition until an operator resumes the topic"},
    [ITEM_LOGGING] = {"logging", 0, "waits until its id is in the store; then it is finished"},
};

const struct state_table item_states = {
    "message of the inbox", item_rows, ITEM_STATES, ITEM_ARRIVED};

void item_move(struct item *item, enum item_state state)
{
	states_check(&item_states, item->state, state);
	item->state = state;
}

/* --- memory --------------------------------------------------------------------------------- */

/* Sets *bytes to the size of the memory that it returns. */
static struct item *take_memory(struct item_pool *pool, size_t *bytes)
{
	size_t class = (*bytes + POOL_STEP - 1) / POOL_STEP;
	if (pool && class < POOL_CLASSES) {
		struct item *item = pool->firsts[class];
		*bytes = class * POOL_STEP;
		if (item) {
			pool->firsts[class] = item->link;
			pool->bytes -= *bytes;
			return item;
		}
	}
	return xmalloc(*bytes);
}

/* --- a copy of a record --------------------------------------------------------------------- */

struct header {
	const char *name;
	const void *value; /* may be NULL */
	size_t name_size, length;
};

/* librdkafka is called once: the first headers are kept until the memory is allocated. */
struct headers {
	const void *from;
	struct header first[FEW_HEADERS];
	size_t count, bytes;
};

static bool read_header(const void *from, size_t index, struct header *ret_header)
{
	if (!consumer_headers_at(
		from, index, &ret_header->name, &ret_header->value, &ret_header->length))
		return false;
	ret_header->name_size = strlen(ret_header->name) + 1;
	if (!ret_header->value)
		ret_header->length = 0;
	return true;
}

static void read_item_headers(struct headers *headers, const struct consumer_record *record)
{
	struct header header;
	headers->from = consumer_headers(record);
	headers->count = headers->bytes = 0;
	while (read_header(headers->from, headers->count, &header)) {
		headers->bytes += header.name_size + header.length;
		if (headers->count < FEW_HEADERS)
			headers->first[headers->count] = header;
		headers->count++;
	}
}

/* Returns the address of the copy; NULL stays NULL. */
static const void *put_bytes(char **at, const void *bytes, size_t length)
{
	char *place = *at;
	if (!bytes)
		return NULL;
	memcpy(place, bytes, length);
	*at += length;
	return place;
}

static void copy_headers(const struct headers *headers, struct outbox_rules_header *copies,
    uint32_t *name_sizes, char **at)
{
	for (size_t i = 0; i < headers->count; i++) {
		struct header header;
		if (i < FEW_HEADERS)
			header = headers->first[i];
		else if (!read_header(headers->from, i, &header))
			break;
		name_sizes[i] = (uint32_t)header.name_size;
		copies[i] = (struct outbox_rules_header){
		    .name = put_bytes(at, header.name, header.name_size),
		    .value = put_bytes(at, header.value, header.length),
		    .length = header.length,
		};
	}
}

struct item *item_create(struct item_pool *pool, const struct consumer_record *record)
{
	struct headers found;

	read_item_headers(&found, record);
	size_t headers_bytes =
	    found.count * (sizeof(struct outbox_rules_header) + sizeof(uint32_t));
	size_t bytes = sizeof(struct item) + headers_bytes + found.bytes + record->key_length +
		       record->payload_length;
	struct item *item = take_memory(pool, &bytes);
	struct outbox_rules_header *headers = (struct outbox_rules_header *)(item + 1);
	char *at = (char *)headers + headers_bytes;
	*item = (struct item){
	    .public = {.partition = record->partition,
		.offset = record->offset,
		.time_ms = record->timestamp_ms,
		.key_length = record->key_length,
		.payload_length = record->payload_length,
		.headers = headers,
		.header_count = found.count,
		.attempt = 1},
	    .bytes = bytes,
	};
	item->public.key = put_bytes(&at, record->key, record->key_length);
	item->public.payload = put_bytes(&at, record->payload, record->payload_length);
	copy_headers(&found, headers, (uint32_t *)(headers + found.count), &at);
	item->redelivered = item_header(item, "outbox-group") != NULL;
	return item;
}

/* size: bytes of the name with its NUL. Other headers seldom have a name of the same size. */
static bool is_claim(const char *name, size_t size)
{
	static const struct {
		const char *name;
		size_t size;
	} claims[] = {
	    {"outbox-origin-topic", sizeof "outbox-origin-topic"},
	    {"outbox-origin-partition", sizeof "outbox-origin-partition"},
	    {"outbox-origin-offset", sizeof "outbox-origin-offset"},
	    {"outbox-origin-time", sizeof "outbox-origin-time"},
	    {"outbox-origin-position", sizeof "outbox-origin-position"},
	    {"outbox-attempts", sizeof "outbox-attempts"},
	    {"outbox-reason", sizeof "outbox-reason"},
	    {"outbox-retry-at", sizeof "outbox-retry-at"},
	};

	for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
		if (claims[i].size == size && memcmp(claims[i].name, name, size) == 0)
			return true;
	return false;
}

void item_drop_claims(struct item *item)
{
	struct outbox_rules_header *headers = (struct outbox_rules_header *)(item + 1);
	size_t count = item->public.header_count, kept = 0;
	uint32_t *sizes = (uint32_t *)(headers + count);
	for (size_t i = 0; i < count; i++) {
		if (is_claim(headers[i].name, sizes[i]))
			sizes[i] = 0;
		kept += sizes[i] != 0;
	}
	if (kept == count)
		return;

	/* the array of sizes begins where the headers end, so it moves forward */
	size_t place = 0;
	for (size_t i = 0; i < count; i++)
		if (sizes[i])
			headers[place++] = headers[i];
	uint32_t *moved = (uint32_t *)(headers + kept);
	for (size_t i = 0; i < count; i++)
		if (sizes[i])
			*moved++ = sizes[i];
	item->public.header_count = kept;
}

/* A message that is freed is handled no longer, whatever came of it. */
static void free_parts(struct item *item)
{
	claimer_release(item);
	free(item->owned_id);
	free(item->owned_leg);
	free(item->reason);
}

void item_destroy(struct item *item)
{
	free_parts(item);
	free(item);
}

void item_recycle(struct item_pool *pool, struct item *item)
{
	size_t class = item->bytes / POOL_STEP;
	if (class >= POOL_CLASSES || pool->bytes + item->bytes > POOL_BYTES) {
		item_destroy(item);
		return;
	}
	free_parts(item);
	pool->bytes += item->bytes;
	item->link = pool->firsts[class];
	pool->firsts[class] = item;
}

void item_pool_finish(struct item_pool *pool)
{
	for (size_t i = 0; i < POOL_CLASSES; i++)
		for (struct item *item; (item = pool->firsts[i]);) {
			pool->firsts[i] = item->link;
			free(item);
		}
	pool->bytes = 0;
}

/* The lengths of the names follow the headers: most names differ in length. */
const struct outbox_rules_header *item_header(const struct item *item, const char *name)
{
	const struct outbox_rules_header *headers = item->public.headers;
	const uint32_t *sizes = (const uint32_t *)(headers + item->public.header_count);
	size_t size = strlen(name) + 1;
	for (size_t i = item->public.header_count; i-- > 0;)
		if (sizes[i] == size && memcmp(headers[i].name, name, size) == 0)
			return headers[i].value ? &headers[i] : NULL;
	return NULL;
}

const void *item_short_id(
    const void *id, size_t length, char ret_digest[ITEM_DIGEST], size_t *ret_length)
{
	*ret_length = length;
	if (length <= OUTBOX_DEDUP_ID_MAX)
		return id;
	XXH128_hash_t hash = XXH3_128bits(id, length);
	*ret_length = (size_t)snprintf(
	    ret_digest, ITEM_DIGEST, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
	return ret_digest;
}

/* --- lists ---------------------------------------------------------------------------------- */

void item_list_add(struct item_list *list, struct item *item)
{
	item->link = NULL;
	if (list->last)
		list->last->link = item;
	else
		list->first = item;
	list->last = item;
	list->count++;
}

struct item *item_list_take(struct item_list *list)
{
	struct item *item = list->first;
	if (!item)
		return NULL;

	list->first = item->link;
	if (!list->first)
		list->last = NULL;
	else { /* another thread used it last, or long ago */
		__builtin_prefetch(&list->first->link);
		__builtin_prefetch(&list->first->assigned);
		__builtin_prefetch(&list->first->key_hash);
	}
	list->count--;
	return item;
}

void item_list_join(struct item_list *list, struct item_list *other)
{
	if (!other->first)
		return;
	if (list->last)
		list->last->link = other->first;
	else
		list->first = other->first;
	list->last = other->last;
	list->count += other->count;
	*other = (struct item_list){0};
}
