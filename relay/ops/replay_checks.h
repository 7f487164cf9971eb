#pragma once
/* Checks of the topics before a replay begins. */
#include "topic_metadata.h"
#include "replay_row.h"

/*
 * Every topic that records would go to exists (ERR_REJECT: it does not, or has fewer partitions
 * than a row asks for; ERR_RETRY: no answer within 10 s). Logs a warning where Kafka would delete
 * the records at once, since their timestamps are older than its retention.
 */
bool replay_check_topics(const struct replay *replay, const struct replay_plan *plan,
    struct topic_metadata *metadata, struct err *err) MUST_CHECK;
