#pragma once
/*
 * Topics that the brokers do not let us write to. Each refused write costs a producer, so such a
 * topic is left alone for a while, longer each time, as if it were missing. Internal to
 * outbox/publish; owned by the publisher's thread.
 */
#include <stdbool.h>
#include <stdint.h>

struct denial;
struct denials {
	struct denial *topics;
};

/* A write was refused. Those that were under way with it count once. */
void denials_add(struct denials *denials, const char *topic, int64_t now);
/* Is it to be left alone now? */
bool denials_hold(const struct denials *denials, const char *topic, int64_t now);
/* A write was taken. Cheap while nothing is denied. */
void denials_remove(struct denials *denials, const char *topic);
void denials_finish(struct denials *denials);
