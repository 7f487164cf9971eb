#include "nasty_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <openssl/ssl.h>

enum { PEERS = 1024 };

struct server_private {
	int listener;
	pthread_t acceptor;
	SSL_CTX *tls;
	pthread_mutex_t lock; /* over what follows and server->last */
	pthread_t threads[PEERS];
	int fds[PEERS]; /* -1: ended */
	int count;
	bool stopping;
};

struct start {
	struct server *server;
	int place;
};

static void note_open(struct server *server)
{
	int now = atomic_fetch_add(&server->open, 1) + 1;
	int most = atomic_load(&server->most_open);

	while (now > most && !atomic_compare_exchange_weak(&server->most_open, &most, now))
		;
}

static bool shake_hands(struct peer *peer, SSL_CTX *tls)
{
	if (!tls)
		return true;
	peer->ssl = SSL_new(tls);
	SSL_set_fd(peer->ssl, peer->fd);
	return SSL_accept(peer->ssl) == 1;
}

static void *converse(void *argument)
{
	struct start start = *(struct start *)argument;
	struct server_private *private = start.server->private;
	struct peer peer = {start.server, private->fds[start.place], NULL};

	free(argument);
	note_open(start.server);
	if (shake_hands(&peer, private->tls))
		start.server->serve(&peer);
	pthread_mutex_lock(&private->lock);
	private->fds[start.place] = -1;
	pthread_mutex_unlock(&private->lock);
	atomic_fetch_sub(&start.server->open, 1);
	SSL_free(peer.ssl);
	close(peer.fd);
	return NULL;
}

static void begin(struct server *server, int fd)
{
	struct server_private *private = server->private;
	struct start *start = malloc(sizeof *start);

	pthread_mutex_lock(&private->lock);
	if (private->stopping || private->count == PEERS) {
		close(fd);
		free(start);
	} else {
		*start = (struct start){server, private->count};
		private->fds[private->count] = fd;
		atomic_fetch_add(&server->connections, 1);
		if (pthread_create(&private->threads[private->count++], NULL, converse, start))
			abort();
	}
	pthread_mutex_unlock(&private->lock);
}

static void *accept_all(void *argument)
{
	struct server *server = argument;
	int fd;

	while ((fd = accept(server->private->listener, NULL, NULL)) >= 0)
		begin(server, fd);
	return NULL;
}

static int choose_http2(SSL *ssl, const unsigned char **ret_name, unsigned char *ret_length,
    const unsigned char *offered, unsigned int length, void *context)
{
	static const unsigned char ours[] = "\2h2";
	unsigned char *chosen;

	(void)ssl;
	(void)context;
	if (SSL_select_next_proto(&chosen, ret_length, ours, 3, offered, length) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret_name = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *tls_context(const struct server_tls *tls)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());

	assert_int_equal(
	    SSL_CTX_use_certificate_file(context, tls->certificate_file, SSL_FILETYPE_PEM), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(context, tls->key_file, SSL_FILETYPE_PEM), 1);
	/* In TLS 1.3 a client learns only after its request that its certificate is missing. */
	SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
	if (tls->http2)
		SSL_CTX_set_alpn_select_cb(context, choose_http2, NULL);
	if (tls->client_ca_file) {
		assert_int_equal(SSL_CTX_load_verify_file(context, tls->client_ca_file), 1);
		SSL_CTX_set_verify(
		    context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	return context;
}

void server_start(struct server *server, conversation *serve, const struct server_tls *tls)
{
	struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
	socklen_t length = sizeof name;
	struct server_private *private = calloc(1, sizeof *private);
	int no = 0;

	*server = (struct server){.serve = serve, .private = private};
	private->tls = tls ? tls_context(tls) : NULL;
	pthread_mutex_init(&private->lock, NULL);
	private->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(private->listener >= 0);
	setsockopt(private->listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
	assert_int_equal(bind(private->listener, (struct sockaddr *)&name, sizeof name), 0);
	assert_int_equal(listen(private->listener, 512), 0);
	assert_int_equal(getsockname(private->listener, (struct sockaddr *)&name, &length), 0);
	server->port = ntohs(name.sin6_port);
	assert_int_equal(pthread_create(&private->acceptor, NULL, accept_all, server), 0);
}

void server_stop(struct server *server)
{
	struct server_private *private = server->private;

	pthread_mutex_lock(&private->lock);
	private->stopping = true;
	shutdown(private->listener, SHUT_RDWR);
	for (int i = 0; i < private->count; i++) {
		if (private->fds[i] >= 0)
			shutdown(private->fds[i], SHUT_RDWR);
	}
	pthread_mutex_unlock(&private->lock);
	pthread_join(private->acceptor, NULL);
	for (int i = 0; i < private->count; i++)
		pthread_join(private->threads[i], NULL);
	close(private->listener);
	pthread_mutex_destroy(&private->lock);
	SSL_CTX_free(private->tls);
	free(private);
}

size_t server_read_some(struct peer *peer, void *bytes, size_t size)
{
	ssize_t length =
	    peer->ssl ? SSL_read(peer->ssl, bytes, (int)size) : recv(peer->fd, bytes, size, 0);

	return length > 0 ? (size_t)length : 0;
}

bool server_read_exactly(struct peer *peer, void *bytes, size_t size)
{
	while (size) {
		size_t length = server_read_some(peer, bytes, size);
		if (!length)
			return false;
		bytes = (char *)bytes + length;
		size -= length;
	}
	return true;
}

/* How many bytes the request has in all; 0: its head is not complete. */
static size_t expected(const char *request)
{
	const char *end = strstr(request, "\r\n\r\n");
	const char *length = strcasestr(request, "\r\nContent-Length:");

	if (!end)
		return 0;
	return (size_t)(end + 4 - request) +
	       (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
}

bool server_read(struct peer *peer)
{
	struct server *server = peer->server;
	char request[sizeof server->last] = "";
	size_t length = 0;

	while (!expected(request) || length < expected(request)) {
		size_t more = server_read_some(peer, request + length, sizeof request - 1 - length);
		if (!more)
			return false;
		length += more;
		request[length] = '\0';
	}
	pthread_mutex_lock(&server->private->lock);
	memcpy(server->last, request, length + 1);
	pthread_mutex_unlock(&server->private->lock);
	atomic_fetch_add(&server->requests, 1);
	return true;
}

bool server_write(struct peer *peer, const void *bytes, size_t length)
{
	while (length) {
		ssize_t written = peer->ssl ? SSL_write(peer->ssl, bytes, (int)length)
					    : send(peer->fd, bytes, length, MSG_NOSIGNAL);
		if (written <= 0)
			return false;
		bytes = (const char *)bytes + written;
		length -= (size_t)written;
	}
	return true;
}

bool server_say(struct peer *peer, const char *text)
{
	return server_write(peer, text, strlen(text));
}

bool server_await_end(struct peer *peer, int ms)
{
	struct pollfd one = {.fd = peer->fd, .events = POLLRDHUP};

	return poll(&one, 1, ms) != 0;
}

void server_reset(struct peer *peer)
{
	const struct linger at_once = {.l_onoff = 1};

	setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}
