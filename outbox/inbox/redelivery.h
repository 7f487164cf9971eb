#pragma once
/*
 * Redelivery: sends messages on, to a retry topic, where they wait for another try, or to the
 * dead-letter topic. The record that is sent has the key, the payload, the headers and the
 * partitioning of its message, and headers of its own:
 *
 *   outbox-group             the group that it is for; inboxes of other groups skip it
 *   outbox-origin-topic, -partition, -offset, -time      of the first record of the message
 *   outbox-origin-position   its outbox-position, which holds in its own partition only
 *   outbox-attempts          number of tries, in all topics
 *   outbox-reason            why the message was sent on
 *   outbox-leg               distinguishes this record from its message where ids are compared
 *   outbox-retry-at          when to try again, in milliseconds since 1970; not in dead letters
 *
 * A record is sent until it is acknowledged. After a crash its topic may have it twice.
 * Owned by one thread; nothing blocks but redelivery_destroy.
 */
#include "item.h"
#include "kafka_settings.h"

struct redelivery;

/* group and kafka must outlive the result. It connects with the first record. */
struct redelivery *redelivery_create(const struct kafka_settings *kafka, const char *group);
/* NULL is fine. Records in flight may have been written. */
void redelivery_destroy(struct redelivery *redelivery);

enum {
	REDELIVERY_DEAD_LETTER = -1,
	/* Sends a dead letter back to the topic of its message, for this group alone. */
	REDELIVERY_TO_ORIGIN = -2,
};

/*
 * The message stays where it is, and valid, until redelivery_take gives it back. topic outlives it.
 * wait_ms: until the next try; or one of the above.
 */
void redelivery_send(
    struct redelivery *redelivery, struct item *item, const char *topic, int64_t wait_ms);

/* Sends records and reads acknowledgements; returns when to call it again (clock_ms). */
int64_t redelivery_step(struct redelivery *redelivery, int64_t now_ms);
/* Becomes readable when there is something to do; -1: no descriptor now. */
int redelivery_fd(const struct redelivery *redelivery);
/*
 * Returns an item whose record is acknowledged (*ret_refused is false), or one that Kafka refuses
 * for good (*ret_why says why). NULL: none.
 */
struct item *redelivery_take(struct redelivery *redelivery, bool *ret_refused, struct err *ret_why);
size_t redelivery_count(const struct redelivery *redelivery); /* items not yet given back */
/* Forgets all items. */
void redelivery_drop(struct redelivery *redelivery);

/* Is it a header of redelivery, which the application did not give to the message? */
bool redelivery_is_own_header(const char *name);
