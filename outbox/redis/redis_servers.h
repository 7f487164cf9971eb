#pragma once
/*
 * The servers behind one url: a single server, or the masters of a Redis Cluster. Commands are
 * routed by the slot of their key, a batch is split by node, and the nodes work at the same time.
 * Which of the two it is, the first server that answers says.
 *
 * While slots move, a command is sent again to the node that a redirection names (MOVED, ASK). When
 * a master dies, calls fail with ERR_RETRY until a replica has taken over its slots. Errors are
 * those of redis.h. Owned by one thread.
 */
#include "redis.h"

struct redis_servers;

/*
 * Called for each new connection, before any other command: asks the server, and may refuse it.
 * node is for redis_servers_serves. *ret_cluster: whether the server is a node of a cluster.
 * Servers that are greeted before redis_servers_are_known are greeted again afterwards.
 */
typedef bool redis_greet(
    void *context, struct redis *redis, int node, int64_t end, bool *ret_cluster, struct err *err);

/* Copies nothing of the address, which must outlive it. Connects nowhere. */
struct redis_servers *redis_servers_create(
    const struct redis_address *address, redis_greet *greet, void *context);
void redis_servers_destroy(struct redis_servers *servers); /* NULL is fine */

/* Begins a batch: connects to the single server, or learns the slots. end: by clock_ms. */
bool redis_servers_begin(struct redis_servers *servers, int64_t end, struct err *err) MUST_CHECK;
/* Adds a command, of which all keys lie in the slot of `key`. */
void redis_servers_say(struct redis_servers *servers, struct redis_word key,
    const struct redis_word *words, size_t count);
/*
 * Sends the batch and shows the answers, each with the number of its command; those of one node in
 * order. False: some commands may have been carried out.
 */
bool redis_servers_hear(struct redis_servers *servers, int64_t end, redis_see *see, void *context,
    struct err *err) MUST_CHECK;
/* Closes all connections, and forgets the batch. */
void redis_servers_close(struct redis_servers *servers);

/* True for every slot of a single server. */
bool redis_servers_serves(const struct redis_servers *servers, int node, int slot);
/* Not before the first redis_servers_begin that succeeded. */
bool redis_servers_are_known(const struct redis_servers *servers);
bool redis_servers_are_cluster(const struct redis_servers *servers);
