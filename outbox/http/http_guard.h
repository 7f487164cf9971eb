#pragma once
/*
 * Decides where an outgoing request may go. Two independent checks must both pass:
 *
 *   - the URL, as text, before a request is made: the operator lists the destinations (scheme,
 *     host, port, path). A URL may come in a message and is then untrusted input;
 *   - the address, after the name was resolved, when the socket is about to be opened
 *     (http_client.h): addresses of this machine, of its network and of no network at all are
 *     refused, unless the operator listed them. The check sees the very address that is connected
 *     to, so a name that changes its address between a check and the connect gains nothing.
 *
 * A URL that programs may read in different ways is refused for that reason alone. Any thread may
 * call.
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
	char *path; /* "/": any; "/a": /a and the paths under it, not /ab; "/a/": those under it */
};

/* {0} is an empty list: it allows nothing. */
struct http_destinations {
	struct http_destination *rows;
	size_t count;
};

/*
 * Parses a configured list of URLs, separated by commas or white space:
 * "https://pay.example.com/lookback, http://10.2.0.7:8080/". A host may begin with "*.". No query.
 * False (ERR_CONFIG): the error names the entry that is wrong, and why; *ret_list is untouched.
 */
bool http_destinations_parse(
    const char *text, struct http_destinations *ret_list, struct err *err) MUST_CHECK;
void http_destinations_finish(struct http_destinations *list);

/*
 * The refusal's code: "malformed", "too_long", "characters", "scheme", "credentials", "fragment",
 * "host", "port", "path": every list would refuse the URL; "not_listed": only this list does. The
 * refusal's text never contains the query, which may hold a secret, nor credentials.
 */
bool http_guard_url(
    const struct http_destinations *list, const char *url, struct refusal *ret_refusal) MUST_CHECK;

/* Only the form of the URL: the operator's own may go anywhere. The codes are the same. */
bool http_guard_form(const char *url, struct refusal *ret_refusal) MUST_CHECK;

/* --- addresses --------------------------------------------------------------------------- */

struct http_network {
	int family; /* AF_INET or AF_INET6 */
	unsigned char address[16];
	int bits;
};

/* {0} is an empty list: it allows public addresses only. */
struct http_networks {
	struct http_network *rows;
	size_t count;
};

/*
 * "127.0.0.0/8, 10.2.0.0/16, ::1/128": separated by commas or white space; an entry without "/" is
 * a single address. False (ERR_CONFIG): the error names the entry that is wrong, and why; *ret_list
 * is untouched.
 */
bool http_networks_parse(
    const char *text, struct http_networks *ret_list, struct err *err) MUST_CHECK;
void http_networks_finish(struct http_networks *list);

/*
 * NULL: a request may connect to the address. Otherwise the reason, a stable code: "loopback",
 * "private", "link_local", "cgnat", "metadata", "multicast", "broadcast", "unspecified",
 * "documentation", "benchmark", "site_local", "v4_in_v6", "reserved", "family". A listed network
 * allows the addresses of its own family only: 127.0.0.0/8 does not allow ::ffff:127.0.0.1. allowed
 * may be NULL.
 *
 * There are several ways to write a v4 address in v6. Only NAT64 (64:ff9b::/96) is judged by the v4
 * address in it, as it is the only way out of a network without v4. The others are refused whatever
 * they hold.
 */
const char *http_guard_address(const struct sockaddr *address, const struct http_networks *allowed);
