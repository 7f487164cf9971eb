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
const struct audit_kind_row audit_kinds[AUDIT_KINDS] = {
	[AUDIT_LOST] = {"lost", "lost"},
	[AUDIT_PHANTOM] = {"phantom", "phantom"},
	[AUDIT_ALTERED] = {"altered", "altered"},
	[AUDIT_OUT_OF_ORDER] = {"out_of_order", "out of order"},
	[AUDIT_UNEQUAL] = {"unequal", "unequal duplicates"},
	[AUDIT_DUPLICATE] = {"duplicates", "duplicates"},
};
/* clang-format on */

enum { MOST_KEYS = 2 << 20, FIRST_KEYS = 1 << 12 };

struct entry {
	int64_t id;
	uint64_t event, content;
	uint16_t epoch, place; /* digests of the first occurrence's */
	uint8_t state;         /* enum audit_state */
	bool seen;
};
static_assert(sizeof(struct entry) == AUDIT_ROW_BYTES, "the header promises it");

/* The furthest position in a partition, of a shard and an epoch. */
struct lane {
	struct lane_name {
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

struct audit {
	struct entry *rows;
	int64_t count, room, capacity;
	int64_t after, upto;
	struct lane *lanes, *recent;
	struct key *keys; /* open addressing, at most half full */
	uint32_t key_room, key_count;
	bool first_round;
	struct audit_verdict verdict;
};

struct audit *audit_create(int64_t memory)
{
	struct audit *audit = xcalloc(1, sizeof *audit);

	audit->capacity = memory / AUDIT_ROW_BYTES;
	assert(audit->capacity > 0);
	audit->first_round = true;
	return audit;
}

static void forget_round(struct audit *audit)
{
	struct lane *lane, *next;

	HASH_ITER(hh, audit->lanes, lane, next)
	{
		HASH_DEL(audit->lanes, lane);
		free(lane);
	}
	audit->recent = NULL;
	free(audit->keys);
	audit->keys = NULL;
	audit->key_room = audit->key_count = 0;
	audit->count = 0;
}

void audit_destroy(struct audit *audit)
{
	if (!audit)
		return;
	forget_round(audit);
	for (int kind = 0; kind < AUDIT_KINDS; kind++)
		for (int i = 0; i < AUDIT_SAMPLES; i++)
			free(audit->verdict.samples[kind][i]);
	free(audit->rows);
	free(audit);
}

void audit_found(struct audit *audit, enum audit_kind kind, const char *format, ...)
{
	char text[512];
	int64_t place = audit->verdict.found[kind]++;
	va_list arguments;

	if (place >= AUDIT_SAMPLES)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	audit->verdict.samples[kind][place] = xstrdup(text);
}

struct audit_verdict *audit_verdict(struct audit *audit)
{
	return &audit->verdict;
}

bool audit_is_clean(const struct audit_verdict *verdict, bool no_duplicates)
{
	for (int kind = 0; kind < AUDIT_KINDS; kind++)
		if (verdict->found[kind] > 0 && (kind != AUDIT_DUPLICATE || no_duplicates))
			return false;
	return true;
}

/* --- rows ---------------------------------------------------------------------------------- */

void audit_begin(struct audit *audit, int64_t after)
{
	audit->first_round &= audit->count == 0;
	forget_round(audit);
	audit->after = after;
}

int64_t audit_capacity(const struct audit *audit)
{
	return audit->capacity;
}

bool audit_row(struct audit *audit, const struct audit_row *row, struct err *err)
{
	const struct entry *last = audit->count ? &audit->rows[audit->count - 1] : NULL;
	int64_t before = last ? last->id : audit->after;
	/* after the sequence of ids went back; a page does not part them */
	bool shares_id = last && row->id == before && row->event != last->event;

	/* rows are found by a binary search, and the memory is what the command was given */
	if (row->id <= before && !shares_id)
		return err_set(err, ERR_FATAL,
		    "the server sends row %lld behind row %lld, though the query orders them by id",
		    (long long)row->id, (long long)before);
	if (audit->count >= audit->capacity && !shares_id)
		return err_set(err, ERR_FATAL,
		    "the server sends more than the %lld rows that the query is limited to",
		    (long long)audit->capacity);
	if (audit->count == audit->room) {
		audit->room = audit->room ? audit->room * 2 : 1 << 14;
		if (audit->room > audit->capacity && audit->count < audit->capacity)
			audit->room = audit->capacity;
		audit->rows = xrealloc(audit->rows, (size_t)audit->room * sizeof *audit->rows);
	}
	audit->rows[audit->count++] = (struct entry){.id = row->id,
	    .event = row->event,
	    .content = row->content,
	    .state = (uint8_t)row->state};
	audit->verdict.committed++;
	audit->verdict.acknowledged += row->state == AUDIT_ACKNOWLEDGED;
	return true;
}

int64_t audit_rows_end(struct audit *audit, bool last)
{
	int64_t end = audit->count ? audit->rows[audit->count - 1].id : audit->after;

	audit->upto = last ? INT64_MAX : end;
	return end;
}

/* Ids are nearly dense: where this one would stand if they were, and from there by halves. */
static struct entry *find(struct audit *audit, int64_t id)
{
	int64_t low = 0, high = audit->count - 1;

	while (low <= high) {
		int64_t first = audit->rows[low].id, last = audit->rows[high].id, at;

		if (id < first || id > last)
			return NULL;
		at = first == last ? low
				   : low + (int64_t)((double)(id - first) / (double)(last - first) *
						     (double)(high - low));
		if (audit->rows[at].id == id)
			return &audit->rows[at];
		if (audit->rows[at].id < id)
			low = at + 1;
		else
			high = at - 1;
		/* a guess on ids with holes may creep: halve what is left as well */
		at = low + (high - low) / 2;
		if (low <= high && audit->rows[at].id < id)
			low = at + 1;
		else if (low <= high && audit->rows[at].id > id)
			high = at - 1;
	}
	return NULL;
}

/* --- order --------------------------------------------------------------------------------- */

static bool is_lane_of(const struct lane *lane, const struct audit_record *record)
{
	return lane->name.partition == record->partition &&
	       lane->name.epoch == record->position.epoch &&
	       lane->name.shard == record->position.shard &&
	       text_equal(lane->name.topic, record->topic);
}

static struct lane *lane_of(struct audit *audit, const struct audit_record *record)
{
	struct lane_name name;
	struct lane *lane;

	if (audit->recent && is_lane_of(audit->recent, record))
		return audit->recent;
	memset(&name, 0, sizeof name);
	name.epoch = record->position.epoch;
	name.partition = record->partition;
	name.shard = record->position.shard;
	text_copy(name.topic, sizeof name.topic, record->topic);
	HASH_FIND(hh, audit->lanes, &name, sizeof name, lane);
	if (!lane) {
		lane = xcalloc(1, sizeof *lane);
		lane->name = name;
		lane->tick = lane->id = -1;
		HASH_ADD(hh, audit->lanes, name, sizeof lane->name, lane);
	}
	audit->recent = lane;
	return lane;
}

/* Does it stand behind a record with a later position? Positions grow along a partition. */
static bool is_behind_position(struct audit *audit, const struct audit_record *record)
{
	struct lane *lane = lane_of(audit, record);
	const struct outbox_position *position = &record->position;

	if (position->tick < lane->tick ||
	    (position->tick == lane->tick && position->id <= lane->id))
		return true;
	lane->tick = position->tick;
	lane->id = position->id;
	return false;
}

static struct key *place_of(struct key *keys, uint32_t room, uint64_t digest)
{
	uint32_t at = (uint32_t)digest & (room - 1);

	while (keys[at].digest && keys[at].digest != digest)
		at = (at + 1) & (room - 1);
	return &keys[at];
}

static void grow_keys(struct audit *audit)
{
	uint32_t room = audit->key_room ? audit->key_room * 2 : FIRST_KEYS;
	struct key *keys = xcalloc(room, sizeof *keys);

	for (uint32_t i = 0; i < audit->key_room; i++)
		if (audit->keys[i].digest)
			*place_of(keys, room, audit->keys[i].digest) = audit->keys[i];
	free(audit->keys);
	audit->keys = keys;
	audit->key_room = room;
}

/* Does it stand behind a record of its key with a higher sequence? */
static bool is_behind_sequence(struct audit *audit, const struct audit_record *record)
{
	uint64_t digest = digest_add(DIGEST_BEGIN, record->topic, strlen(record->topic));
	struct key *key;

	if (audit->key_count * 2 >= audit->key_room && audit->key_room < 2 * MOST_KEYS)
		grow_keys(audit);
	digest = digest_add(digest, record->key, record->key_length) | 1;
	key = place_of(audit->keys, audit->key_room, digest);
	if (!key->digest && audit->key_count >= MOST_KEYS) {
		audit->verdict.sequences_unjudged += audit->first_round;
		return false;
	}
	if (!key->digest) {
		*key = (struct key){digest, record->sequence};
		audit->key_count++;
		return false;
	}
	if (record->sequence <= key->highest)
		return true;
	key->highest = record->sequence;
	return false;
}

/* --- records ------------------------------------------------------------------------------- */

static void judge_again(struct audit *audit, const struct entry *row,
    const struct audit_record *record, uint16_t epoch, uint16_t place)
{
	audit_found(audit, AUDIT_DUPLICATE, "id %" PRId64 " in %s [%d] at %" PRId64, row->id,
	    record->topic, record->partition, record->offset);
	/* A new epoch gives the rows that are sent again new positions. */
	if (row->epoch == epoch && row->place != place)
		audit_found(audit, AUDIT_UNEQUAL,
		    "id %" PRId64 " in %s [%d] at %" PRId64 ", tick %" PRId64, row->id,
		    record->topic, record->partition, record->offset, record->position.tick);
}

static void judge(
    struct audit *audit, struct entry *row, const struct audit_record *record, bool behind)
{
	const int64_t place[] = {record->position.shard, record->position.tick, record->partition};
	uint16_t place_digest = (uint16_t)digest_add(DIGEST_BEGIN, place, sizeof place);
	uint16_t epoch_digest = (uint16_t)digest_add(
	    DIGEST_BEGIN, &record->position.epoch, sizeof record->position.epoch);

	if (row->content && record->content && row->content != record->content)
		audit_found(audit, AUDIT_ALTERED, "id %" PRId64 " in %s [%d] at %" PRId64, row->id,
		    record->topic, record->partition, record->offset);
	if (row->seen) {
		judge_again(audit, row, record, epoch_digest, place_digest);
		return;
	}
	row->seen = true;
	row->epoch = epoch_digest;
	row->place = place_digest;
	audit->verdict.published++;
	if (behind)
		audit_found(audit, AUDIT_OUT_OF_ORDER,
		    "id %" PRId64 ", key %.*s, in %s [%d] at %" PRId64, row->id,
		    (int)(record->key_length < 80 ? record->key_length : 80),
		    (const char *)record->key, record->topic, record->partition, record->offset);
}

/* The row with this id and this event; NULL: none. Several rows may share an id. */
static struct entry *find_event(struct audit *audit, int64_t id, uint64_t event)
{
	const struct entry *end = audit->rows + audit->count;
	struct entry *row = find(audit, id);

	if (!row)
		return NULL;
	while (row > audit->rows && row[-1].id == id)
		row--;
	for (; row < end && row->id == id; row++)
		if (row->event == event)
			return row;
	return NULL;
}

enum audit_outcome audit_record(struct audit *audit, const struct audit_record *record)
{
	bool behind = false;
	struct entry *row;

	if (record->key) {
		behind = is_behind_position(audit, record);
		behind |= record->has_sequence && is_behind_sequence(audit, record);
	}
	if (record->position.id <= audit->after || record->position.id > audit->upto)
		return AUDIT_ELSEWHERE;
	row = find_event(audit, record->position.id, record->event);
	if (!row)
		return AUDIT_UNKNOWN;
	judge(audit, row, record, behind);
	return AUDIT_JUDGED;
}

bool audit_missing(struct audit *audit, int64_t *cursor, int64_t *ret_id)
{
	for (; *cursor < audit->count; (*cursor)++) {
		const struct entry *row = &audit->rows[*cursor];

		if (row->seen)
			continue;
		if (row->state == AUDIT_ACKNOWLEDGED) {
			*ret_id = row->id;
			(*cursor)++;
			return true;
		}
		audit->verdict.pending += row->state == AUDIT_PENDING;
		audit->verdict.parked += row->state == AUDIT_PARKED;
		audit->verdict.scheduled += row->state == AUDIT_SCHEDULED;
		audit->verdict.before += row->state == AUDIT_BEFORE;
	}
	return false;
}

bool audit_is_missing(const struct audit *audit)
{
	for (int64_t i = 0; i < audit->count; i++)
		if (!audit->rows[i].seen && audit->rows[i].state == AUDIT_ACKNOWLEDGED)
			return true;
	return false;
}
