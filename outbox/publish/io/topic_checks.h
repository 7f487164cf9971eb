#pragma once
/*
 * The pre-flight of each topic at its first use: one background thread per cluster asks the broker
 * and logs the findings, so that no event loop blocks. With safety = strict a topic is closed until
 * a check finds it safe; an unsafe topic is checked again every half minute, so that repairing it
 * is enough. A missing topic is checked again until it exists.
 */
#include "topic_metadata.h"
#include "publisher_settings.h"

struct topic_checks;

/* Both pointers must outlive it. NULL (ERR_RETRY): no thread could be started. */
struct topic_checks *topic_checks_create(
    struct topic_metadata *metadata, const struct kafka_settings *kafka, struct err *err);
/* Waits for the check in flight (seconds at most). NULL is fine. */
void topic_checks_destroy(struct topic_checks *checks);

/*
 * May records go to this topic? The first call starts its check; if that found the topic missing, a
 * later call makes it check again within a second. Any thread; never blocks.
 */
bool topic_checks_allow(struct topic_checks *checks, const char *topic, enum safety safety);

/* Appends "topic orders: reason" for each topic that strict keeps closed; returns how many. */
int topic_checks_closed(struct topic_checks *checks, struct text *out);
