#pragma once
/*
 * Finds the addresses of a service. Each kind of registry is one file with one row: resolver_list.c
 * (the URL has the addresses), resolver_dns.c (DNS). To add a registry, write a file and choose its
 * row in http_service.c. A kind does single lookups; http_service.c decides when the next lookup
 * begins, which addresses are allowed, and where requests go.
 *
 * Owned by one thread; nothing blocks.
 */
#include <stdint.h>
#include "service_url.h"

/* The result of a lookup. */
struct resolver_result {
	struct service_address rows[SERVICE_ADDRESSES];
	int count;
	int64_t ttl_ms; /* how long the addresses hold; INT64_MAX: for ever */
	/* There may be more, as a part of the lookup failed; the error says which. */
	bool is_partial;
};

enum resolver_progress {
	RESOLVER_RUNS,
	RESOLVER_FOUND,  /* there is at least one address */
	RESOLVER_FAILED, /* ERR_RETRY: nobody answered; ERR_REJECT: there is no address */
};

struct resolver;

struct resolver_kind {
	/*
	 * The URL must outlive the resolver. servers: the name servers to ask, "": those of the
	 * system. ERR_CONFIG: a bad setting. ERR_FATAL: no descriptor or memory.
	 */
	struct resolver *(*open)(
	    const struct service_url *url, const char *servers, struct err *err);
	void (*close)(struct resolver *resolver); /* NULL is fine */
	/* Starts a lookup; only while none runs. */
	void (*begin)(struct resolver *resolver);
	int (*fd)(const struct resolver *resolver); /* wait for POLLIN; -1: none */
	/* When to call step at the latest (clock_ms). */
	int64_t (*deadline)(const struct resolver *resolver);
	/* Continues the lookup, and tells its result once. */
	enum resolver_progress (*step)(
	    struct resolver *resolver, struct resolver_result *ret_result, struct err *err);
};

extern const struct resolver_kind resolver_list, resolver_dns;
const struct resolver_kind *resolver_kind_of(const struct service_url *url);
/* The advice for a failed lookup with an error of this kind. */
const char *resolver_cure(const struct service_url *url, enum err_kind kind);
