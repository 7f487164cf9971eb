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
 * How much of the record is kept: what the message table does not take of it (a key that is too
 * long, more headers than it holds) is left out, and dead-letter-left-out says so. LETTER_BARE
 * leaves all of it out, for a record that the table refused although it was cut.
 */
enum letter_extent { LETTER_WHOLE, LETTER_BARE };

/* headers: malloc'ed, the caller frees; key and payload point into the record. */
struct batch_letter letter_of(const struct consumer_record *record, const char *topic,
    const struct refusal *refusal, enum letter_extent extent, char **ret_headers);
