#include "batch.h"

#include <assert.h>
#include <string.h>
#include <uthash.h>
#include "cleanup.h"
#include "message.h"

enum { STAMP = 64, NOT_SAID = -1 };

enum id_state { NOTHING, TOMBSTONE, PREPARED };

struct id {
	UT_hash_handle hh;
	int place;
	enum id_state state;
	bool here; /* prepared by this batch */
	char prepared_at[STAMP];
	unsigned char digest[LOOKBACK_DIGEST];
	char decision[16];
	char name[];
};

struct record {
	int32_t partition;
	int64_t offset;
	struct id *id; /* NULL: a letter */
	struct lookback_request request;
	char *letter_topic, *letter_headers;
	struct lookback_bytes letter_key, letter_payload;
};

struct batch {
	struct record *records;
	int count, room;
	struct id *ids;    /* by name */
	struct id **order; /* by place */
	int id_count, id_room;
	struct pg_array types, names;
	struct pg_array columns[BATCH_COLUMNS];
	struct batch_figures figures;
	bool worked;
};

struct batch *batch_create(void)
{
	return xcalloc(1, sizeof(struct batch));
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

void batch_clear(struct batch *batch)
{
	for (int i = 0; i < batch->count; i++) {
		struct record *record = &batch->records[i];

		lookback_request_finish(&record->request);
		free(record->letter_topic);
		free(record->letter_headers);
		free(record->letter_key.bytes);
		free(record->letter_payload.bytes);
	}
	forget_ids(batch);
	pg_array_clear(&batch->types);
	pg_array_clear(&batch->names);
	for (int i = 0; i < BATCH_COLUMNS; i++)
		pg_array_clear(&batch->columns[i]);
	batch->count = 0;
	batch->worked = false;
	batch->figures = (struct batch_figures){0};
}

void batch_destroy(struct batch *batch)
{
	if (!batch)
		return;
	batch_clear(batch);
	pg_array_finish(&batch->types);
	pg_array_finish(&batch->names);
	for (int i = 0; i < BATCH_COLUMNS; i++)
		pg_array_finish(&batch->columns[i]);
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

static struct id *find_id(struct batch *batch, const struct lookback_request *request)
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
	pg_array_add_text(&batch->types, request->biz_type);
	pg_array_add_text(&batch->names, request->biz_id);
	return id;
}

void batch_add(
    struct batch *batch, int32_t partition, int64_t offset, struct lookback_request *request)
{
	struct record *record = new_record(batch, partition, offset);

	record->request = *request;
	*request = (struct lookback_request){0};
	record->id = find_id(batch, &record->request);
}

void batch_add_letter(
    struct batch *batch, int32_t partition, int64_t offset, const struct batch_letter *letter)
{
	struct record *record = new_record(batch, partition, offset);

	record->letter_topic = xstrdup(letter->topic);
	record->letter_headers = xstrdup(letter->headers);
	record->letter_key = lookback_bytes_copy(letter->key, letter->key_length);
	record->letter_payload = lookback_bytes_copy(letter->payload, letter->payload_length);
}

int batch_records(const struct batch *batch)
{
	return batch->count;
}

int batch_id_count(const struct batch *batch)
{
	return batch->id_count;
}

const char *batch_types(struct batch *batch)
{
	return pg_array_end(&batch->types);
}

const char *batch_ids(struct batch *batch)
{
	return pg_array_end(&batch->names);
}

/* --- what is known --------------------------------------------------------------------------- */

void batch_know(struct batch *batch, int place, const char *kind, const char *prepared_at,
    const unsigned char *digest, const char *decision)
{
	assert(place >= 1 && place <= batch->id_count);
	struct id *id = batch->order[place - 1];

	if (text_equal(kind, "tombstone") && id->state == NOTHING) {
		id->state = TOMBSTONE;
		text_copy(id->decision, sizeof id->decision, decision);
	}
	if (!text_equal(kind, "prepare") || id->state == PREPARED)
		return; /* what comes of a decision is the database's to say */
	id->state = PREPARED;
	text_copy(id->prepared_at, sizeof id->prepared_at, prepared_at);
	if (digest)
		memcpy(id->digest, digest, sizeof id->digest);
}

/* --- rows ------------------------------------------------------------------------------------ */

struct row {
	const char *op, *decision, *kept;
	const struct lookback_request *body; /* of a prepare; NULL: none */
};

static void add_column_text(struct batch *batch, enum batch_column column, const char *text)
{
	pg_array_add_text(&batch->columns[column], text);
}

static void add_duration(struct batch *batch, enum batch_column column, int64_t ms)
{
	if (ms == NOT_SAID)
		pg_array_add_text(&batch->columns[column], NULL);
	else
		pg_array_add_int(&batch->columns[column], ms);
}

static void add_body(struct batch *batch, const struct lookback_request *body)
{
	static const struct lookback_request nothing = {
	    .check_after_ms = NOT_SAID, .expires_after_ms = NOT_SAID};
	unsigned char uuid[LOOKBACK_UUID];
	char text[MESSAGE_UUID_TEXT + 1] = "";

	if (body) {
		lookback_event_id(body->biz_type, body->biz_id, uuid);
		message_uuid_text((const char *)uuid, text);
	}
	pg_array_add_bytes(
	    &batch->columns[BATCH_DIGEST], body ? body->digest : NULL, LOOKBACK_DIGEST);
	add_column_text(batch, BATCH_EVENT_ID, body ? text : NULL);
	if (!body)
		body = &nothing;
	add_column_text(batch, BATCH_SERVICE, body->check_service);
	add_column_text(batch, BATCH_URL, body->check_url);
	add_duration(batch, BATCH_CHECK_MS, body->check_after_ms);
	add_duration(batch, BATCH_EXPIRE_MS, body->expires_after_ms);
}

static void add_message(struct batch *batch, const char *topic, const struct lookback_bytes *key,
    const struct lookback_bytes *payload, const char *headers)
{
	add_column_text(batch, BATCH_TOPIC, topic);
	pg_array_add_bytes(&batch->columns[BATCH_KEY], key->bytes, key->length);
	pg_array_add_bytes(&batch->columns[BATCH_PAYLOAD], payload->bytes, payload->length);
	add_column_text(batch, BATCH_HEADERS, headers);
}

static void add_place(struct batch *batch, const char *op, const struct record *record)
{
	add_column_text(batch, BATCH_OP, op);
	pg_array_add_int(&batch->columns[BATCH_PARTITION], record->partition);
	pg_array_add_int(&batch->columns[BATCH_OFFSET], record->offset);
}

static void add_row(struct batch *batch, const struct record *record, const struct row *row)
{
	static const struct lookback_bytes none = {0};
	const struct id *id = record->id;
	bool known = id->state == PREPARED && !id->here;

	add_place(batch, row->op, record);
	add_column_text(batch, BATCH_TYPE, record->request.biz_type);
	add_column_text(batch, BATCH_ID, record->request.biz_id);
	if (row->body)
		add_message(batch, row->body->topic, &row->body->key, &row->body->payload,
		    row->body->headers);
	else
		add_message(batch, NULL, &none, &none, NULL);
	add_body(batch, row->body);
	add_column_text(batch, BATCH_PREPARED_AT, known ? id->prepared_at : NULL);
	add_column_text(batch, BATCH_DECISION, row->decision);
	add_column_text(batch, BATCH_KEPT, row->kept);
}

static void add_letter_row(struct batch *batch, const struct record *record)
{
	add_place(batch, "letter", record);
	add_column_text(batch, BATCH_TYPE, NULL);
	add_column_text(batch, BATCH_ID, NULL);
	add_message(batch, record->letter_topic, &record->letter_key, &record->letter_payload,
	    record->letter_headers);
	add_body(batch, NULL);
	add_column_text(batch, BATCH_PREPARED_AT, NULL);
	add_column_text(batch, BATCH_DECISION, NULL);
	add_column_text(batch, BATCH_KEPT, NULL);
	batch->figures.letters++;
}

static void note_conflict(
    struct batch *batch, const struct record *record, const char *kept, const char *refused)
{
	add_row(batch, record, &(const struct row){"conflict", refused, kept, NULL});
	batch->figures.conflicts++;
}

static void decide(struct batch *batch, const struct record *record, const char *decision)
{
	add_row(batch, record, &(const struct row){"decision", decision, NULL, NULL});
	batch->figures.decisions++;
}

static void work_prepare(struct batch *batch, struct record *record)
{
	struct id *id = record->id;
	bool was_decided = id->state == TOMBSTONE;

	if (id->state == PREPARED) {
		if (memcmp(id->digest, record->request.digest, LOOKBACK_DIGEST) == 0)
			batch->figures.duplicates++;
		else
			note_conflict(batch, record, "prepare", "prepare");
		return;
	}
	id->state = PREPARED;
	id->here = true;
	memcpy(id->digest, record->request.digest, LOOKBACK_DIGEST);
	add_row(batch, record, &(const struct row){"prepare", NULL, NULL, &record->request});
	batch->figures.prepares++;
	if (was_decided)
		decide(batch, record, id->decision);
}

static void work_decision(struct batch *batch, struct record *record)
{
	const char *decision = lookback_op_names[record->request.op];
	struct id *id = record->id;

	switch (id->state) {
	case PREPARED:
		decide(batch, record, decision);
		return;
	case TOMBSTONE:
		if (text_equal(id->decision, decision))
			batch->figures.duplicates++;
		else
			note_conflict(batch, record, id->decision, decision);
		return;
	case NOTHING:
		add_row(batch, record, &(const struct row){"tombstone", decision, NULL, NULL});
		id->state = TOMBSTONE;
		text_copy(id->decision, sizeof id->decision, decision);
		batch->figures.tombstones++;
		return;
	}
}

void batch_work(struct batch *batch)
{
	assert(!batch->worked);
	for (int i = 0; i < batch->count; i++) {
		struct record *record = &batch->records[i];

		if (!record->id)
			add_letter_row(batch, record);
		else if (record->request.op == LOOKBACK_PREPARE)
			work_prepare(batch, record);
		else
			work_decision(batch, record);
	}
	batch->worked = true;
}

const char *batch_column(struct batch *batch, enum batch_column column)
{
	assert(batch->worked);
	return pg_array_end(&batch->columns[column]);
}

struct batch_figures batch_figures(const struct batch *batch)
{
	return batch->figures;
}
