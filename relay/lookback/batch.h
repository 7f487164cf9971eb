#pragma once
/*
 * The core of the reader, without I/O: works out the effects of a batch of records from the rows
 * that the database has of their ids. One thread owns it.
 *
 * Use: add every record in the order of each partition; query the database for the rows of
 * batch_types and batch_ids (outbox.lookback_known); batch_know for each row; batch_work; hand
 * batch_columns to outbox.lookback_apply; batch_clear.
 *
 *   known of the id | prepare                           | commit or rollback
 *   nothing         | prepare                           | tombstone
 *   a tombstone     | prepare, and the decision of it   | the same: nothing; the other: conflict
 *   its prepare     | the same: nothing; else: conflict | decision, as which it wins, or is noted
 *
 * Only the database can tell whether a decision is the first of its prepare: others decide as well.
 */
#include "pg_column.h"
#include "wire.h"

struct batch;

struct batch *batch_create(void);
void batch_destroy(struct batch *batch); /* NULL is fine */
void batch_clear(struct batch *batch);

/* Takes over what the request owns. */
void batch_add(
    struct batch *batch, int32_t partition, int64_t offset, struct lookback_request *request);

/* A record that goes to a topic as it is; everything is copied. Key, payload and headers may be
 * NULL. */
struct batch_dead_letter {
	const char *topic;
	const char *key, *payload;
	size_t key_length, payload_length;
	const char *headers; /* JSON */
};
void batch_add_dead_letter(struct batch *batch, int32_t partition, int64_t offset,
    const struct batch_dead_letter *dead_letter);

int batch_records(const struct batch *batch); /* with dead letters and dropped ones */

/*
 * For a batch that the tables refused. batch_record_of returns the record that a row came from:
 * kind as outbox.lookback_refused names it, place from 1 on; -1: there is no such row. batch_drop
 * removes the rows of a record. batch_again forgets all rows and keeps the state of the ids: the
 * caller calls batch_work again.
 */
int batch_record_of(const struct batch *batch, const char *kind, int place);
void batch_drop(struct batch *batch, int record);
bool batch_is_dropped(const struct batch *batch, int record);
void batch_again(struct batch *batch);

/* The different ids, two arrays of text; valid until the next change. */
int batch_id_count(const struct batch *batch);
struct pg_param batch_types(struct batch *batch);
struct pg_param batch_ids(struct batch *batch);

/*
 * A row of outbox.lookback_known: place counts from 1; kind is 'prepare', 'decision' or
 * 'tombstone'; digest is NULL except for a prepare, and decision is NULL for a prepare. Rows of one
 * id come in the order of prepared_at.
 */
void batch_know(struct batch *batch, int place, const char *kind, const char *prepared_at,
    const unsigned char *digest, const char *decision);

/* Works out the rows. */
void batch_work(struct batch *batch);

/*
 * The columns of the rows, in the order of the parameters of outbox.lookback_apply from the
 * prepares on: those of prepares, of decisions, of dead letters, and of notes (tombstones and
 * conflicts).
 */
enum batch_column {
	BATCH_PREPARE_TYPE,
	BATCH_PREPARE_ID,
	BATCH_PREPARE_PARTITION,
	BATCH_PREPARE_OFFSET,
	BATCH_PREPARE_TOPIC,
	BATCH_PREPARE_KEY,
	BATCH_PREPARE_PAYLOAD,
	BATCH_PREPARE_HEADERS,
	BATCH_PREPARE_SERVICE,
	BATCH_PREPARE_URL,
	BATCH_PREPARE_CHECK_MS,
	BATCH_PREPARE_EXPIRE_MS,
	BATCH_PREPARE_DIGEST,
	BATCH_PREPARE_EVENT_ID,
	BATCH_PREPARE_UNIQUE_KEY,
	BATCH_PREPARE_WITHIN_MS,
	BATCH_PREPARE_WHILE_PENDING,
	BATCH_DECISION_TYPE,
	BATCH_DECISION_ID,
	BATCH_DECISION_PARTITION,
	BATCH_DECISION_OFFSET,
	BATCH_DECISION_PREPARED_AT,
	BATCH_DECISION,
	BATCH_DEAD_LETTER_PARTITION,
	BATCH_DEAD_LETTER_OFFSET,
	BATCH_DEAD_LETTER_TOPIC,
	BATCH_DEAD_LETTER_KEY,
	BATCH_DEAD_LETTER_PAYLOAD,
	BATCH_DEAD_LETTER_HEADERS,
	BATCH_NOTE_OP,
	BATCH_NOTE_TYPE,
	BATCH_NOTE_ID,
	BATCH_NOTE_PARTITION,
	BATCH_NOTE_OFFSET,
	BATCH_NOTE_PREPARED_AT,
	BATCH_NOTE_DECISION,
	BATCH_NOTE_KEPT,
	BATCH_COLUMNS
};
/* Arrays, valid until batch_clear; times are of type text. */
struct pg_param batch_column(struct batch *batch, enum batch_column column);

/* The counts of the batch that batch_work worked out. */
struct batch_figures {
	int prepares, duplicates, conflicts, tombstones, decisions, dead_letters;
};
struct batch_figures batch_figures(const struct batch *batch);
