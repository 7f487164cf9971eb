#pragma once
/*
 * The table's side of `verify`: rows, and their state in the publisher's log. Blocking; one thread.
 * No statement stays open while Kafka is read.
 */
#include "database.h"
#include "progress_watch.h"
#include "verify_engine.h"

struct verify_table;

/* Rows by created_at, without the end; INT64_MIN and INT64_MAX: all. */
struct verify_range {
	int64_t from_us, to_us;
};

/*
 * Notes which rows are published by the current log: rows that are read later are judged by this
 * state. ERR_REJECT: there is no such publisher. pg and postgres must outlive it.
 */
struct verify_table *verify_table_open(struct pg *pg, const struct postgres_settings *postgres,
    const struct publisher_settings *publisher, const struct verify_range *range,
    const struct progress_watch *watch, struct err *err);
void verify_table_close(struct verify_table *table);
/* The publisher's identity, a uuid as text; valid as long as the table. */
const char *verify_table_identity(const struct verify_table *table);

/*
 * Reads one round's rows, those behind `after`, into the engine, and calls topic with the topic of
 * each row. Returns the round's last id; *ret_last: there are no further rows.
 */
bool verify_table_read(struct verify_table *table, struct verify_engine *engine, int64_t after,
    void (*topic)(void *context, const char *name, size_t length), void *context, int64_t *ret_end,
    bool *ret_last, struct err *err) MUST_CHECK;

/* The topics that the log names, and those of the newest rows. */
bool verify_table_topics(struct verify_table *table,
    void (*topic)(void *context, const char *name, size_t length), void *context,
    struct err *err) MUST_CHECK;

/* One row looked up by id. */
struct verify_found_row {
	int64_t id;
	uint64_t event;                              /* as in struct verify_row */
	const char *topic;                           /* not ended by NUL */
	const void *key;                             /* NULL: null */
	int32_t topic_length, key_length, partition; /* -1: none is asked for */
	bool in_range;
	bool skipped; /* an operator asked for it to be left out */
};
/* Calls see for each of these rows that exists now, in no order. */
bool verify_table_find(struct verify_table *table, const int64_t *ids, int count,
    void (*see)(void *context, const struct verify_found_row *row), void *context,
    struct err *err) MUST_CHECK;

/*
 * Can the table still hold the row of a record with this id and timestamp? Rows leave with their
 * partition, by the time when they were written.
 */
bool verify_table_keeps(const struct verify_table *table, int64_t id, int64_t timestamp_ms);

/* Digests as in struct verify_row, computed from a row or from a record. */
uint64_t verify_event_digest(const char *text, size_t length);
uint64_t verify_content_digest(const char *topic, size_t topic_length, const void *key,
    size_t key_length, const void *payload, size_t payload_length);
