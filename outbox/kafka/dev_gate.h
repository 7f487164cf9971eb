#pragma once
/*
 * The door of the embedded broker: TCP ports of the caller's choice in front of librdkafka's mock
 * brokers. The mock has two flaws that no setting mends. It listens on ports of its own choice, and
 * it answers an ApiVersions request that is newer than it knows in a form of its own, at which the
 * Java client, franz-go and others hang. The gate answers such a request as a real broker does, and
 * writes its own ports into the addresses that clients are given. Everything else passes unchanged.
 */
#include "errors.h"

struct dev_gate;

/*
 * servers: "127.0.0.1:port,…" of the mock brokers. port: that of the first broker, the others
 * follow one by one; 0: free ports. Starts a thread, which handles no signals that the caller has
 * blocked. NULL: a port is taken, and others.
 */
struct dev_gate *dev_gate_create(const char *servers, int port, struct err *err);
/* Cuts all connections. NULL is fine. */
void dev_gate_destroy(struct dev_gate *gate);
/* The addresses for clients, as `servers` had them; owned by the gate. */
const char *dev_gate_bootstrap(const struct dev_gate *gate);
