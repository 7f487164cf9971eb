#pragma once
/*
 * Outgoing HTTP for an event loop: hundreds of requests in flight in one thread, on libcurl. Only
 * this folder includes libcurl.
 *
 *   for (;;) {
 *       http_client_send(…);                      as many as there are
 *       poll http_client_fd for POLLIN until http_client_deadline
 *       http_client_step(…);
 *       while ((response = http_client_take(…)))
 *           …, http_client_release(…);
 *   }
 *
 * Owned by one thread. Nothing blocks: threads of libcurl resolve names (one at a time for each
 * connection that is being made); a thread that hangs is left behind and ends by itself. The
 * process ignores SIGPIPE.
 *
 * The client never follows a redirect, takes no proxy, credentials or cookies from anywhere, speaks
 * only http and https (TLS 1.2 or later), never asks for a compressed answer, and never asks for
 * permission to send a body (Expect). It verifies certificates. It connects to no address that
 * http_guard_address refuses, however the name was written; the caller checks the URL itself
 * (http_guard_url).
 *
 * When the server refuses a stream of HTTP/2 by GOAWAY, the client sends the request again on a new
 * connection, at most three times and within the timeout; if the server refuses the last of them
 * too, the request counts as not sent. When an answer of HTTP/2 is cut off, or its trailers are
 * lost, the client sends the request once more in the same way. So a request by HTTP/2 must be one
 * that the peer may handle twice.
 *
 * A request may reach the peer twice: when a kept connection turns out to be closed before a byte
 * of the answer came, libcurl sends the request once more on a new one. (The peer may have handled
 * the first.) Both look the same to the peer.
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
	 * no fair order: a busy host's request may come before one of another host that could go.
	 * Where that matters, the caller hands over no more requests for a host than may be in
	 * flight to it.
	 */
	int max_host_connections;
	const char *user_agent;
	/* Not copied: lives as long as the client. NULL: public addresses only. */
	const struct http_networks *networks;
};

/* ERR_CONFIG: a limit is below 1. ERR_FATAL: no descriptor, or libcurl has no memory. */
struct http_client *http_client_create(
    const struct http_client_settings *settings, struct err *err);
/* For one request at a time. */
struct http_client *http_client_create_single(
    const struct http_networks *networks, struct err *err);
/*
 * Gives up the requests in flight without a response and closes every connection. Responses that
 * were taken are no longer valid. NULL is fine.
 */
void http_client_destroy(struct http_client *client);
DEFINE_OWNED(struct http_client, http_client_destroy)

/* --- requests ---------------------------------------------------------------------------- */

enum http_method { HTTP_GET, HTTP_POST };
enum http_protocol {
	HTTP_1_1,
	/*
	 * https: by ALPN; http: at once, without an upgrade (gRPC). All requests of one client to
	 * one host and port by http must speak the same protocol, as they share connections.
	 */
	HTTP_2,
};

/* The client sends the name as it is written. A value of "" is sent as an empty value. */
struct http_header {
	const char *name, *value;
};

/* Files in PEM; NULL: the system's authorities, no certificate of our own. */
struct http_tls {
	const char *ca_file, *certificate_file, *key_file;
	/*
	 * The key of ca_file, for errors; NULL: "tls_ca". This text and the next are not copied:
	 * they live as long as the client.
	 */
	const char *ca_key;
	/*
	 * A certificate (PEM). The peer must have its private key; authority, name and dates of the
	 * peer's certificate are not checked then. NULL: they are.
	 */
	const char *pinned_file;
};

struct http_limits {
	int timeout_ms;         /* from http_client_send to the last byte; at least 1 */
	int connect_timeout_ms; /* to resolve, connect and shake hands, within timeout_ms; >= 1 */
	size_t max_body;        /* bytes; a longer answer is given up as soon as that shows */
	size_t max_headers;     /* bytes of all header lines, those of 1xx answers too */
	/*
	 * Once an answer has begun, at least slow_bytes (headers too) must come in each stretch of
	 * slow_ms, or the request is given up as too slow. 0: no such limit.
	 */
	int64_t slow_bytes;
	int slow_ms;
};

struct http_request {
	enum http_method method;
	enum http_protocol protocol;
	const char *url;
	/*
	 * Another address for the host of the URL, as CURLOPT_CONNECT_TO has it ("::10.0.0.1:");
	 * the name for Host and the certificate stays. NULL: that of the URL.
	 */
	const char *connect_to;
	const struct http_header *headers;
	size_t header_count;
	const void *body; /* POST; NOT copied: must stay valid until the response was taken */
	size_t body_length;
	const struct http_tls *tls; /* may be NULL */
	struct http_limits limits;
	void *opaque; /* handed back with the response */
};

/*
 * Takes the request over; every request that was taken over ends in one response, unless the client
 * is destroyed. Everything except the body is copied. False: nothing was kept.
 *   ERR_RETRY: max_in_flight requests are in flight, or libcurl has no memory.
 *   ERR_REJECT: the name or value of a header is not valid (line ends, control characters), or the
 *   header says where the request goes or where it ends (Host, Content-Length, Transfer-Encoding,
 *   Connection, Expect), or a limit is not valid.
 *   ERR_CONFIG: tls.pinned_file holds no certificate.
 * A bad URL is not reported here: its response has the failure "url".
 */
bool http_client_send(
    struct http_client *client, const struct http_request *request, struct err *err) MUST_CHECK;

/* --- the loop ---------------------------------------------------------------------------- */

/* One descriptor for everything, the same for the client's life: wait for POLLIN. */
int http_client_fd(const struct http_client *client);
/* When to call http_client_step at the latest (clock_ms). INT64_MAX: when the descriptor is ready.
 */
int64_t http_client_deadline(const struct http_client *client);
/* Makes all the progress that is possible now; may be called at any time. now_ms: clock_ms. */
void http_client_step(struct http_client *client, int64_t now_ms);
/* Requests between http_client_send and their release. */
int http_client_in_flight(const struct http_client *client);

/* --- responses --------------------------------------------------------------------------- */

/*
 * The result of a request. `failure` is NULL when there is a whole answer, of whatever status.
 * Otherwise it is a stable code, and `sent` says whether a byte of the request ever left for the
 * peer (where libcurl lost the trailers of a first answer: a byte of the second request).
 *
 * Never sent (the failure is on our side; it uses up no attempt of the peer):
 *   url              libcurl does not accept the URL, or does not speak its protocol
 *   queue_timeout    the time passed while other requests used the connections
 *   resolve          the name has no address, or no name server answers
 *   resolve_timeout
 *   address_refused  every address of the host is refused (the text says why: http_guard_address)
 *   connect          refused, unreachable
 *   connect_timeout  no connection in time, TLS included
 *   tls              the certificate is not trusted, no common version, our own files are bad; the
 *                    error names the cure
 *   internal         out of memory or descriptors
 * Sent, as a rule (tls and closed may come before the first byte left: look at `sent`):
 *   timeout          no whole answer in time
 *   too_slow         the answer came too slowly (limits.slow_bytes)
 *   too_large        the body is longer than max_body
 *   headers_too_large
 *   closed           the connection ended, was reset or lost its framing before the answer ended
 *   garbled          the answer is not HTTP
 */
struct http_response {
	void *opaque;
	bool sent;
	const char *failure;
	char error[512]; /* for people: "https://host:port: reason"; "" without a failure */
	int status;      /* 0: no status came */
	/* The part that came; NUL-terminated for convenience, may hold NULs. Never NULL. */
	const char *body;
	size_t body_length;
	/* Microseconds since http_client_send. first_byte_us is 0 when no byte came. */
	int64_t first_byte_us, total_us;
};

/*
 * The next complete response, in the order in which the requests ended; NULL: none. The client owns
 * it; it stays valid until it is released.
 */
struct http_response *http_client_take(struct http_client *client);
void http_client_release(struct http_client *client, struct http_response *response);
/* Blocks until a request has ended, and takes its response. At least one request is in flight. */
struct http_response *http_client_wait(struct http_client *client);

/*
 * The value of the first header or trailer of the final answer with this name, in any case; NULL:
 * there is none. Valid as long as the response.
 */
const char *http_response_header(const struct http_response *response, const char *name);
/* The same for trailers only, the lines that came after the body. */
const char *http_response_trailer(const struct http_response *response, const char *name);

/* The Content-Encoding of an answer, which no request asks for; NULL: none, or identity. */
const char *http_response_encoding(const struct http_response *response);

/*
 * The delay of the header Retry-After, in milliseconds from now (0: its date has passed); -1: there
 * is no such header, or its value is neither seconds nor a date. wall_us: clock_wall_us.
 */
int64_t http_response_retry_after_ms(const struct http_response *response, int64_t wall_us);
