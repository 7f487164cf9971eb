#include "http_reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "resolver.h"

/* Of "http://[::1]:8080/x": the host without brackets, and the port or the scheme's default. */
static void split_reached_url(const char *url, struct text *ret_host, struct text *ret_port)
{
	const char *start = strstr(url, "://");
	const char *host = start ? start + 3 : url;
	bool bracketed = *host == '[';
	size_t length = bracketed ? strcspn(++host, "]") : strcspn(host, ":/?#");
	const char *rest = host + length + (bracketed && host[length]);

	text_append(ret_host, host, length);
	if (*rest == ':')
		text_append(ret_port, rest + 1, strspn(rest + 1, "0123456789"));
	if (!ret_port->length)
		text_add(ret_port, text_starts(url, "https") ? "443" : "80");
}

/* Returns 0, or an errno. */
static int connect_within(const struct addrinfo *address, int timeout_ms)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	int failure = 0;
	socklen_t size = sizeof failure;

	if (fd < 0)
		return errno;
	if (connect(fd, address->ai_addr, address->ai_addrlen) != 0)
		failure = errno;
	if (failure == EINPROGRESS) {
		/* A refused connection is writable as well; SO_ERROR tells the two apart. */
		failure = poll(&ready, 1, timeout_ms) == 1 ? 0 : ETIMEDOUT;
		if (!failure)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
	}
	close(fd);
	return failure;
}

static void describe_address(const struct addrinfo *at, const char *why_refused,
    const char *failure, struct text *ret_what, struct text *ret_refused)
{
	char name[NI_MAXHOST];

	if (getnameinfo(at->ai_addr, at->ai_addrlen, name, sizeof name, NULL, 0, NI_NUMERICHOST) !=
	    0)
		return;
	if (why_refused && !ret_refused->length)
		text_add(ret_refused, name);
	text_addf(ret_what, "%sits address %s %s%s", ret_what->length ? "; " : "", name,
	    why_refused ? "is refused, since it is no public one: " : "cannot be reached: ",
	    why_refused ? why_refused : failure);
}

/* Tries the addresses in turn, as a request does, without the refused ones. */
static bool try_addresses(const struct addrinfo *found, const struct http_networks *networks,
    int timeout_ms, struct text *ret_what, struct text *ret_refused)
{
	for (const struct addrinfo *at = found; at; at = at->ai_next) {
		const char *why = http_guard_address(at->ai_addr, networks);
		int failure = why ? 0 : connect_within(at, timeout_ms);

		if (!why && !failure)
			return true;
		describe_address(at, why, why ? "" : strerror(failure), ret_what, ret_refused);
	}
	return false;
}

bool http_reach(const char *url, const struct http_networks *networks, int timeout_ms,
    struct text *ret_what, struct text *ret_refused)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	OWNED(text_finish) struct text host = {0}, port = {0};
	struct addrinfo *found = NULL;
	int failure;
	bool reached;

	split_reached_url(url, &host, &port);
	failure = getaddrinfo(text_string(&host), text_string(&port), &hints, &found);
	if (failure) {
		text_addf(ret_what, "its host %s has no address: %s", text_string(&host),
		    gai_strerror(failure));
		return false;
	}
	reached = try_addresses(found, networks, timeout_ms, ret_what, ret_refused);
	freeaddrinfo(found);
	return reached;
}

/* --- services ------------------------------------------------------------------------------ */

static struct addrinfo info_of(const struct service_address *address)
{
	bool is_v4 = address->at.any.sa_family == AF_INET;

	return (struct addrinfo){.ai_family = address->at.any.sa_family,
	    .ai_addr = (struct sockaddr *)(uintptr_t)&address->at.any,
	    .ai_addrlen = is_v4 ? sizeof address->at.v4 : sizeof address->at.v6};
}

/* Adds an address that `networks` has to list. */
static void add_refused_address(const struct service_address *address, const char *why,
    struct text *ret_what, struct text *ret_refused)
{
	OWNED(text_finish) struct text host = {0};
	const struct addrinfo info = info_of(address);

	describe_address(&info, why, "", ret_what, &host);
	text_addf(ret_refused, "%s%s", ret_refused->length ? ", " : "", text_string(&host));
}

/* Waits for a lookup. */
static bool find_addresses(const struct service_url *url, const char *name_servers, int timeout_ms,
    struct resolver_result *ret_result, struct err *err)
{
	const struct resolver_kind *kind = resolver_kind_of(url);
	struct resolver *resolver = kind->open(url, name_servers, err);
	enum resolver_progress progress = RESOLVER_FAILED;
	const int64_t end = clock_ms() + timeout_ms;

	if (!resolver)
		return false;
	kind->begin(resolver);
	while ((progress = kind->step(resolver, ret_result, err)) == RESOLVER_RUNS) {
		struct pollfd ready = {.fd = kind->fd(resolver), .events = POLLIN};
		int64_t now = clock_ms(), next = kind->deadline(resolver);

		if (now >= end) {
			err_set(
			    err, ERR_RETRY, "the name servers did not answer in %d ms", timeout_ms);
			break;
		}
		next = next < end ? next : end;
		poll(&ready, 1, next > now ? (int)(next - now) : 0);
	}
	kind->close(resolver);
	return progress == RESOLVER_FOUND;
}

static bool try_service(const struct resolver_result *found, const struct http_networks *networks,
    int timeout_ms, struct text *ret_what, struct text *ret_refused)
{
	bool reached = true;

	for (int i = 0; i < found->count; i++) {
		const struct addrinfo info = info_of(&found->rows[i]);
		const char *why = http_guard_address(info.ai_addr, networks);
		int failure = why ? 0 : connect_within(&info, timeout_ms);

		if (why)
			add_refused_address(&found->rows[i], why, ret_what, ret_refused);
		else if (failure)
			describe_address(&info, NULL, strerror(failure), ret_what, ret_refused);
		reached &= !why && !failure;
	}
	return reached;
}

bool http_reach_service(const char *url, const char *name_servers,
    const struct http_networks *networks, int timeout_ms, struct text *ret_what,
    struct text *ret_refused, const char **ret_cure)
{
	OWNED(service_url_finish) struct service_url service = {0};
	owned_text struct resolver_result *found = xcalloc(1, sizeof *found);
	struct err err;

	*ret_cure = "correct url";
	if (!service_url_parse(url, &service, &err)) {
		text_add(ret_what, err.message);
		return false;
	}
	if (!find_addresses(&service, name_servers, timeout_ms, found, &err)) {
		*ret_cure = err.kind == ERR_CONFIG ? "correct name_servers"
						   : resolver_cure(&service, err.kind);
		text_add(ret_what, err.message);
		return false;
	}
	*ret_cure = "start the service there, or remove the address";
	return try_service(found, networks, timeout_ms, ret_what, ret_refused);
}

/* A URL that cannot be read is refused by itself. */
static bool reach_literal_service(const char *url, const struct http_networks *networks,
    struct text *ret_what, struct text *ret_refused)
{
	const unsigned char loopback[] = {127, 0, 0, 1};
	OWNED(service_url_finish) struct service_url service = {0};
	struct err err;

	if (!service_url_parse(url, &service, &err))
		return true;
	if (service.name && strcasecmp(service.name, "localhost") == 0)
		service.addresses[service.address_count++] =
		    service_address_make(AF_INET, loopback, service.port);
	for (int i = 0; i < service.address_count; i++) {
		const struct addrinfo info = info_of(&service.addresses[i]);
		const char *why = http_guard_address(info.ai_addr, networks);

		if (why)
			add_refused_address(&service.addresses[i], why, ret_what, ret_refused);
	}
	return !ret_refused->length;
}

/* --- before a start ------------------------------------------------------------------------ */

bool http_reach_literal(const char *url, const struct http_networks *networks,
    struct text *ret_what, struct text *ret_refused)
{
	const struct addrinfo hints = {
	    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	OWNED(text_finish) struct text host = {0}, port = {0};
	struct addrinfo *found = NULL;
	bool is_local, allowed = false;

	if (service_url_is(url))
		return reach_literal_service(url, networks, ret_what, ret_refused);
	split_reached_url(url, &host, &port);
	is_local = strcasecmp(text_string(&host), "localhost") == 0;
	/* Other checks look at the port; this one is only about the address. */
	if (getaddrinfo(is_local ? "127.0.0.1" : text_string(&host), NULL, &hints, &found) != 0)
		return true;
	for (const struct addrinfo *at = found; at && !allowed; at = at->ai_next) {
		const char *why = http_guard_address(at->ai_addr, networks);

		allowed = !why;
		if (why)
			describe_address(at, why, "", ret_what, ret_refused);
	}
	freeaddrinfo(found);
	return allowed;
}
