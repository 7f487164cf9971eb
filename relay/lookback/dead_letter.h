#pragma once
/*
 * A dead letter: a record of the look-back topic that cannot be taken, as the message that goes to
 * the dead-letter topic in its place. Key and payload are the record's; its headers say why and
 * from where, ahead of the record's own: dead-letter-reason (a stable code), dead-letter-error (for
 * people), dead-letter-topic, dead-letter-partition, dead-letter-offset.
 *
 * No I/O; any thread.
 */
#include "batch.h"
#include "consumer.h"

/*
 * The dead letters of a record. Usually one dead letter carries the whole record. One row of the
 * message table takes a key of at most 8,192 bytes, a payload of at most payload_most, and headers
 * of at most 32,768 bytes whose names are text. The first dead letter leaves out a part that does
 * not fit and names it in dead-letter-left-out. Further dead letters carry that part: each has
 * dead-letter-part ("2/4"), dead-letter-holds (key, headers or payload) and a piece as its payload;
 * headers are JSON pairs of name and value. The pieces joined in their order are the whole part.
 *
 * DEAD_LETTER_BARE: the table refused even those, and nothing of the content is kept.
 */
enum dead_letter_extent { DEAD_LETTER_WHOLE, DEAD_LETTER_BARE };

/* Their texts are their own; dead_letters_finish frees them. */
struct dead_letters {
	struct batch_dead_letter *list;
	int count;
};
struct dead_letters dead_letters_of(const struct consumer_record *record, const char *topic,
    const struct refusal *refusal, enum dead_letter_extent extent, int64_t payload_most);
void dead_letters_finish(struct dead_letters *dead_letters);
