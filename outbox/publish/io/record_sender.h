#pragma once
/*
 * Between a stream and Kafka: creates producers, and replaces one when the stream wants that, sends
 * records, takes reports, and runs transactions of Kafka if the publisher is configured for them.
 * Internal to outbox/publish; owned by the shard worker's thread; nothing blocks except
 * record_sender_knows and the end of a producer (producer_destroy).
 */
#include "publisher_settings.h"
#include "publish_metrics.h"
#include "stream.h"

struct record_sender;

/*
 * Checks the properties by making a first producer. All pointers must outlive it. identity: the
 * publisher's, for positions and for the id of its transactions; known once the shard was taken.
 * drains: the records are those of a drain, so batches may wait until they are full.
 */
struct record_sender *record_sender_create(const struct publisher_settings *publisher, int shard,
    bool drains, const char *identity, struct stream *stream, struct publish_metrics *metrics,
    struct err *err);
/* Ends the producer first: afterwards it no longer uses the memory of any record. */
void record_sender_destroy(struct record_sender *sender);

/* The shard is lost: another owner has rightly fenced our producer. */
void record_sender_forget(struct record_sender *sender);

/* Does one turn. True: there may be more to do at once. */
bool record_sender_step(struct record_sender *sender, int64_t now);
/*
 * May records go to this many partitions? If that is not known, asks the brokers and waits for at
 * most 200 ms: once for each `now`, and once a second while they do not answer.
 */
bool record_sender_knows(
    struct record_sender *sender, const char *topic, int32_t partitions, int64_t now);
/* Closes a topic that the caller no longer uses. */
void record_sender_close_topic(struct record_sender *sender, const char *topic);
/* Readable when there are reports, either of them; -1: there is no such producer now. */
void record_sender_fds(const struct record_sender *sender, int ret_fds[2]);
/* When to call again if nothing happens. */
int64_t record_sender_wait(const struct record_sender *sender);
/* Writes librdkafka's figures into the metrics. */
void record_sender_note(struct record_sender *sender);
/* Why the brokers cannot be reached now; "" if they can, or if that is unknown. */
const char *record_sender_error(struct record_sender *sender);
