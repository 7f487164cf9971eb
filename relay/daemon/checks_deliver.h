#pragma once
/* The checks of [deliver] sections, for `doctor`. */
#include "checks.h"

/* Connects to the services, and sends nothing. Blocking. */
void checks_deliver(struct checks *checks);

/*
 * The topics of that cluster that sections read, and those that they write: dead letters and
 * retries. After checks_topics.
 */
bool checks_deliver_topics(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err) MUST_CHECK;
