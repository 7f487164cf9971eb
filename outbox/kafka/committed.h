#pragma once
/*
 * Reads the offsets that a group has committed for a partition, and commits offsets, from outside
 * the group: while no member of the group runs. Blocks; owned by one thread.
 */
#include "cleanup.h"
#include "subscription.h"

struct committed;

struct committed *committed_open(
    const struct kafka_settings *kafka, const char *group, struct err *err);
void committed_close(struct committed *committed); /* NULL is fine */
DEFINE_OWNED(struct committed, committed_close)

/* *ret_text is the caller's to free; offset SUBSCRIPTION_NONE and "": nothing is committed. */
bool committed_read(struct committed *committed, const char *topic, int32_t partition,
    int64_t *ret_offset, char **ret_text, struct err *err) MUST_CHECK;
bool committed_write(struct committed *committed, const struct subscription_place *place,
    struct err *err) MUST_CHECK;
