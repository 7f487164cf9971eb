#include "admin_client.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "cleanup.h"
#include "clock.h"
#include "listen_address.h"

enum { MOST_BYTES = 1 << 20 };

struct exchange {
	int fd;
	int64_t until; /* clock_ms */
};

static bool wait_for_socket(const struct exchange *exchange, short events)
{
	struct pollfd fd = {.fd = exchange->fd, .events = events};
	int64_t left = exchange->until - clock_ms();

	/* poll sets no errno when the time is over, and the callers report errno */
	errno = ETIMEDOUT;
	return left > 0 && poll(&fd, 1, (int)left) > 0;
}

static int connect_at(const struct addrinfo *at, int64_t until)
{
	struct exchange exchange = {
	    socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), until};
	int error = 0;
	socklen_t length = sizeof error;

	if (exchange.fd < 0)
		return -1;
	if (connect(exchange.fd, at->ai_addr, at->ai_addrlen) == 0)
		return exchange.fd;
	if (errno == EINPROGRESS && wait_for_socket(&exchange, POLLOUT) &&
	    getsockopt(exchange.fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0)
		return exchange.fd;

	/* close may change errno, and the caller reports the reason of the failure */
	error = error ? error : errno;
	close(exchange.fd);
	errno = error;
	return -1;
}

static bool connect_to(const char *listen, struct exchange *exchange, struct err *err)
{
	owned_text char *host = NULL, *port = NULL;
	struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	int error;

	if (!listen_address_parse(listen, &host, &port, err))
		return false;
	/* Without a name the resolver gives this host's own addresses. */
	error = getaddrinfo(text_equal(host, "0.0.0.0") || text_equal(host, "::") ? NULL : host,
	    port, &wanted, &found);
	if (error != 0)
		return err_set(err, ERR_CONFIG, "%s: %s", listen, gai_strerror(error));
	exchange->fd = -1;
	for (const struct addrinfo *at = found; at && exchange->fd < 0; at = at->ai_next)
		exchange->fd = connect_at(at, exchange->until);
	error = errno;
	freeaddrinfo(found);
	return exchange->fd >= 0 ||
	       err_set(err, ERR_RETRY, "no relay answers at %s: %s", listen, strerror(error));
}

static bool send_whole_request(const struct exchange *exchange, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(exchange->fd, bytes, length, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN)
			return false;
		if (sent < 0 && !wait_for_socket(exchange, POLLOUT))
			return false;
		bytes += sent > 0 ? sent : 0;
		length -= sent > 0 ? (size_t)sent : 0;
	}
	return true;
}

/* Reads to the end of the connection, which `Connection: close` asks for. */
static bool receive_all(const struct exchange *exchange, struct text *answer)
{
	char part[4096];

	/* bounds the memory: another program may listen at this address and send without end */
	while (answer->length < MOST_BYTES) {
		ssize_t length = recv(exchange->fd, part, sizeof part, 0);

		if (length == 0)
			return true;
		if (length < 0 && errno != EAGAIN)
			return false;
		if (length < 0 && !wait_for_socket(exchange, POLLIN))
			return false;
		if (length > 0)
			text_append(answer, part, (size_t)length);
	}
	errno = EMSGSIZE;
	return false;
}

static bool exchange_texts(const char *listen, const char *request, size_t length, int timeout_ms,
    struct text *answer, struct err *err)
{
	struct exchange exchange = {.until = clock_ms() + timeout_ms};
	bool done;

	if (!connect_to(listen, &exchange, err))
		return false;
	done = send_whole_request(&exchange, request, length) && receive_all(&exchange, answer);
	close(exchange.fd);
	return done || err_set(err, ERR_RETRY, "no answer from %s: %s", listen, strerror(errno));
}

static void write_request(const struct admin_order *order, struct text *request)
{
	text_addf(request, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
	    order->body ? "POST" : "GET", order->path);
	if (order->token)
		text_addf(request, "Authorization: Bearer %s\r\n", order->token);
	if (order->body)
		text_addf(request, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
		    strlen(order->body));
	text_addf(request, "\r\n%s", order->body ? order->body : "");
}

bool admin_ask(const char *listen, const struct admin_order *order, int *ret_status,
    struct text *body, struct err *err)
{
	OWNED(text_finish) struct text request = {0}, answer = {0};
	const char *found;

	write_request(order, &request);
	if (!exchange_texts(
		listen, text_string(&request), request.length, order->timeout_ms, &answer, err))
		return false;
	found = strstr(text_string(&answer), "\r\n\r\n");

	/* another program may listen at this address */
	if (!found || !text_starts(answer.data, "HTTP/1.") || answer.length < 12)
		return err_set(err, ERR_RETRY, "what answers at %s speaks no HTTP", listen);
	*ret_status = (int)strtol(answer.data + strlen("HTTP/1.1 "), NULL, 10);
	text_add(body, found + 4);
	return true;
}

bool admin_get(const char *listen, const char *path, int timeout_ms, int *ret_status,
    struct text *body, struct err *err)
{
	const struct admin_order order = {.path = path, .timeout_ms = timeout_ms};

	return admin_ask(listen, &order, ret_status, body, err);
}
