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
 * The letters of a record. One carries all of it, as a rule. What the message table does not take
 * in one row (a key of more than 8,192 bytes, more headers than 32,768 bytes or names that are no
 * text, a payload of more than payload_most) is left out of the first, whose dead-letter-left-out
 * says so, and follows in further ones: each has dead-letter-part ("2/4"), dead-letter-holds (key,
 * headers or payload) and a part of it as its payload, the headers as JSON pairs of name and value.
 * Joined in their order they are the whole.
 *
 * LETTER_BARE: the table refused even those, and nothing of the content is kept.
 */
enum letter_extent { LETTER_WHOLE, LETTER_BARE };

/* Their texts are their own; letters_finish frees them. */
struct letters {
	struct batch_letter *list;
	int count;
};
struct letters letters_of(const struct consumer_record *record, const char *topic,
    const struct refusal *refusal, enum letter_extent extent, int64_t payload_most);
void letters_finish(struct letters *letters);
