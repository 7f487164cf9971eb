#pragma once
/*
 * What is known of topics: one background thread per cluster (its own client handle) asks the
 * broker, so that no event loop ever blocks on metadata. Results come back by a notification
 * function.
 */
#include "config.h"

struct catalog;

struct catalog_topic {
	enum { TOPIC_UNKNOWN /* not asked yet or no answer */, TOPIC_MISSING, TOPIC_THERE } state;
	int32_t partitions;  /* when there */
	int64_t answered_ms; /* when the cluster said so last (clock_ms); 0: never */
	char error[256];     /* "" or why there is no answer */
};

struct catalog *catalog_create(const struct config_kafka *kafka, struct err *err);
void catalog_destroy(struct catalog *catalog);

/*
 * The newest knowledge of the topic. A first question, a missing topic and one older than
 * max_age_ms cause a look-up in the background (missing: again each second). After each look-up
 * that changed something every registered eventfd is written. Any thread; never blocks on the
 * network.
 */
struct catalog_topic catalog_look(struct catalog *catalog, const char *topic, int64_t max_age_ms);

/* eventfd is written (8 bytes, value 1) when something changed; the caller owns it. */
void catalog_watch(struct catalog *catalog, int event_fd);
void catalog_unwatch(struct catalog *catalog, int event_fd);

/* Blocking questions for doctor, verify and bench (any thread). */
struct catalog_setting {
	char *name, *value;
};
/* All settings of a topic (DescribeConfigs) plus pseudo-setting "replication.factor". */
bool catalog_topic_settings(struct catalog *catalog, const char *topic, int timeout_ms,
    struct catalog_setting **ret_settings, int *ret_count, struct err *err) MUST_CHECK;
void catalog_settings_free(struct catalog_setting *settings, int count);
bool catalog_broker_count(
    struct catalog *catalog, int timeout_ms, int *ret_count, struct err *err) MUST_CHECK;
/*
 * With so many settings of its own ("message.timestamp.type" = "LogAppendTime"). ERR_REJECT when it
 * exists.
 */
bool catalog_create_topic(struct catalog *catalog, const char *topic, int partitions,
    int replication, const struct catalog_setting *settings, int count, int timeout_ms,
    struct err *err) MUST_CHECK;
/* ERR_REJECT when there is none. */
bool catalog_delete_topic(
    struct catalog *catalog, const char *topic, int timeout_ms, struct err *err) MUST_CHECK;
