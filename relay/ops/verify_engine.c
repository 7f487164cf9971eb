/*
 * The comparison of `verify`, without I/O: rows of a round go in first, then records, and findings
 * come out. [order] has the checks of order by key.
 */
#include "verify_engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "digest.h"

/* clang-format off */
const struct verify_kind_row verify_kinds[VERIFY_KINDS] = {
	[VERIFY_LOST] = {"lost", "lost"},
	[VERIFY_PHANTOM] = {"phantom", "phantom"},
	[VERIFY_ALTERED] = {"altered", "altered"},
	[VERIFY_OUT_OF_ORDER] = {"out_of_order", "out of order"},
	[VERIFY_UNEQUAL] = {"unequal", "unequal duplicates"},
	[VERIFY_DUPLICATE] = {"duplicates", "duplicates"},
};
/* clang-format on */

enum { MOST_KEYS = 2 << 20, FIRST_KEYS = 1 << 12 };

struct entry {
	int64_t id;
	uint64_t event, content;
	uint16_t epoch, place; /* digests of the first occurrence's */
	uint8_t state;         /* enum verify_state */
	bool seen;             /* it has a record, or was taken as missing */
};
static_assert(sizeof(struct entry) == VERIFY_ROW_BYTES, "the header promises it");

/* The highest position seen in a partition, per shard and epoch. */
struct high_mark {
	struct high_mark_name {
		int64_t epoch;
		int32_t partition, shard;
		char topic[256];
	} name;
	int64_t tick, id;
	UT_hash_handle hh;
};

/* The highest sequence of a key; digest 0: the place is free. */
struct key {
	uint64_t digest;
	int64_t highest;
};

struct verify_engine {
	struct entry *rows;
	int64_t count, room, capacity;
	int64_t after, upto;
	struct high_mark *high_marks, *recent;
	struct key *keys; /* open addressing, at most half full */
	uint32_t key_room, key_count;
	bool first_round;
	struct verify_verdict verdict;
};

struct verify_engine *verify_engine_create(int64_t memory)
{
	struct verify_engine *engine = xcalloc(1, sizeof *engine);

	engine->capacity = memory / VERIFY_ROW_BYTES;
	assert(engine->capacity > 0);
	engine->first_round = true;
	return engine;
}

static void forget_round(struct verify_engine *engine)
{
	struct high_mark *mark, *next;

	HASH_ITER(hh, engine->high_marks, mark, next)
	{
		HASH_DEL(engine->high_marks, mark);
		free(mark);
	}
	engine->recent = NULL;
	free(engine->keys);
	engine->keys = NULL;
	engine->key_room = engine->key_count = 0;
	engine->count = 0;
}

void verify_engine_destroy(struct verify_engine *engine)
{
	if (!engine)
		return;
	forget_round(engine);
	for (int kind = 0; kind < VERIFY_KINDS; kind++)
		for (int i = 0; i < VERIFY_SAMPLES; i++)
			free(engine->verdict.samples[kind][i]);
	free(engine->rows);
	free(engine);
}

void verify_engine_found(
    struct verify_engine *engine, enum verify_kind kind, const char *format, ...)
{
	char text[512];
	int64_t place = engine->verdict.found[kind]++;
	va_list arguments;

	/* a table full of findings must not fill the memory: the rest is only counted */
	if (place >= VERIFY_SAMPLES)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	engine->verdict.samples[kind][place] = xstrdup(text);
}

struct verify_verdict *verify_engine_verdict(struct verify_engine *engine)
{
	return &engine->verdict;
}

bool verify_is_clean(const struct verify_verdict *verdict, bool no_duplicates)
{
	for (int kind = 0; kind < VERIFY_KINDS; kind++)
		if (verdict->found[kind] > 0 && (kind != VERIFY_DUPLICATE || no_duplicates))
			return false;
	return true;
}

/* --- rows ---------------------------------------------------------------------------------- */

void verify_engine_begin(struct verify_engine *engine, int64_t after)
{
	engine->first_round &= engine->count == 0;
	forget_round(engine);
	engine->after = after;
}

int64_t verify_engine_capacity(const struct verify_engine *engine)
{
	return engine->capacity;
}

bool verify_engine_row(struct verify_engine *engine, const struct verify_row *row, struct err *err)
{
	const struct entry *last = engine->count ? &engine->rows[engine->count - 1] : NULL;
	int64_t before = last ? last->id : engine->after;
	/* rows share an id after the sequence of ids went back; a page does not separate them */
	bool shares_id = last && row->id == before && row->event != last->event;

	/* rows are found by a binary search, and the memory is what the command was given */
	if (row->id <= before && !shares_id)
		return err_set(err, ERR_FATAL,
		    "the server sends row %lld behind row %lld, though the query orders them by id",
		    (long long)row->id, (long long)before);
	if (engine->count >= engine->capacity && !shares_id)
		return err_set(err, ERR_FATAL,
		    "the server sends more than the %lld rows that the query is limited to",
		    (long long)engine->capacity);
	if (engine->count == engine->room) {
		engine->room = engine->room ? engine->room * 2 : 1 << 14;
		/* doubling must not exceed the memory; rows that share the last id may */
		if (engine->room > engine->capacity && engine->count < engine->capacity)
			engine->room = engine->capacity;
		engine->rows = xrealloc(engine->rows, (size_t)engine->room * sizeof *engine->rows);
	}
	engine->rows[engine->count++] = (struct entry){.id = row->id,
	    .event = row->event,
	    .content = row->content,
	    .state = (uint8_t)row->state};
	engine->verdict.committed++;
	engine->verdict.acknowledged += row->state == VERIFY_ACKNOWLEDGED;
	return true;
}

int64_t verify_engine_rows_end(struct verify_engine *engine, bool last)
{
	int64_t end = engine->count ? engine->rows[engine->count - 1].id : engine->after;

	engine->upto = last ? INT64_MAX : end;
	return end;
}

/* Ids are nearly dense: guesses the place as if they were, then halves the rest. */
static struct entry *find_row_by_id(struct verify_engine *engine, int64_t id)
{
	int64_t low = 0, high = engine->count - 1;

	while (low <= high) {
		int64_t first = engine->rows[low].id, last = engine->rows[high].id, at;

		if (id < first || id > last)
			return NULL;
		at = first == last ? low
				   : low + (int64_t)((double)(id - first) / (double)(last - first) *
						     (double)(high - low));
		if (engine->rows[at].id == id)
			return &engine->rows[at];
		if (engine->rows[at].id < id)
			low = at + 1;
		else
			high = at - 1;
		/* a guess on ids with holes may creep: halve what is left as well */
		at = low + (high - low) / 2;
		if (low <= high && engine->rows[at].id < id)
			low = at + 1;
		else if (low <= high && engine->rows[at].id > id)
			high = at - 1;
	}
	return NULL;
}

/* --- order --------------------------------------------------------------------------------- */

static bool is_high_mark_of(const struct high_mark *mark, const struct verify_record *record)
{
	return mark->name.partition == record->partition &&
	       mark->name.epoch == record->position.epoch &&
	       mark->name.shard == record->position.shard &&
	       text_equal(mark->name.topic, record->topic);
}

static struct high_mark *high_mark_of(
    struct verify_engine *engine, const struct verify_record *record)
{
	struct high_mark_name name;
	struct high_mark *mark;

	if (engine->recent && is_high_mark_of(engine->recent, record))
		return engine->recent;

	/* HASH_FIND compares bytes, padding and the rest of the topic included */
	memset(&name, 0, sizeof name);
	name.epoch = record->position.epoch;
	name.partition = record->partition;
	name.shard = record->position.shard;
	text_copy(name.topic, sizeof name.topic, record->topic);
	HASH_FIND(hh, engine->high_marks, &name, sizeof name, mark);
	if (!mark) {
		mark = xcalloc(1, sizeof *mark);
		mark->name = name;
		mark->tick = mark->id = -1;
		HASH_ADD(hh, engine->high_marks, name, sizeof mark->name, mark);
	}
	engine->recent = mark;
	return mark;
}

/* Does the record come after one with a later position? Positions grow along a partition. */
static bool is_behind_position(struct verify_engine *engine, const struct verify_record *record)
{
	struct high_mark *mark = high_mark_of(engine, record);
	const struct outbox_position *position = &record->position;

	/* an equal position is a record that was sent again, behind its first occurrence */
	if (position->tick < mark->tick ||
	    (position->tick == mark->tick && position->id <= mark->id))
		return true;
	mark->tick = position->tick;
	mark->id = position->id;
	return false;
}

static struct key *key_place(struct key *keys, uint32_t room, uint64_t digest)
{
	uint32_t at = (uint32_t)digest & (room - 1);

	while (keys[at].digest && keys[at].digest != digest)
		at = (at + 1) & (room - 1);
	return &keys[at];
}

static void grow_keys(struct verify_engine *engine)
{
	uint32_t room = engine->key_room ? engine->key_room * 2 : FIRST_KEYS;
	struct key *keys = xcalloc(room, sizeof *keys);

	for (uint32_t i = 0; i < engine->key_room; i++)
		if (engine->keys[i].digest)
			*key_place(keys, room, engine->keys[i].digest) = engine->keys[i];
	free(engine->keys);
	engine->keys = keys;
	engine->key_room = room;
}

/* Does the record come after one of its key with a higher sequence? */
static bool is_behind_sequence(struct verify_engine *engine, const struct verify_record *record)
{
	uint64_t digest = digest_add(DIGEST_BEGIN, record->topic, strlen(record->topic));
	struct key *key;

	if (engine->key_count * 2 >= engine->key_room && engine->key_room < 2 * MOST_KEYS)
		grow_keys(engine);

	/* | 1: digest 0 marks a free place */
	digest = digest_add(digest, record->key, record->key_length) | 1;
	key = key_place(engine->keys, engine->key_room, digest);
	/* keys that are known go on; new ones are counted as not judged, once for all rounds */
	if (!key->digest && engine->key_count >= MOST_KEYS) {
		engine->verdict.sequences_unjudged += engine->first_round;
		return false;
	}
	if (!key->digest) {
		*key = (struct key){digest, record->sequence};
		engine->key_count++;
		return false;
	}
	if (record->sequence <= key->highest)
		return true;
	key->highest = record->sequence;
	return false;
}

/* --- records ------------------------------------------------------------------------------- */

static void judge_again(struct verify_engine *engine, const struct entry *row,
    const struct verify_record *record, uint16_t epoch, uint16_t place)
{
	verify_engine_found(engine, VERIFY_DUPLICATE, "id %" PRId64 " in %s [%d] at %" PRId64,
	    row->id, record->topic, record->partition, record->offset);
	/* After a new epoch, the rows that are sent again have new positions. */
	if (row->epoch == epoch && row->place != place)
		verify_engine_found(engine, VERIFY_UNEQUAL,
		    "id %" PRId64 " in %s [%d] at %" PRId64 ", tick %" PRId64, row->id,
		    record->topic, record->partition, record->offset, record->position.tick);
}

static void judge_occurrence(struct verify_engine *engine, struct entry *row,
    const struct verify_record *record, bool behind)
{
	const int64_t place[] = {record->position.shard, record->position.tick, record->partition};
	uint16_t place_digest = (uint16_t)digest_add(DIGEST_BEGIN, place, sizeof place);
	uint16_t epoch_digest = (uint16_t)digest_add(
	    DIGEST_BEGIN, &record->position.epoch, sizeof record->position.epoch);

	/* 0: not known, as for headers that cannot be read */
	if (row->content && record->content && row->content != record->content)
		verify_engine_found(engine, VERIFY_ALTERED, "id %" PRId64 " in %s [%d] at %" PRId64,
		    row->id, record->topic, record->partition, record->offset);
	if (row->seen) {
		judge_again(engine, row, record, epoch_digest, place_digest);
		return;
	}
	row->seen = true;
	row->epoch = epoch_digest;
	row->place = place_digest;
	engine->verdict.published++;
	if (behind)
		verify_engine_found(engine, VERIFY_OUT_OF_ORDER,
		    "id %" PRId64 ", key %.*s, in %s [%d] at %" PRId64, row->id,
		    (int)(record->key_length < 80 ? record->key_length : 80),
		    (const char *)record->key, record->topic, record->partition, record->offset);
}

/* The row with this id and this event; NULL: none. Several rows may share an id. */
static struct entry *find_event(struct verify_engine *engine, int64_t id, uint64_t event)
{
	const struct entry *end = engine->rows + engine->count;
	struct entry *row = find_row_by_id(engine, id);

	if (!row)
		return NULL;
	while (row > engine->rows && row[-1].id == id)
		row--;
	for (; row < end && row->id == id; row++)
		if (row->event == event)
			return row;
	return NULL;
}

enum verify_outcome verify_engine_record(
    struct verify_engine *engine, const struct verify_record *record)
{
	bool behind = false;
	struct entry *row;

	/* order is judged in each round, before the record is skipped: it depends on records of
	 * other rounds */
	if (record->key) {
		behind = is_behind_position(engine, record);
		behind |= record->has_sequence && is_behind_sequence(engine, record);
	}
	if (record->position.id <= engine->after || record->position.id > engine->upto)
		return VERIFY_ELSEWHERE;
	row = find_event(engine, record->position.id, record->event);
	if (!row)
		return VERIFY_UNKNOWN;
	judge_occurrence(engine, row, record, behind);
	return VERIFY_JUDGED;
}

static bool is_missing(const struct entry *row)
{
	/* the other states explain why there is no record yet */
	return !row->seen && row->state == VERIFY_ACKNOWLEDGED;
}

bool verify_engine_missing(struct verify_engine *engine, int64_t *cursor, int64_t *ret_id)
{
	for (; *cursor < engine->count; (*cursor)++) {
		const struct entry *row = &engine->rows[*cursor];

		if (row->seen)
			continue;
		if (is_missing(row)) {
			*ret_id = row->id;
			(*cursor)++;
			return true;
		}
		engine->verdict.pending += row->state == VERIFY_PENDING;
		engine->verdict.parked += row->state == VERIFY_PARKED;
		engine->verdict.scheduled += row->state == VERIFY_SCHEDULED;
		engine->verdict.before += row->state == VERIFY_BEFORE;
	}
	return false;
}

bool verify_engine_take_missing(struct verify_engine *engine, int64_t id, uint64_t event)
{
	struct entry *row = find_event(engine, id, event);

	if (!row || !is_missing(row))
		return false;
	row->seen = true;
	return true;
}

bool verify_engine_is_missing(const struct verify_engine *engine)
{
	for (int64_t i = 0; i < engine->count; i++)
		if (is_missing(&engine->rows[i]))
			return true;
	return false;
}
