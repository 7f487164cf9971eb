#pragma once
/*
 * Which node of a Redis Cluster serves which of the 16,384 slots, from the answer to CLUSTER SLOTS.
 * Source of the formula: "Redis Cluster specification", CRC16 (XMODEM) and hash tags. Pure.
 */
#include "redis.h"

enum { REDIS_SLOTS = 16384, REDIS_NO_NODE = -1 };

/* The slot of a key. If the key has a part in braces that is not empty, only the first one counts.
 */
int redis_slot(const void *key, size_t length);

struct redis_place {
	char *host;
	int port;
};

struct redis_slots {
	struct redis_place *nodes; /* masters */
	int count;
	int16_t node_of[REDIS_SLOTS]; /* index into nodes, or REDIS_NO_NODE */
};

/*
 * host: the host of the server that answered, which an answer without a host means. False: the
 * answer is no list of slots.
 */
bool redis_slots_read(
    const struct redis_answer *answer, const char *host, struct redis_slots *ret_slots);
void redis_slots_finish(struct redis_slots *slots);

/* The index of the node, which is added if it is new. */
int redis_slots_node(struct redis_slots *slots, const char *host, int port);

/*
 * Reads the slot and the node of an error "MOVED 3999 127.0.0.1:6381" or "ASK …". False: it is
 * none. An empty host means `host`.
 */
bool redis_slots_redirection(const char *error, const char *host, int *ret_slot,
    struct redis_place *ret_place, bool *ret_ask);
