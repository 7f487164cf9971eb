#pragma once
/*
 * Letters: copies of messages that are sent on, to a topic of dead letters or to one where they
 * wait for another try. A letter has the key, the payload, the headers and the partitioning of its
 * message, and headers of its own:
 *
 *   outbox-group             the group that it is for; other groups' inboxes skip it
 *   outbox-origin-topic, -partition, -offset, -time      of the first record, with all its letters
 *   outbox-origin-position   its outbox-position, which holds in its own partition only
 *   outbox-attempts          how often it was tried, all together
 *   outbox-reason            why it is one
 *   outbox-leg               distinguishes this letter from its message where ids are compared
 *   outbox-retry-at          when to try it again, in milliseconds since 1970; no dead letter has
 * it
 *
 * A letter is sent until it is acknowledged, and may stand twice in its topic after a crash.
 * Owned by one thread; nothing blocks but letters_destroy.
 */
#include "config.h"
#include "item.h"

struct letters;

/* group, kafka: outlive it. Nothing is connected until the first letter. */
struct letters *letters_create(const struct config_kafka *kafka, const char *group);
/* NULL is fine. What is under way may have been written. */
void letters_destroy(struct letters *letters);

enum {
	LETTER_DEAD = -1,
	/* Of a dead letter: back to where its message was first, as a message for this group. */
	LETTER_BACK = -2,
};

/*
 * The message stays where it is, and valid, until letters_take gives it back. topic outlives it.
 * wait_ms: until the next try; or one of the above.
 */
void letters_send(struct letters *letters, struct item *item, const char *topic, int64_t wait_ms);

/* Moves on what can be; returns when to come again at the latest (clock_ms). */
int64_t letters_step(struct letters *letters, int64_t now_ms);
/* Readable when there is something to do; -1: not now. */
int letters_fd(const struct letters *letters);
/*
 * One that is acknowledged; *ret_refused false. Or that Kafka refuses for good, and why: *ret_why.
 * NULL: none.
 */
struct item *letters_take(struct letters *letters, bool *ret_refused, struct err *ret_why);
size_t letters_count(const struct letters *letters); /* not given back */
/* Forgets all of them. */
void letters_drop(struct letters *letters);

/* Is the header one of a letter, so that the message's own is not what the application gave? */
bool letters_is_own_header(const char *name);
