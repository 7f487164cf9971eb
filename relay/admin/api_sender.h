#pragma once
/*
 * Records of the interface on their way to one Kafka cluster, by a thread with an idempotent
 * producer of its own. Internal to relay/admin.
 *
 * Each record has one outcome: the partition and offset that the broker acknowledged (acks=all), or
 * that it was given up. Records of one key are sent in the order in which they were put.
 *
 * A broken producer is replaced by a new one that sends again what was not acknowledged. So a
 * record may come twice, which the look-back takes as once. If Kafka refuses a record for good,
 * another record of its batch may be the cause: the record is sent once more, alone, before its
 * sender receives the refusal.
 */
#include "topic_metadata.h"
#include "config.h"

struct api_sender;

struct api_outcome {
	/*
	 * NULL: acknowledged. Else "no_acknowledgement" or "no_topic": not acknowledged in time,
	 * and the record may be in the topic all the same; "too_large" or "refused_by_broker": for
	 * good.
	 */
	const char *code;
	const char *text; /* for people; "" when acknowledged. Valid during the call. */
	int32_t partition;
	int64_t offset;
};

struct api_record {
	const char *topic;  /* lives as long as the sender */
	char *key, *value;  /* taken over; to be freed by free */
	size_t length;      /* of the value */
	int64_t give_up_ms; /* on clock_ms */
	/* Called once, by the sender's thread, and must not block. */
	void (*done)(void *context, const struct api_outcome *outcome);
	void *context;
};

/* kafka and metadata outlive it; metadata is that of the same cluster. */
struct api_sender *api_sender_start(
    const struct kafka_settings *kafka, struct topic_metadata *metadata, struct err *err);
/* Waits until every record has its outcome, which is no longer than until it is given up. */
void api_sender_stop(struct api_sender *sender); /* NULL is fine */

/* Any thread, not after api_sender_stop. */
void api_sender_put(struct api_sender *sender, const struct api_record *record);
