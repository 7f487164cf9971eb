#pragma once
/*
 * The judge of `verify`: what a publisher's rows and the records in its topics say of each other.
 * It does no I/O; one thread owns it.
 *
 * Work goes in rounds, so that memory is bounded: each takes as many rows as fit, by id, and then
 * all records of all topics, of which it judges those of its own ids. 32 bytes a row are kept, and
 * 32 a key for the first 2 million keys when payloads carry a sequence.
 *
 *   begin, row…, rows_end, record…, missing…    then begin again behind the last id, until `last`
 */
#include "errors.h"
#include "position.h"
#include "text.h"

/* What can be wrong. A table of their names: audit_kinds. */
enum audit_kind {
	AUDIT_LOST,         /* committed, published by the publisher's log, and in no topic */
	AUDIT_PHANTOM,      /* published, and there is no such row */
	AUDIT_ALTERED,      /* topic, key, value or headers are not the row's */
	AUDIT_OUT_OF_ORDER, /* a first occurrence behind that of a later message of its key */
	AUDIT_UNEQUAL,      /* a duplicate that differs from the first: position or partition */
	AUDIT_DUPLICATE,    /* a record beyond the first of its row */
	AUDIT_KINDS
};
struct audit_kind_row {
	const char *name;  /* "out_of_order" */
	const char *title; /* "out of order" */
};
extern const struct audit_kind_row audit_kinds[AUDIT_KINDS];

enum { AUDIT_SAMPLES = 5, AUDIT_ROW_BYTES = 32 };

struct audit_verdict {
	int64_t committed;    /* rows in the table, of the range that is judged */
	int64_t acknowledged; /* of them, published by the publisher's log */
	int64_t published;    /* rows that stand in a topic */
	int64_t pending;      /* neither acknowledged nor published */
	int64_t parked;       /* not published, but kept apart, as Kafka refused them */
	int64_t scheduled;    /* not published, since their time has not come */
	int64_t skipped;      /* acknowledged, and an operator wanted them not to be published */
	int64_t before; /* not published, and from before the publisher's start, or its identity */
	int64_t found[AUDIT_KINDS];
	char *samples[AUDIT_KINDS][AUDIT_SAMPLES]; /* the first of each, NULL-filled */
	/* not judged, because the other side is gone or came later */
	int64_t expired;            /* rows: Kafka has deleted what stood there */
	int64_t older;              /* records: their partition of the table is gone */
	int64_t newer;              /* records: their row came while the table was read */
	int64_t sequences_unjudged; /* records: of keys beyond the 2 million */
};

/* What the publisher has to do with a row that no record belongs to. */
enum audit_state {
	AUDIT_PENDING,      /* its log has not come to it yet */
	AUDIT_ACKNOWLEDGED, /* its log says that it is published */
	AUDIT_PARKED,       /* Kafka refused it, or one of its key before it */
	AUDIT_SCHEDULED,    /* its deliver_at has not come, or was a moment ago */
	AUDIT_BEFORE /* the publisher starts behind it, or it was published under another identity
		      */
};

struct audit_row {
	int64_t id;
	uint64_t event;   /* digest of the event id's text */
	uint64_t content; /* of topic, key, value and headers; 0: not known */
	enum audit_state state;
};

struct audit_record {
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

struct audit;

/* memory: bytes for rows. */
struct audit *audit_create(int64_t memory);
void audit_destroy(struct audit *audit);

/* A round over ids > after. */
void audit_begin(struct audit *audit, int64_t after);
int64_t audit_capacity(const struct audit *audit);
/* In the order of id; at most capacity. */
bool audit_row(struct audit *audit, const struct audit_row *row, struct err *err) MUST_CHECK;
/* Returns the last id of the round; last: the table has no further rows. */
int64_t audit_rows_end(struct audit *audit, bool last);

enum audit_outcome {
	AUDIT_JUDGED,
	AUDIT_ELSEWHERE, /* its id is another round's */
	AUDIT_UNKNOWN    /* no row: the caller asks the table again, and tells what came of it */
};
/* Records of a partition in the order of their offsets, all of them in each round. */
enum audit_outcome audit_record(struct audit *audit, const struct audit_record *record);

/*
 * The next acknowledged row of the round that no record belongs to; *cursor begins at 0. False:
 * none is left. The caller tells what came of it.
 */
bool audit_missing(struct audit *audit, int64_t *cursor, int64_t *ret_id);
/* Is there one? Changes nothing: further records may come. */
bool audit_is_missing(const struct audit *audit);

/* Counts one; the text becomes a sample if there is room. */
void audit_found(struct audit *audit, enum audit_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Owned by the audit. The caller may count `skipped`, `expired`, `older` and `newer` in it. */
struct audit_verdict *audit_verdict(struct audit *audit);
/* Duplicates alone are not against the promise, unless the caller says so. */
bool audit_is_clean(const struct audit_verdict *verdict, bool no_duplicates);
