#pragma once
/*
 * Distributes requests over the addresses of a service. Pure: no I/O, no clock; one thread.
 *
 * Power of two choices: two addresses are drawn at random, by their weights, and the request goes
 * to the one with fewer requests in flight in proportion to its weight. Only addresses with the
 * lowest priority that have a working one are drawn. Each address has a circuit breaker
 * (breaker.h); when all are open, the address whose pause ends first is tried all the same, since a
 * request that goes nowhere helps nobody: the caller has the breaker of the whole service.
 */
#include "breaker.h"
#include "service_url.h"

struct balancer_address {
	struct service_address address;
	uint32_t number; /* no other address of the balancer ever has it */
	struct breaker breaker;
	int in_flight;
	bool gone; /* no longer in the list; lives until its last request ends */
};

/* Embedded on purpose. */
struct balancer {
	struct balancer_address **rows; /* those that are gone too */
	int count;
	uint32_t numbers;
	uint64_t seed;
	int64_t most_failures, pause_ms; /* of each breaker */
	int64_t answered_at;             /* the last success of any address; INT64_MIN: none */
};

void balancer_init(
    struct balancer *balancer, int64_t most_failures, int64_t pause_ms, uint64_t seed);
void balancer_finish(struct balancer *balancer);

/* Replaces the list. Known addresses keep their breaker and their requests. */
void balancer_update(struct balancer *balancer, const struct service_address *addresses, int count);
/* How many addresses the list has. */
int balancer_size(const struct balancer *balancer);

/*
 * Chooses an address for a request that goes out now, and begins it. NULL: there is none other than
 * those whose numbers are in tried[]. balancer_end must follow, with the same probe.
 */
struct balancer_address *balancer_begin(struct balancer *balancer, int64_t now,
    const uint32_t *tried, int tried_count, bool *ret_probe);
/*
 * The request ended. Returns true if the breaker of the address opened or closed by it. The address
 * may be freed: do not use it afterwards.
 */
bool balancer_end(struct balancer *balancer, int64_t now, struct balancer_address *address,
    bool probe, enum breaker_outcome outcome);
