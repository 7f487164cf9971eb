#pragma once
/*
 * Outgoing HTTP for an event loop: hundreds of requests under way in one thread, on libcurl. The
 * only folder that includes libcurl.
 *
 *   for (;;) {
 *       http_client_send(…);                      as many as there are
 *       poll http_client_fd for POLLIN until http_client_deadline
 *       http_client_step(…);
 *       while ((response = http_client_take(…)))
 *           …, http_client_release(…);
 *   }
 *
 * Owned by one thread. Nothing blocks: names are resolved by threads of libcurl's (one at a time
 * for each connection that is being made); one that hangs is left behind and ends by itself.
 * The process ignores SIGPIPE.
 *
 * What is never done: following a redirect, taking a proxy, credentials or cookies from anywhere,
 * speaking anything but http and https, asking for a compressed answer, asking for leave to send a
 * body (Expect). Certificates are verified. An address that http_guard_address refuses is not
 * connected to, however its name was written; the URL itself is the caller's to check
 * (http_guard_url).
 *
 * A stream of HTTP/2 that the server refuses by GOAWAY is sent again on a new connection, at most
 * three times and within the timeout; if all are refused, the request was not sent. An answer of
 * HTTP/2 that is cut off, or whose trailers are lost, makes the request go once more in the same
 * way. So requests by HTTP/2 must be such that the peer may handle them twice.
 *
 * A request may reach the peer twice: when a connection that was kept turns out to be closed before
 * a byte of the answer came, libcurl sends it once more on a new one. (The peer may have handled
 * the first.) To him they look the same.
 */
#include <stdint.h>
#include "cleanup.h"
#include "errors.h"
#include "http_guard.h"

struct http_client;

struct http_client_settings {
	int max_in_flight;   /* requests between http_client_send and their release */
	int max_connections; /* at once, to all hosts */
	/*
	 * At once, to one host and port; other requests wait for their turn. libcurl wakes them in
	 * no fair order, a busy host's before another's that could go: where that matters the
	 * caller hands over no more for a host than may be under way.
	 */
	int max_host_connections;
	const char *user_agent;
	/* Not copied: lives as long as the client. NULL: public addresses only. */
	const struct http_networks *networks;
};

/* ERR_CONFIG for a limit below 1, ERR_FATAL when the system gives no descriptor. */
struct http_client *http_client_create(
    const struct http_client_settings *settings, struct err *err);
/*
 * Gives up what is under way without a response; closes every connection. Responses that were taken
 * are gone with it. NULL is fine.
 */
void http_client_destroy(struct http_client *client);
DEFINE_OWNED(struct http_client, http_client_destroy)

/* --- requests ---------------------------------------------------------------------------- */

enum http_method { HTTP_GET, HTTP_POST };
enum http_protocol {
	HTTP_1_1,
	/*
	 * https: by ALPN; http: at once, without an upgrade (gRPC). The requests of one client to
	 * one host and port by http speak one protocol, as they share connections.
	 */
	HTTP_2,
};

/* Names as they are to be sent. A value of "" is sent as an empty one. */
struct http_header {
	const char *name, *value;
};

/* Files in PEM; NULL: the system's authorities, no certificate of our own. */
struct http_tls {
	const char *ca_file, *certificate_file, *key_file;
};

struct http_limits {
	int timeout_ms;         /* from http_client_send to the last byte; at least 1 */
	int connect_timeout_ms; /* of it, to resolve, connect and shake hands; at least 1 */
	size_t max_body;        /* bytes; a longer answer is given up as soon as it shows */
	size_t max_headers;     /* bytes of all header lines, those of 1xx answers too */
	/*
	 * Once an answer has begun: at least so many bytes (headers too) in each such stretch of
	 * time, or it is given up as too slow. 0: no such limit.
	 */
	int64_t slow_bytes;
	int slow_ms;
};

struct http_request {
	enum http_method method;
	enum http_protocol protocol;
	const char *url;
	const struct http_header *headers;
	size_t header_count;
	const void *body; /* POST; NOT copied: stays valid until the response was taken */
	size_t body_length;
	const struct http_tls *tls; /* may be NULL */
	struct http_limits limits;
	void *opaque; /* handed back with the response */
};

/*
 * Takes the request over; every request that was taken over ends in one response, unless the client
 * is destroyed. All but the body is copied. False: nothing was kept.
 *   ERR_RETRY: max_in_flight are under way.
 *   ERR_REJECT: a header's name or value is none (line ends, control characters), or it is one that
 *   says where the request goes or where it ends (Host, Content-Length, Transfer-Encoding,
 *   Connection, Expect); limits that are none.
 * A bad URL is told in the response, as "url".
 */
bool http_client_send(
    struct http_client *client, const struct http_request *request, struct err *err) MUST_CHECK;

/* --- the loop ---------------------------------------------------------------------------- */

/* One descriptor for everything, the same for the client's life: wait for POLLIN. */
int http_client_fd(const struct http_client *client);
/* When to call http_client_step at the latest (clock_ms). INT64_MAX: the descriptor tells. */
int64_t http_client_deadline(const struct http_client *client);
/* Moves everything on that can be; may be called at any time. now_ms: clock_ms. */
void http_client_step(struct http_client *client, int64_t now_ms);
/* Requests between http_client_send and their release. */
int http_client_in_flight(const struct http_client *client);

/* --- responses --------------------------------------------------------------------------- */

/*
 * What became of a request. `failure` is NULL when there is a whole answer, of whatever status.
 * Else it is a stable code, and `sent` says whether a byte of the request ever left for the peer
 * (where libcurl lost the trailers of a first answer: of the second request).
 *
 * Never sent (our own failure, it costs the peer's attempts nothing):
 *   url              libcurl does not take the URL, or speaks no such protocol
 *   queue_timeout    the time passed while others had the connections
 *   resolve          the name has no address, or nobody answers for it
 *   resolve_timeout
 *   address_refused  every address it has is refused (http_guard_address says why, in the text)
 *   connect          refused, unreachable
 *   connect_timeout  no connection in time, TLS included
 *   tls              the certificate does not convince, no common version, our own files are bad
 *   internal         out of memory or descriptors
 * Sent, as a rule (tls and closed may come before the first byte left: look at `sent`):
 *   timeout          no whole answer in time
 *   too_slow         it came in drops (limits.slow_bytes)
 *   too_large        the body is longer than max_body
 *   headers_too_large
 *   closed           the connection ended, was reset or lost its framing before the answer ended
 *   garbled          what came is no HTTP
 */
struct http_response {
	void *opaque;
	bool sent;
	const char *failure;
	char error[512]; /* for people: "https://host:port: what"; "" without a failure */
	int status;      /* 0: none came */
	/* As far as it came; NUL-terminated for convenience, may hold NULs. Never NULL. */
	const char *body;
	size_t body_length;
	/* Since http_client_send. first_byte_us is 0 when nothing came. */
	int64_t first_byte_us, total_us;
};

/*
 * The next response that is complete, in the order in which they became so; NULL: none. It is the
 * client's and stays valid until it is released.
 */
struct http_response *http_client_take(struct http_client *client);
void http_client_release(struct http_client *client, struct http_response *response);

/*
 * The value of the first header or trailer of the final answer with this name, whatever its case;
 * NULL: there is none. Valid as long as the response.
 */
const char *http_response_header(const struct http_response *response, const char *name);
/* The same of what came behind the body alone: there a header is none. */
const char *http_response_trailer(const struct http_response *response, const char *name);

/* The Content-Encoding of an answer, which nobody asked for; NULL: none, or identity. */
const char *http_response_encoding(const struct http_response *response);

/*
 * What Retry-After says, in milliseconds from now (0: a date that has passed); -1: nothing, or
 * neither seconds nor a date. wall_us: clock_wall_us.
 */
int64_t http_response_retry_after_ms(const struct http_response *response, int64_t wall_us);
