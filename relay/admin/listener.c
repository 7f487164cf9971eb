#include "listener.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include "cleanup.h"
#include "listen_address.h"
#include "text.h"

/* Connections that may wait while the thread is busy; the kernel lowers this to its own maximum. */
enum { BACKLOG = 4096 };

static int listen_at(const struct addrinfo *at)
{
	int fd = socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1;

	if (fd < 0)
		return -1;
	/* A restart need not wait for the connections of the previous process. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
	    bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	on = errno;
	close(fd);
	errno = on;
	return -1;
}

static char *bound_address(int fd)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getsockname(fd, (struct sockaddr *)&name, &length) != 0 ||
	    getnameinfo((struct sockaddr *)&name, length, host, sizeof host, port, sizeof port,
		NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return xstrdup("?");
	return xformat(name.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static const char *cure_of_bind_error(int error)
{
	switch (error) {
	case EADDRINUSE:
		return "; end the process that listens there or choose another port";
	case EADDRNOTAVAIL:
		return "; this host has no such address";
	case EACCES:
		return "; choose a port from 1024 on";
	default:
		return "";
	}
}

bool listener_open(
    const char *section, const char *address, struct listener *ret_listener, struct err *err)
{
	struct addrinfo wanted = {
	    .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	owned_text char *host = NULL, *port = NULL;
	int error, fd = -1;

	if (!listen_address_parse(address, &host, &port, err))
		return err_prefix(err, "[%s] listen", section);
	error = getaddrinfo(host, port, &wanted, &found);
	if (error != 0)
		return err_set(
		    err, ERR_CONFIG, "[%s] listen = %s: %s", section, address, gai_strerror(error));
	for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
		fd = listen_at(at);
	/* freeaddrinfo may change errno. */
	error = errno;
	freeaddrinfo(found);
	if (fd < 0)
		return err_set(err, ERR_CONFIG, "[%s] listen = %s: %s%s", section, address,
		    strerror(error), cure_of_bind_error(error));
	*ret_listener = (struct listener){fd, bound_address(fd)};
	return true;
}

void listener_close(struct listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	free(listener->address);
	*listener = (struct listener){.fd = -1};
}
