#pragma once
/*
 * Between a stream and Kafka: a producer that is made anew when the stream wants it, records out,
 * reports in, transactions of Kafka when the publisher wants them. Internal to outbox/publish;
 * owned by the shard_worker's thread; nothing blocks but delivery_knows and the end of a producer
 * (producer_destroy).
 */
#include "publisher_settings.h"
#include "publish_metrics.h"
#include "stream.h"

struct delivery;

/*
 * Checks the properties by making a first producer. All pointers must outlive it. identity: of the
 * publisher, for positions and for the id of its transactions; known once the shard was taken.
 */
struct delivery *delivery_create(const struct publisher_settings *publisher, int shard,
    const char *identity, struct stream *stream, struct publish_metrics *metrics, struct err *err);
/* Ends the producer first: from here on no record's memory is in use by it. */
void delivery_destroy(struct delivery *delivery);

/* The shard is lost: another owner had a right to fence our producer. */
void delivery_forget(struct delivery *delivery);

/* One turn. True: there may be more to do at once. */
bool delivery_step(struct delivery *delivery, int64_t now);
/*
 * May records go to this many partitions? When that is not known it asks the brokers and waits for
 * at most 200 ms: once for each `now`, and once a second while they do not answer.
 */
bool delivery_knows(struct delivery *delivery, const char *topic, int32_t partitions, int64_t now);
/* Closes a topic that the caller no longer uses. */
void delivery_close_topic(struct delivery *delivery, const char *topic);
/* Readable when there are reports; -1: no producer now. */
int delivery_fd(const struct delivery *delivery);
/* When to call again if nothing happens. */
int64_t delivery_wait(const struct delivery *delivery);
/* Writes librdkafka's figures into the metrics. */
void delivery_note(struct delivery *delivery);
/* Why the brokers cannot be reached now; "" if they can, or it is not known. */
const char *delivery_error(struct delivery *delivery);
