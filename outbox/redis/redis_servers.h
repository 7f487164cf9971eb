#pragma once
/*
 * The servers behind one url: a single server, the master that Sentinels name, or the masters of a
 * Redis Cluster. Whether it is a cluster, the first server that answers says. In a cluster commands
 * are routed by the slot of their key, a batch is split by node, and the nodes work at the same
 * time.
 *
 * While slots move, a command is sent again to the node that a redirection names (MOVED, ASK). When
 * a master dies, calls fail with ERR_RETRY until a replica has taken over. Errors are those of
 * redis.h. Owned by one thread.
 */
#include "redis.h"

struct redis_servers;

/*
 * Judges a server that commands are to be sent to, once for each connection; it may ask more. info:
 * the server's answer to INFO, "" if it does not know the command. node is for
 * redis_servers_serves.
 */
typedef bool redis_greet(
    void *context, struct redis *redis, const char *info, int node, int64_t end, struct err *err);

/* Does the line "name:value" of INFO begin with this value? False: there is no such line. */
bool redis_info_is(const char *info, const char *name, const char *value);

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
/* Known after the first redis_servers_begin that succeeded. */
bool redis_servers_are_cluster(const struct redis_servers *servers);
