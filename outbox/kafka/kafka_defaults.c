#include "kafka_defaults.h"

#include <stddef.h>

const struct kafka_default kafka_defaults[] = {
    {"client.id", "outbox-relay", KAFKA_DEFAULT_ALL, "The name in the broker's logs and quotas."},
    {"socket.nagle.disable", "true", KAFKA_DEFAULT_ALL, "A request waits for no further one."},
    {"reconnect.backoff.max.ms", "1000", KAFKA_DEFAULT_ALL,
	"A broker that is back is seen within a second, as with the Java client."},
    {"allow.auto.create.topics", "false", KAFKA_DEFAULT_ALL,
	"A misspelt topic is reported and waited for, not created with the broker's defaults."},
    /* the section's debug is added to this one, which refuse_new_epoch needs */
    {"debug", "eos", KAFKA_DEFAULT_PRODUCER,
	"The relay sees a new epoch of the idempotent producer coming. Other words are added."},
    {"enable.idempotence", "true", KAFKA_DEFAULT_PRODUCER,
	"A retry neither doubles nor reorders records."},
    {"enable.gapless.guarantee", "true", KAFKA_DEFAULT_PRODUCER,
	"The followers of a refused record do not pass it."},
    {"acks", "all", KAFKA_DEFAULT_PRODUCER,
	"A record counts as published when every in-sync replica has it."},
    {"message.timeout.ms", "0", KAFKA_DEFAULT_PRODUCER, "A record is never given up."},
    {"compression.codec", "none", KAFKA_DEFAULT_PRODUCER,
	"Every client reads such records without a plug-in (docs/decisions/codec.md)."},
    {"linger.ms", "0", KAFKA_DEFAULT_PRODUCER,
	"A record goes out at once. Under load batches fill while others are under way."},
    {"message.max.bytes", "1048576", KAFKA_DEFAULT_PRODUCER,
	"A row of the table's largest size fits with its headers, and a batch fits a broker's "
	"default max.message.bytes of 1,048,588."},
    {"statistics.interval.ms", "5000", KAFKA_DEFAULT_PRODUCER, "For the relay's metrics."},
    {"queue.buffering.max.kbytes", NULL, KAFKA_DEFAULT_PRODUCER,
	"Follows from `[publisher] memory`."},
    {"queue.buffering.max.messages", NULL, KAFKA_DEFAULT_PRODUCER,
	"Follows from `[publisher] max_in_flight`."},
    {"transactional.id", NULL, KAFKA_DEFAULT_TRANSACTIONS,
	"Follows from the publisher's name, shard and identity."},
    {"transaction.timeout.ms", "10000", KAFKA_DEFAULT_TRANSACTIONS,
	"A transaction that a killed relay left open holds readers of committed records back at "
	"most so long."},
};
const int kafka_default_count = sizeof kafka_defaults / sizeof *kafka_defaults;
