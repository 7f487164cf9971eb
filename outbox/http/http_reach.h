#pragma once
/* Finds out whether a service can be reached, before the first request. Blocks; any thread. */
#include "http_guard.h"
#include "text.h"

/*
 * Resolves the host of a URL that http_peer accepts, checks each address against `networks`, and
 * connects within timeout_ms. False: *ret_what says what is wrong; *ret_refused is the first
 * refused address, which `networks` has to list ("10.2.0.7"), or empty.
 */
bool http_reach(const char *url, const struct http_networks *networks, int timeout_ms,
    struct text *ret_what, struct text *ret_refused) MUST_CHECK;

/*
 * The same for a URL that service_url_is accepts: asks the name servers, and connects to each
 * address. *ret_refused has all the refused ones ("10.2.0.7, 10.2.0.8"). *ret_cure is the advice,
 * unless an address is refused.
 */
bool http_reach_service(const char *url, const char *name_servers,
    const struct http_networks *networks, int timeout_ms, struct text *ret_what,
    struct text *ret_refused, const char **ret_cure) MUST_CHECK;

/*
 * The part of both that needs neither a resolver nor a connection: checks a host that is an
 * address or localhost, and the addresses of a list. True for other names.
 */
bool http_reach_literal(const char *url, const struct http_networks *networks,
    struct text *ret_what, struct text *ret_refused) MUST_CHECK;
