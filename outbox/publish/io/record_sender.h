#pragma once
/*
 * Between a stream and Kafka: a producer that is made anew when the stream wants it, records out,
 * reports in, transactions of Kafka when the publisher wants them. Internal to outbox/publish;
 * owned by the shard_worker's thread; nothing blocks but record_sender_knows and the end of a
 * producer (producer_destroy).
 */
#include "publisher_settings.h"
#include "publish_metrics.h"
#include "stream.h"

struct record_sender;

/*
 * Checks the properties by making a first producer. All pointers must outlive it. identity: of the
 * publisher, for positions and for the id of its transactions; known once the shard was taken.
 */
struct record_sender *record_sender_create(const struct publisher_settings *publisher, int shard,
    const char *identity, struct stream *stream, struct publish_metrics *metrics, struct err *err);
/* Ends the producer first: from here on no record's memory is in use by it. */
void record_sender_destroy(struct record_sender *sender);

/* The shard is lost: another owner had a right to fence our producer. */
void record_sender_forget(struct record_sender *sender);

/* One turn. True: there may be more to do at once. */
bool record_sender_step(struct record_sender *sender, int64_t now);
/*
 * May records go to this many partitions? When that is not known it asks the brokers and waits for
 * at most 200 ms: once for each `now`, and once a second while they do not answer.
 */
bool record_sender_knows(
    struct record_sender *sender, const char *topic, int32_t partitions, int64_t now);
/* Closes a topic that the caller no longer uses. */
void record_sender_close_topic(struct record_sender *sender, const char *topic);
/* Readable when there are reports; -1: no producer now. */
int record_sender_fd(const struct record_sender *sender);
/* When to call again if nothing happens. */
int64_t record_sender_wait(const struct record_sender *sender);
/* Writes librdkafka's figures into the metrics. */
void record_sender_note(struct record_sender *sender);
/* Why the brokers cannot be reached now; "" if they can, or it is not known. */
const char *record_sender_error(struct record_sender *sender);
