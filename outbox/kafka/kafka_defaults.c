#include "kafka_defaults.h"

#include <stddef.h>

const struct kafka_default kafka_defaults[] = {
    {"client.id", "outbox-relay", KAFKA_DEFAULT_ALL,
	"Name of the client in the logs and quotas "
	"of the brokers."},
    {"socket.nagle.disable", "true", KAFKA_DEFAULT_ALL,
	"Requests are sent at once and not "
	"collected."},
    {"reconnect.backoff.max.ms", "1000", KAFKA_DEFAULT_ALL,
	"The relay reconnects within a second after a broker is back, as the Java client does."},
    {"allow.auto.create.topics", "false", KAFKA_DEFAULT_ALL,
	"A misspelt topic is reported, and not created with the broker's defaults; its messages "
	"wait."},
    /* kafka_conf.c sets it again after the section's value, which may be `-eos` */
    {"debug", "eos", KAFKA_DEFAULT_PRODUCER,
	"The relay notices that the idempotent producer is about to get a new epoch. The section "
	"can add contexts; it cannot turn `eos` off."},
    {"enable.idempotence", "true", KAFKA_DEFAULT_PRODUCER,
	"Retries neither duplicate nor reorder records."},
    {"enable.gapless.guarantee", "true", KAFKA_DEFAULT_PRODUCER,
	"Records behind a refused record do not overtake it."},
    {"acks", "all", KAFKA_DEFAULT_PRODUCER,
	"A record counts as published only if every in-sync replica has it."},
    {"message.timeout.ms", "0", KAFKA_DEFAULT_PRODUCER, "The producer never gives a record up."},
    {"compression.codec", "none", KAFKA_DEFAULT_PRODUCER,
	"Every client can read uncompressed records without a plug-in (docs/decisions/codec.md)."},
    {"linger.ms", "0", KAFKA_DEFAULT_PRODUCER,
	"Records are sent at once. Under load, batches fill while others are in flight. With "
	"`[publisher] pace = economy` the default is 2, and with `run --drain`, unless delivery is "
	"exactly-once, 5."},
    {"message.max.bytes", "1048576", KAFKA_DEFAULT_PRODUCER,
	"The largest row of the table fits with its headers, and a batch fits the broker's "
	"default max.message.bytes of 1,048,588."},
    {"statistics.interval.ms", "5000", KAFKA_DEFAULT_PRODUCER,
	"Source of the relay's metrics of "
	"the Kafka client."},
    {"queue.buffering.max.kbytes", NULL, KAFKA_DEFAULT_PRODUCER,
	"Computed from `[publisher] memory`."},
    {"queue.buffering.max.messages", NULL, KAFKA_DEFAULT_PRODUCER,
	"Computed from `[publisher] max_in_flight`."},
    {"transactional.id", NULL, KAFKA_DEFAULT_TRANSACTIONS,
	"Two ids, which take turns, computed from the publisher's name, shard and identity."},
    {"transaction.timeout.ms", "10000", KAFKA_DEFAULT_TRANSACTIONS,
	"Maximum time for which an open transaction of a killed relay delays consumers of "
	"committed records."},
};
const int kafka_default_count = sizeof kafka_defaults / sizeof *kafka_defaults;
