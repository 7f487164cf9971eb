#pragma once
/*
 * The metadata of topics: whether a topic exists, and how many partitions it has. One background
 * thread per cluster, with a client handle of its own, asks the broker, so that no event loop ever
 * blocks on metadata. Watchers are notified by an eventfd.
 */
#include <stdint.h>
#include "errors.h"
#include "kafka_settings.h"
#include "text.h"

struct topic_metadata;

struct known_topic {
	enum { TOPIC_UNKNOWN /* not asked yet or no answer */, TOPIC_MISSING, TOPIC_THERE } state;
	int32_t partitions;  /* when there */
	int64_t answered_ms; /* when the cluster said so last (clock_ms); 0: never */
	char error[256];     /* "" or why there is no answer */
};

struct topic_metadata *topic_metadata_create(const struct kafka_settings *kafka, struct err *err);
void topic_metadata_destroy(struct topic_metadata *metadata);

/*
 * The newest knowledge of the topic. A first question, a missing topic and one older than
 * max_age_ms cause a look-up in the background (missing: again each second). After each look-up
 * that changed something every registered eventfd is written. Any thread; never blocks on the
 * network.
 */
struct known_topic topic_metadata_get(
    struct topic_metadata *metadata, const char *topic, int64_t max_age_ms);

/* eventfd is written (8 bytes, value 1) when something changed; the caller owns it. */
void topic_metadata_watch(struct topic_metadata *metadata, int event_fd);
void topic_metadata_unwatch(struct topic_metadata *metadata, int event_fd);

/* Blocking requests for doctor, verify and bench (any thread). */
struct topic_setting {
	char *name, *value;
};
/* All settings of a topic (DescribeConfigs) plus pseudo-setting "replication.factor". */
bool topic_metadata_settings(struct topic_metadata *metadata, const char *topic, int timeout_ms,
    struct topic_setting **ret_settings, int *ret_count, struct err *err) MUST_CHECK;
void topic_metadata_settings_free(struct topic_setting *settings, int count);
/*
 * Numbers of the partitions without a leader, "3, 5", and how many they are. 0 for a topic that
 * does not exist.
 */
bool topic_metadata_leaderless(struct topic_metadata *metadata, const char *topic, int timeout_ms,
    struct text *ret_numbers, int *ret_count, struct err *err) MUST_CHECK;
/*
 * The cure, if a broker could not be reached in the last half minute and librdkafka reported the
 * reason; static, or NULL. *ret_logged: the log has the reason and the cure.
 */
const char *topic_metadata_cure(struct topic_metadata *metadata, bool *ret_logged);
bool topic_metadata_broker_count(
    struct topic_metadata *metadata, int timeout_ms, int *ret_count, struct err *err) MUST_CHECK;
/*
 * With so many settings of its own ("message.timestamp.type" = "LogAppendTime"). ERR_REJECT when it
 * exists.
 */
bool topic_metadata_create_topic(struct topic_metadata *metadata, const char *topic, int partitions,
    int replication, const struct topic_setting *settings, int count, int timeout_ms,
    struct err *err) MUST_CHECK;
/* ERR_REJECT when there is none. */
bool topic_metadata_delete_topic(
    struct topic_metadata *metadata, const char *topic, int timeout_ms, struct err *err) MUST_CHECK;
