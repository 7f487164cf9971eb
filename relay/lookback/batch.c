/*
 * The records that the look-back's reader stores in one transaction, grouped by id, and the rows
 * they become. Begin with batch_add, then batch_know (what the database knows of the ids), then
 * batch_work, which decides the rows.
 */
#include "batch.h"

#include <assert.h>
#include <string.h>
#include <uthash.h>
#include "cleanup.h"

enum { STAMP = 64, NOT_SAID = -1 };

enum id_state { NOTHING, TOMBSTONE, PREPARED };

struct knowledge {
	enum id_state state;
	char prepared_at[STAMP];
	unsigned char digest[LOOKBACK_DIGEST];
	char decision[16];
};

struct id {
	UT_hash_handle hh;
	int place;
	struct knowledge known; /* to the database */
	struct knowledge now;   /* state after the record that is worked on */
	bool here;              /* prepared by this batch */
	char name[];
};

struct record {
	int32_t partition;
	int64_t offset;
	struct id *id; /* NULL: a dead letter */
	bool dropped;
	struct lookback_request request;
	char *dead_letter_topic, *dead_letter_headers;
	struct lookback_bytes dead_letter_key, dead_letter_payload;
};

enum row_kind { ROW_PREPARE, ROW_DECISION, ROW_DEAD_LETTER, ROW_NOTE, ROW_KINDS };
static const char *const row_kinds[ROW_KINDS] = {"prepare", "decision", "dead_letter", "note"};

struct batch {
	struct record *records;
	int count, room;
	struct id *ids;    /* by name */
	struct id **order; /* by place */
	int id_count, id_room;
	struct pg_column types, names;
	struct pg_column columns[BATCH_COLUMNS];
	struct batch_figures figures;
	struct {
		int *records; /* by row of this kind */
		int count, room;
	} rows[ROW_KINDS];
	int working; /* number of the record whose rows are worked out */
	bool worked;
};

/* Columns that are not listed are text. */
static const enum pg_column_type column_types[BATCH_COLUMNS] = {
    [BATCH_PREPARE_PARTITION] = PG_COLUMN_INT,
    [BATCH_PREPARE_OFFSET] = PG_COLUMN_BIGINT,
    [BATCH_PREPARE_KEY] = PG_COLUMN_BYTEA,
    [BATCH_PREPARE_PAYLOAD] = PG_COLUMN_BYTEA,
    [BATCH_PREPARE_CHECK_MS] = PG_COLUMN_BIGINT,
    [BATCH_PREPARE_EXPIRE_MS] = PG_COLUMN_BIGINT,
    [BATCH_PREPARE_DIGEST] = PG_COLUMN_BYTEA,
    [BATCH_PREPARE_EVENT_ID] = PG_COLUMN_UUID,
    [BATCH_PREPARE_WITHIN_MS] = PG_COLUMN_BIGINT,
    [BATCH_DECISION_PARTITION] = PG_COLUMN_INT,
    [BATCH_DECISION_OFFSET] = PG_COLUMN_BIGINT,
    [BATCH_DEAD_LETTER_PARTITION] = PG_COLUMN_INT,
    [BATCH_DEAD_LETTER_OFFSET] = PG_COLUMN_BIGINT,
    [BATCH_DEAD_LETTER_KEY] = PG_COLUMN_BYTEA,
    [BATCH_DEAD_LETTER_PAYLOAD] = PG_COLUMN_BYTEA,
    [BATCH_NOTE_PARTITION] = PG_COLUMN_INT,
    [BATCH_NOTE_OFFSET] = PG_COLUMN_BIGINT,
};

struct batch *batch_create(void)
{
	struct batch *batch = xcalloc(1, sizeof *batch);

	batch->types.type = batch->names.type = PG_COLUMN_TEXT;
	for (int i = 0; i < BATCH_COLUMNS; i++)
		batch->columns[i].type = column_types[i] ? column_types[i] : PG_COLUMN_TEXT;
	return batch;
}

static void forget_ids(struct batch *batch)
{
	struct id *id, *next;

	HASH_ITER(hh, batch->ids, id, next)
	{
		HASH_DEL(batch->ids, id);
		free(id);
	}
	batch->id_count = 0;
}

void batch_again(struct batch *batch)
{
	for (int i = 0; i < BATCH_COLUMNS; i++)
		pg_column_clear(&batch->columns[i]);
	for (int i = 0; i < ROW_KINDS; i++)
		batch->rows[i].count = 0;
	batch->worked = false;
	batch->figures = (struct batch_figures){0};
}

void batch_clear(struct batch *batch)
{
	for (int i = 0; i < batch->count; i++) {
		struct record *record = &batch->records[i];

		lookback_request_finish(&record->request);
		free(record->dead_letter_topic);
		free(record->dead_letter_headers);
		free(record->dead_letter_key.bytes);
		free(record->dead_letter_payload.bytes);
	}
	forget_ids(batch);
	pg_column_clear(&batch->types);
	pg_column_clear(&batch->names);
	batch_again(batch);
	batch->count = 0;
}

static void note_row(struct batch *batch, enum row_kind kind)
{
	if (batch->rows[kind].count == batch->rows[kind].room) {
		batch->rows[kind].room = batch->rows[kind].room ? 2 * batch->rows[kind].room : 256;
		batch->rows[kind].records = xrealloc(batch->rows[kind].records,
		    (size_t)batch->rows[kind].room * sizeof *batch->rows[kind].records);
	}
	batch->rows[kind].records[batch->rows[kind].count++] = batch->working;
}

int batch_record_of(const struct batch *batch, const char *kind, int place)
{
	for (int i = 0; i < ROW_KINDS; i++)
		if (text_equal(row_kinds[i], kind) && place >= 1 && place <= batch->rows[i].count)
			return batch->rows[i].records[place - 1];
	return -1;
}

void batch_drop(struct batch *batch, int record)
{
	batch->records[record].dropped = true;
}

bool batch_is_dropped(const struct batch *batch, int record)
{
	return batch->records[record].dropped;
}

void batch_destroy(struct batch *batch)
{
	if (!batch)
		return;

	batch_clear(batch);
	pg_column_finish(&batch->types);
	pg_column_finish(&batch->names);
	for (int i = 0; i < BATCH_COLUMNS; i++)
		pg_column_finish(&batch->columns[i]);
	for (int i = 0; i < ROW_KINDS; i++)
		free(batch->rows[i].records);
	free(batch->records);
	free(batch->order);
	free(batch);
}

/* --- records -------------------------------------------------------------------------------- */

static struct record *new_record(struct batch *batch, int32_t partition, int64_t offset)
{
	assert(!batch->worked);
	if (batch->count == batch->room) {
		batch->room = batch->room ? 2 * batch->room : 256;
		batch->records =
		    xrealloc(batch->records, (size_t)batch->room * sizeof *batch->records);
	}
	batch->records[batch->count] = (struct record){.partition = partition, .offset = offset};
	return &batch->records[batch->count++];
}

static struct id *find_or_add_id(struct batch *batch, const struct lookback_request *request)
{
	owned_text char *name = lookback_wire_key(request);
	size_t length = strlen(name);
	struct id *id;

	HASH_FIND(hh, batch->ids, name, length, id);
	if (id)
		return id;
	id = xcalloc(1, sizeof *id + length + 1);
	memcpy(id->name, name, length + 1);
	HASH_ADD_KEYPTR(hh, batch->ids, id->name, length, id);
	if (batch->id_count == batch->id_room) {
		batch->id_room = batch->id_room ? 2 * batch->id_room : 256;
		batch->order =
		    xrealloc(batch->order, (size_t)batch->id_room * sizeof *batch->order);
	}
	batch->order[batch->id_count++] = id;
	id->place = batch->id_count;
	pg_column_add_text(&batch->types, request->biz_type);
	pg_column_add_text(&batch->names, request->biz_id);
	return id;
}

void batch_add(
    struct batch *batch, int32_t partition, int64_t offset, struct lookback_request *request)
{
	struct record *record = new_record(batch, partition, offset);

	record->request = *request;
	*request = (struct lookback_request){0};
	record->id = find_or_add_id(batch, &record->request);
}

void batch_add_dead_letter(struct batch *batch, int32_t partition, int64_t offset,
    const struct batch_dead_letter *dead_letter)
{
	struct record *record = new_record(batch, partition, offset);

	record->dead_letter_topic = xstrdup(dead_letter->topic);
	record->dead_letter_headers = xstrdup(dead_letter->headers);
	record->dead_letter_key = lookback_bytes_copy(dead_letter->key, dead_letter->key_length);
	record->dead_letter_payload =
	    lookback_bytes_copy(dead_letter->payload, dead_letter->payload_length);
}

int batch_records(const struct batch *batch)
{
	return batch->count;
}

int batch_id_count(const struct batch *batch)
{
	return batch->id_count;
}

struct pg_param batch_types(struct batch *batch)
{
	return pg_column_param(&batch->types);
}

struct pg_param batch_ids(struct batch *batch)
{
	return pg_column_param(&batch->names);
}

/* --- what is known --------------------------------------------------------------------------- */

void batch_know(struct batch *batch, int place, const char *kind, const char *prepared_at,
    const unsigned char *digest, const char *decision)
{
	assert(place >= 1 && place <= batch->id_count);
	struct knowledge *known = &batch->order[place - 1]->known;

	/* The first tombstone counts, and a prepare outweighs it: it was decided when it came. */
	if (text_equal(kind, "tombstone") && known->state == NOTHING) {
		known->state = TOMBSTONE;
		text_copy(known->decision, sizeof known->decision, decision);
	}
	if (!text_equal(kind, "prepare") || known->state == PREPARED)
		return; /* only the database knows what follows from a decision */
	known->state = PREPARED;
	text_copy(known->prepared_at, sizeof known->prepared_at, prepared_at);
	if (digest)
		memcpy(known->digest, digest, sizeof known->digest);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void add_duration(struct pg_column *column, int64_t ms)
{
	if (ms == NOT_SAID)
		pg_column_add_null(column);
	else
		pg_column_add_int(column, ms);
}

/* Two columns from the first one on: partition, offset. */
static void add_record_place(struct pg_column *columns, const struct record *record)
{
	pg_column_add_int(&columns[0], record->partition);
	pg_column_add_int(&columns[1], record->offset);
}

/* Type, id, partition, offset. */
static void add_record_id(struct pg_column *columns, const struct record *record)
{
	pg_column_add_text(&columns[0], record->request.biz_type);
	pg_column_add_text(&columns[1], record->request.biz_id);
	add_record_place(&columns[2], record);
}

/* Topic, key, payload, headers. */
static void add_message(struct pg_column *columns, const char *topic,
    const struct lookback_bytes *key, const struct lookback_bytes *payload, const char *headers)
{
	pg_column_add_text(&columns[0], topic);
	pg_column_add_bytes(&columns[1], key->bytes, key->length);
	pg_column_add_bytes(&columns[2], payload->bytes, payload->length);
	pg_column_add_text(&columns[3], headers);
}

/*
 * The time of the prepare that the database has. NULL: this batch has the prepare, or there is
 * none.
 */
static const char *prepared_before(const struct id *id)
{
	return id->now.state == PREPARED && !id->here ? id->now.prepared_at : NULL;
}

static void add_prepare(struct batch *batch, const struct record *record)
{
	const struct lookback_request *body = &record->request;
	struct pg_column *columns = batch->columns;
	unsigned char uuid[UUID_BYTES];

	note_row(batch, ROW_PREPARE);
	lookback_event_id(body->biz_type, body->biz_id, uuid);
	add_record_id(&columns[BATCH_PREPARE_TYPE], record);
	add_message(
	    &columns[BATCH_PREPARE_TOPIC], body->topic, &body->key, &body->payload, body->headers);
	pg_column_add_text(&columns[BATCH_PREPARE_SERVICE], body->check_service);
	pg_column_add_text(&columns[BATCH_PREPARE_URL], body->check_url);
	add_duration(&columns[BATCH_PREPARE_CHECK_MS], body->check_after_ms);
	add_duration(&columns[BATCH_PREPARE_EXPIRE_MS], body->expires_after_ms);
	pg_column_add_bytes(&columns[BATCH_PREPARE_DIGEST], body->digest, LOOKBACK_DIGEST);
	pg_column_add_bytes(&columns[BATCH_PREPARE_EVENT_ID], uuid, sizeof uuid);
	pg_column_add_text(&columns[BATCH_PREPARE_UNIQUE_KEY], body->unique_key);
	add_duration(&columns[BATCH_PREPARE_WITHIN_MS], body->within_ms);
	pg_column_add_text(&columns[BATCH_PREPARE_WHILE_PENDING], body->while_pending);
	batch->figures.prepares++;
}

static void decide_prepare(struct batch *batch, const struct record *record, const char *decision)
{
	note_row(batch, ROW_DECISION);
	add_record_id(&batch->columns[BATCH_DECISION_TYPE], record);
	pg_column_add_text(
	    &batch->columns[BATCH_DECISION_PREPARED_AT], prepared_before(record->id));
	pg_column_add_text(&batch->columns[BATCH_DECISION], decision);
	batch->figures.decisions++;
}

static void add_dead_letter(struct batch *batch, const struct record *record)
{
	note_row(batch, ROW_DEAD_LETTER);
	add_record_place(&batch->columns[BATCH_DEAD_LETTER_PARTITION], record);
	add_message(&batch->columns[BATCH_DEAD_LETTER_TOPIC], record->dead_letter_topic,
	    &record->dead_letter_key, &record->dead_letter_payload, record->dead_letter_headers);
	batch->figures.dead_letters++;
}

static void add_note(struct batch *batch, const char *op, const struct record *record,
    const char *decision, const char *kept)
{
	note_row(batch, ROW_NOTE);
	pg_column_add_text(&batch->columns[BATCH_NOTE_OP], op);
	add_record_id(&batch->columns[BATCH_NOTE_TYPE], record);
	pg_column_add_text(&batch->columns[BATCH_NOTE_PREPARED_AT], prepared_before(record->id));
	pg_column_add_text(&batch->columns[BATCH_NOTE_DECISION], decision);
	pg_column_add_text(&batch->columns[BATCH_NOTE_KEPT], kept);
}

static void note_conflict(
    struct batch *batch, const struct record *record, const char *kept, const char *refused)
{
	add_note(batch, "conflict", record, refused, kept);
	batch->figures.conflicts++;
}

static void work_prepare(struct batch *batch, struct record *record)
{
	struct id *id = record->id;
	bool was_decided = id->now.state == TOMBSTONE;

	/* The first prepare stays, since it may be decided and published already. */
	if (id->now.state == PREPARED) {
		if (memcmp(id->now.digest, record->request.digest, LOOKBACK_DIGEST) == 0)
			batch->figures.duplicates++;
		else
			note_conflict(batch, record, "prepare", "prepare");
		return;
	}
	id->now.state = PREPARED;
	id->here = true;
	memcpy(id->now.digest, record->request.digest, LOOKBACK_DIGEST);
	add_prepare(batch, record);
	/* The tombstone decides at once: the business is not called about this prepare. */
	if (was_decided)
		decide_prepare(batch, record, id->now.decision);
}

static void work_decision(struct batch *batch, struct record *record)
{
	const char *decision = lookback_op_names[record->request.op];
	struct id *id = record->id;

	switch (id->now.state) {
	/* Only the primary key of the decisions tells whether this one is the first. */
	case PREPARED:
		decide_prepare(batch, record, decision);
		return;
	case TOMBSTONE:
		if (text_equal(id->now.decision, decision))
			batch->figures.duplicates++;
		else
			note_conflict(batch, record, id->now.decision, decision);
		return;
	/* The prepare may still come: the decision is kept for it. */
	case NOTHING:
		add_note(batch, "tombstone", record, decision, NULL);
		id->now.state = TOMBSTONE;
		text_copy(id->now.decision, sizeof id->now.decision, decision);
		batch->figures.tombstones++;
		return;
	}
}

void batch_work(struct batch *batch)
{
	assert(!batch->worked);
	/* After batch_again the rows are worked out anew, from the state in the database. */
	for (int i = 0; i < batch->id_count; i++) {
		batch->order[i]->now = batch->order[i]->known;
		batch->order[i]->here = false;
	}
	for (int i = 0; i < batch->count; i++) {
		struct record *record = &batch->records[i];

		batch->working = i;
		if (record->dropped)
			continue;
		if (!record->id)
			add_dead_letter(batch, record);
		else if (record->request.op == LOOKBACK_PREPARE)
			work_prepare(batch, record);
		else
			work_decision(batch, record);
	}
	batch->worked = true;
}

struct pg_param batch_column(struct batch *batch, enum batch_column column)
{
	assert(batch->worked);
	return pg_column_param(&batch->columns[column]);
}

struct batch_figures batch_figures(const struct batch *batch)
{
	return batch->figures;
}
