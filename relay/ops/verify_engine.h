#pragma once
/*
 * The engine of `verify`: compares a publisher's rows with the records in its topics. It does no
 * I/O; one thread owns it.
 *
 * Work goes in rounds, so that memory is bounded: each takes as many rows as fit, by id, and then
 * all records of all topics, of which it judges those of its own ids. It keeps 32 bytes a row, and
 * 32 a key for the first 2 million keys when payloads carry a sequence.
 *
 *   begin, row…, rows_end, record…, missing…    then begin again behind the last id, until `last`
 */
#include "errors.h"
#include "position.h"
#include "text.h"

/* Kinds of findings; verify_kinds holds their names. */
enum verify_kind {
	VERIFY_LOST,         /* committed, published by the publisher's log, and in no topic */
	VERIFY_PHANTOM,      /* published, and there is no such row */
	VERIFY_ALTERED,      /* topic, key, value or headers are not the row's */
	VERIFY_OUT_OF_ORDER, /* a first occurrence behind that of a later message of its key */
	VERIFY_UNEQUAL,      /* a duplicate that differs from the first: position or partition */
	VERIFY_DUPLICATE,    /* a record beyond the first of its row */
	VERIFY_KINDS
};
struct verify_kind_row {
	const char *name;  /* "out_of_order" */
	const char *title; /* "out of order" */
};
extern const struct verify_kind_row verify_kinds[VERIFY_KINDS];

enum { VERIFY_SAMPLES = 5, VERIFY_ROW_BYTES = 32 };

struct verify_verdict {
	int64_t committed;    /* rows in the table, of the range that is judged */
	int64_t acknowledged; /* committed, and published by the publisher's log */
	int64_t published;    /* rows that are in a topic */
	int64_t pending;      /* neither acknowledged nor published */
	int64_t parked;       /* not published, since Kafka refused them and they are parked */
	int64_t scheduled;    /* not published, since their time has not come */
	int64_t skipped;      /* acknowledged, and an operator wanted them not to be published */
	int64_t before;       /* not published: from before the publisher's start or identity */
	int64_t found[VERIFY_KINDS];
	char *samples[VERIFY_KINDS][VERIFY_SAMPLES]; /* the first of each, NULL-filled */
	/* not judged, because the other side is gone or came later */
	int64_t expired;            /* rows: Kafka has deleted their records */
	int64_t unmarked;           /* rows: their topic has headers = none */
	int64_t older;              /* records: their partition of the table is gone */
	int64_t newer;              /* records: their row came while the table was read */
	int64_t sequences_unjudged; /* records whose key is beyond the 2 million */
};

/* State of a row in the publisher's log; it explains why the row has no record. */
enum verify_state {
	VERIFY_PENDING,      /* its log has not reached it yet */
	VERIFY_ACKNOWLEDGED, /* the log records that it is published */
	VERIFY_PARKED,       /* Kafka refused it, or one of its key before it */
	VERIFY_SCHEDULED,    /* its deliver_at is in the future, or was a moment ago */
	VERIFY_BEFORE        /* it is older than the publisher's start or identity */
};

struct verify_row {
	int64_t id;
	uint64_t event;   /* digest of the event id's text */
	uint64_t content; /* digest of topic, key, value and headers; 0: not known */
	enum verify_state state;
};

struct verify_record {
	const char *topic;
	int32_t partition;
	int64_t offset;
	const void *key; /* NULL: no order */
	size_t key_length;
	struct outbox_position position;
	uint64_t event, content;
	bool has_sequence;
	int64_t sequence;
};

struct verify_engine;

/* memory: bytes for rows. */
struct verify_engine *verify_engine_create(int64_t memory);
void verify_engine_destroy(struct verify_engine *engine);

/* A round over ids > after. */
void verify_engine_begin(struct verify_engine *engine, int64_t after);
int64_t verify_engine_capacity(const struct verify_engine *engine);
/* In the order of id; at most capacity. */
bool verify_engine_row(
    struct verify_engine *engine, const struct verify_row *row, struct err *err) MUST_CHECK;
/* Returns the last id of the round; last: the table has no further rows. */
int64_t verify_engine_rows_end(struct verify_engine *engine, bool last);

enum verify_outcome {
	VERIFY_JUDGED,
	VERIFY_ELSEWHERE, /* its id belongs to another round */
	VERIFY_UNKNOWN    /* no row: the caller queries the table again and reports the result */
};
/* Records of a partition in the order of their offsets, all of them in each round. */
enum verify_outcome verify_engine_record(
    struct verify_engine *engine, const struct verify_record *record);

/*
 * Returns the id of the next acknowledged row of the round that has no record; *cursor begins at 0.
 * False: none is left. The caller looks up the rows with this id and takes the missing ones.
 */
bool verify_engine_missing(struct verify_engine *engine, int64_t *cursor, int64_t *ret_id);
/*
 * Is the row with this id and event an acknowledged one without a record? True once for each row:
 * the caller reports the reason. Rows that share the id are other rows.
 */
bool verify_engine_take_missing(struct verify_engine *engine, int64_t id, uint64_t event);
/* Is there an acknowledged row without a record? Changes nothing: further records may come. */
bool verify_engine_is_missing(const struct verify_engine *engine);

/* Counts one; the text becomes a sample if there is room. */
void verify_engine_found(struct verify_engine *engine, enum verify_kind kind, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* Owned by the engine. The caller may count `skipped`, `expired`, `unmarked`, `older` and `newer`
 * in it. */
struct verify_verdict *verify_engine_verdict(struct verify_engine *engine);
/* Duplicates alone do not break the promise (at least once), unless the caller forbids them. */
bool verify_is_clean(const struct verify_verdict *verdict, bool no_duplicates);
