#pragma once
/*
 * The pre-flight of each topic at its first use: one background thread per cluster asks the broker
 * and logs what it finds, so that no event loop blocks. With safety = strict a topic is closed
 * until it was found safe; an unsafe one is looked at again every half minute, so that mending it
 * is enough. A topic that is missing is looked for until it is there.
 */
#include "topic_metadata.h"
#include "publisher_settings.h"

struct topic_checks;

/* Both outlive it. NULL: no thread. */
struct topic_checks *topic_checks_create(
    struct topic_metadata *metadata, const struct kafka_settings *kafka, struct err *err);
/* Waits for the question under way (seconds at most). NULL is fine. */
void topic_checks_destroy(struct topic_checks *checks);

/*
 * May records go to this topic? The first call causes its check; when that found the topic missing,
 * a later call has it looked for again within a second. Any thread; never blocks.
 */
bool topic_checks_allow(struct topic_checks *checks, const char *topic, enum safety safety);

/* Appends "topic orders: why" for each topic that strict keeps closed; returns how many. */
int topic_checks_closed(struct topic_checks *checks, struct text *out);
