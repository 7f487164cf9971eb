#pragma once
/*
 * A service with several addresses: finds them (resolver.h), keeps the list as fresh as its time to
 * live asks, refuses addresses as http_guard_address does, and distributes requests (balancer.h).
 *
 * The list is looked up again before its time to live is over. While no name server answers, the
 * last list holds; when DNS says that there is no address, the list is empty. Each change of that
 * kind, each refused address and each address whose breaker opens is logged once.
 *
 * Owned by one thread. Nothing blocks, except files that c-ares reads (resolv.conf, hosts).
 */
#include "balancer.h"
#include "http_guard.h"

struct http_service;

struct http_service_settings {
	const char *section;      /* for the log: "check shop" */
	const char *url;          /* service_url_is says yes */
	const char *name_servers; /* addresses, "": those of the system */
	/* Not copied: lives as long as the service. NULL: public addresses only. */
	const struct http_networks *networks;
	int64_t breaker_failures, breaker_pause_ms; /* of each address */
};

/* ERR_CONFIG: *ret_key is the wrong key (url or name_servers). ERR_FATAL: no descriptor. */
struct http_service *http_service_open(
    const struct http_service_settings *settings, const char **ret_key, struct err *err);
void http_service_close(struct http_service *service); /* NULL is fine */

int http_service_fd(const struct http_service *service); /* wait for POLLIN; -1: none */
int64_t http_service_deadline(const struct http_service *service);
void http_service_step(struct http_service *service, int64_t now);

/*
 * NULL: there are addresses. Otherwise the code of a failure (http_client.h), and *ret_error has
 * the reason and the cure: "resolve", "address_refused"; "resolve_timeout" as long as the first
 * lookup runs.
 */
const char *http_service_failure(const struct http_service *service, const char **ret_error);

/* --- requests ----------------------------------------------------------------------------- */

enum { HTTP_SERVICE_TRIES = 8 };

/* A request, which may try several addresses in turn. {0} at first. */
struct http_service_call {
	struct balancer_address *at; /* NULL: none is being tried */
	bool probe;
	uint32_t tried[HTTP_SERVICE_TRIES];
	int tried_count;
	char address[SERVICE_ADDRESS_TEXT]; /* the last one that was tried */
};

/*
 * Chooses the next address for a request, and appends the URL for it; connect_to as in
 * http_request ("": none). False: there is none that was not tried. http_service_end must follow.
 */
bool http_service_begin(struct http_service *service, int64_t now, struct http_service_call *call,
    struct text *ret_url, struct text *ret_connect_to) MUST_CHECK;
/* error: why it failed, for the log; NULL: it did not. */
void http_service_end(struct http_service *service, int64_t now, struct http_service_call *call,
    enum breaker_outcome outcome, const char *error);
/* Did any address answer since then? */
bool http_service_answered_since(const struct http_service *service, int64_t then);

/* --- figures ------------------------------------------------------------------------------- */

/* The addresses from 0; NULL: behind the last one. */
const struct balancer_address *http_service_address(const struct http_service *service, int index);
/* How many addresses of the last answer the guard refused. */
int http_service_refused(const struct http_service *service);
