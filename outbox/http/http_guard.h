#pragma once
/*
 * Where an outgoing request may go. Two independent checks, both of which must pass:
 *
 *   - the URL, as text, before a request is made: a list of destinations (scheme, host, port, path)
 *     that the operator wrote down. A URL may come in a message and is then somebody else's input;
 *   - the address, after the name was resolved, when the socket is about to be opened
 *     (http_client.h): addresses of this machine, of its network and of no network at all are
 *     refused, unless the operator listed them. As it looks at the address that is connected to, a
 *     name that changes its address between a check and the connect gains nothing.
 *
 * A URL that programs read in different ways is refused for that alone. Any thread may call.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"

struct sockaddr;

enum { HTTP_URL_MAX = 2048 };

/* --- the list of destinations ------------------------------------------------------------ */

/* A row that allows. The texts are the row's own (http_destinations_finish). */
struct http_destination {
	char *scheme; /* "http" or "https" */
	char *host;   /* lower case; [::1] with brackets; for "*.x.org" it is "x.org" */
	bool below;   /* "*.": names below host (a.x.org, a.b.x.org), and not host itself */
	uint16_t port;
	char *path; /* "/": any; "/a": /a and what is under it, not /ab; "/a/": what is under it */
};

/* {0} is an empty list: it allows nothing. */
struct http_destinations {
	struct http_destination *rows;
	size_t count;
};

/*
 * A list as it is configured, of URLs separated by commas or white space:
 * "https://pay.example.com/lookback, http://10.2.0.7:8080/". A host may begin with "*.". No query.
 * False (ERR_CONFIG): which entry is wrong and why; *ret_list is untouched.
 */
bool http_destinations_parse(
    const char *text, struct http_destinations *ret_list, struct err *err) MUST_CHECK;
void http_destinations_finish(struct http_destinations *list);

/*
 * The refusal's code: "malformed", "too_long", "characters", "scheme", "credentials", "fragment",
 * "host", "port", "path": the URL would be refused by any list; "not_listed": by this one. Its text
 * never has the query, which may hold a secret, nor credentials in it.
 */
bool http_guard_url(
    const struct http_destinations *list, const char *url, struct refusal *ret_refusal) MUST_CHECK;

/* --- addresses --------------------------------------------------------------------------- */

struct http_network {
	int family; /* AF_INET or AF_INET6 */
	unsigned char address[16];
	int bits;
};

/* {0} is an empty list: it allows no more than what is public. */
struct http_networks {
	struct http_network *rows;
	size_t count;
};

/*
 * "127.0.0.0/8, 10.2.0.0/16, ::1/128": separated by commas or white space; without "/" a single
 * address. False (ERR_CONFIG): which entry is wrong and why; *ret_list is untouched.
 */
bool http_networks_parse(
    const char *text, struct http_networks *ret_list, struct err *err) MUST_CHECK;
void http_networks_finish(struct http_networks *list);

/*
 * NULL: may be connected to. Else why not, as a stable code: "loopback", "private", "link_local",
 * "cgnat", "metadata", "multicast", "broadcast", "unspecified", "documentation", "benchmark",
 * "site_local", "v4_in_v6", "reserved", "family". A listed network allows the addresses of its own
 * family only: 127.0.0.0/8 does not allow ::ffff:127.0.0.1. allowed may be NULL.
 *
 * Of the ways to write a v4 address in v6 only NAT64 (64:ff9b::/96) is looked into, where it is the
 * one way out of a network without v4: it is as good as the v4 address in it. The others are
 * refused whatever they hold.
 */
const char *http_guard_address(const struct sockaddr *address, const struct http_networks *allowed);
