#pragma once
/*
 * Makes configurations of librdkafka from struct kafka_settings. Properties pass under their own
 * names. librdkafka refuses unknown properties; kafka_conf_check refuses a property that breaks a
 * promise, and says why (table of rows {property, allowed, why}: enable.idempotence, acks,
 * message.timeout.ms, enable.gapless.guarantee, partitioner, max.in.flight…, retries,
 * transactional.id, delivery report / queue settings that the relay owns …).
 */
#include <librdkafka/rdkafka.h>
#include "errors.h"
#include "kafka_settings.h"

/*
 * Checks all properties without connecting: for check-config and start; those of a producer with
 * transactions where there will be one.
 */
bool kafka_conf_check(
    const struct kafka_settings *kafka, bool transactions, struct err *err) MUST_CHECK;

/*
 * The idempotent producer of the relay (outbox.md, "Publishing"); events instead of callbacks.
 * Properties take the relay's defaults (kafka_defaults.h) unless the settings have them.
 * queue_bytes, queue_messages: the room that librdkafka must have, besides one record of any size
 * that the settings allow. transactional_id: NULL for none. Caller owns the conf until rd_kafka_new
 * takes it; NULL on error.
 */
rd_kafka_conf_t *kafka_conf_producer(const struct kafka_settings *kafka,
    const char *transactional_id, int64_t queue_bytes, int64_t queue_messages, struct err *err);

/* A plain client (topic metadata, admin): all properties except those of the producer. */
rd_kafka_conf_t *kafka_conf_client(const struct kafka_settings *kafka, struct err *err);

/*
 * A reader of partitions that belongs to no group. reset: auto.offset.reset. defaults: names and
 * values in turn, NULL-ended, that the settings may replace.
 */
rd_kafka_conf_t *kafka_conf_reader(const struct kafka_settings *kafka, const char *isolation,
    const char *reset, const char *const *defaults, struct err *err);

/*
 * Bounds the records of each partition that a reader keeps ready: at the bound librdkafka fetches
 * no more of that partition.
 */
bool kafka_conf_bound_ready(
    rd_kafka_conf_t *conf, int64_t messages, int64_t bytes, struct err *err) MUST_CHECK;

/* ERR_REJECT when Kafka refuses this record for good (too large, invalid record/timestamp/…). */
enum err_kind kafka_error_kind(rd_kafka_resp_err_t code);

/* It logs nothing. A new epoch of an idempotent producer is refused all the same. */
void kafka_conf_mute(rd_kafka_conf_t *conf);
/* The text of the fatal error by which a new epoch is refused. */
extern const char kafka_conf_epoch[];

/* One value of our own: ERR_FATAL says that this librdkafka does not know it. */
bool kafka_conf_set(
    rd_kafka_conf_t *conf, const char *name, const char *value, struct err *err) MUST_CHECK;

/* Sets linger.ms, unless the section has it. */
bool kafka_conf_linger(rd_kafka_conf_t *conf, const struct kafka_settings *kafka, int64_t linger_ms,
    struct err *err) MUST_CHECK;

/* The values that a property may have, as `rules` of kafka_conf.c has them; NULL: any. */
const char *kafka_conf_allowed(const char *name);

/*
 * The properties of kafka_defaults.h with their values in a producer of the section, as in
 * "acks = all, linger.ms = 0". The caller frees; NULL on error.
 */
char *kafka_conf_in_force(
    const struct kafka_settings *kafka, bool transactions, int64_t linger_ms, struct err *err);

/* "2.0.2": the version of librdkafka that runs; static. */
const char *kafka_conf_library(void);

/*
 * Whether records and passwords go unencrypted to another machine: security.protocol asks for no
 * TLS, and a bootstrap server is not loopback.
 */
bool kafka_conf_is_exposed(const struct kafka_settings *kafka);
