/*
 * The stream under the protocol. [the socket] connects and moves bytes. [TLS] puts a session of
 * OpenSSL between the caller and the socket: OpenSSL reads and writes memory, and the same two
 * functions move its records, so that deadlines and SIGPIPE are handled in one place.
 */
#include "redis_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "clock.h"
#include "text.h"

enum { RECORDS = 64 << 10 /* bytes of records that wait to be sent */ };

struct redis_link {
	int fd;
	char *place;
	char *failure;        /* NULL: the stream is open */
	SSL *tls;             /* NULL: without */
	BIO *incoming;        /* memory: records for OpenSSL to read */
	struct text outgoing; /* records that OpenSSL wrote, of which `sent` bytes are gone */
	size_t sent;
};

static bool refuse_link(
    const struct redis_link *link, enum err_kind kind, const char *why, struct err *err)
{
	return err_set(err, kind, "%s: %s", link->place, why);
}

static bool fail_connect(const struct redis_link *link, const char *why, struct err *err)
{
	return err_set(err, ERR_RETRY, "%s: %s; does the server run?", link->place, why);
}

static ssize_t end_link(struct redis_link *link, const char *why)
{
	if (!link->failure)
		link->failure = xstrdup(why);
	return -1;
}

const char *redis_link_failure(const struct redis_link *link)
{
	return link->failure ? link->failure : "";
}

/* --- the socket ------------------------------------------------------------------------------ */

static bool poll_redis_socket(struct redis_link *link, short events, int64_t end, struct err *err)
{
	struct pollfd wanted = {.fd = link->fd, .events = events};

	for (;;) {
		int64_t left = end - clock_ms();
		int ready = left > 0 ? poll(&wanted, 1, (int)left) : 0;

		if (ready > 0)
			return true;
		if (ready == 0)
			return refuse_link(link, ERR_RETRY, "no answer within the timeout", err);
		if (errno != EINTR)
			return fail_connect(link, strerror(errno), err);
	}
}

/* MSG_NOSIGNAL: a connection that was closed must not end the application by SIGPIPE. */
static ssize_t send_to_socket(struct redis_link *link, const void *bytes, size_t length)
{
	ssize_t count;

	do
		count = send(link->fd, bytes, length, MSG_NOSIGNAL);
	while (count < 0 && errno == EINTR);
	if (count >= 0 || errno == EAGAIN || errno == EWOULDBLOCK)
		return count < 0 ? 0 : count;
	return end_link(link, strerror(errno));
}

static ssize_t receive_from_socket(struct redis_link *link, void *buffer, size_t size)
{
	ssize_t count;

	do
		count = recv(link->fd, buffer, size, 0);
	while (count < 0 && errno == EINTR);
	if (count > 0)
		return count;
	if (count == 0)
		return end_link(link, "the server closed the connection");
	return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : end_link(link, strerror(errno));
}

static bool finish_connect(struct redis_link *link, int64_t end, struct err *err)
{
	int failure = 0;
	socklen_t size = sizeof failure;

	if (!poll_redis_socket(link, POLLOUT, end, err))
		return false;
	getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
	return failure == 0 || fail_connect(link, strerror(failure), err);
}

static bool connect_socket(struct redis_link *link, int family, const void *address, socklen_t size,
    int64_t end, struct err *err)
{
	link->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (link->fd < 0)
		return fail_connect(link, strerror(errno), err);

	if (family != AF_UNIX)
		/* a batch is one write already, and nothing is gained by waiting for more */
		setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	int failure = connect(link->fd, address, size) == 0 ? 0 : errno;
	if (failure == 0 || (failure == EINPROGRESS && finish_connect(link, end, err)))
		return true;

	/* otherwise finish_connect has set *err */
	if (failure != EINPROGRESS)
		fail_connect(link, strerror(failure), err);
	close(link->fd);
	link->fd = -1;
	return false;
}

static bool connect_path(struct redis_link *link, const char *path, int64_t end, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof address.sun_path)
		return refuse_link(link, ERR_CONFIG, "the path of its socket is too long", err);
	memcpy(address.sun_path, path, strlen(path) + 1);
	return connect_socket(link, AF_UNIX, &address, sizeof address, end, err);
}

/* Tries the addresses of the host in their order; each gets an equal part of the time left. */
static bool connect_host(
    struct redis_link *link, const struct redis_address *address, int64_t end, struct err *err)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	owned_text char *port = xformat("%d", address->port);
	struct addrinfo *found = NULL;
	int count = 0, code = getaddrinfo(address->host, port, &hints, &found);
	bool connected = false;

	if (code)
		return fail_connect(link, gai_strerror(code), err);
	for (struct addrinfo *at = found; at; at = at->ai_next)
		count++;
	for (struct addrinfo *at = found; at && !connected; at = at->ai_next) {
		int64_t now = clock_ms(), until = now + (end - now) / count--;
		connected =
		    connect_socket(link, at->ai_family, at->ai_addr, at->ai_addrlen, until, err);
	}
	freeaddrinfo(found);
	return connected;
}

/* --- TLS ------------------------------------------------------------------------------------- */

/* ERR_RETRY: a certificate and its key are two files, which nobody can replace at one moment. */
static bool refuse_file(
    const struct redis_link *link, const char *what, const char *file, struct err *err)
{
	unsigned long code = ERR_peek_error();
	const char *reason =
	    ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);

	return err_set(err, ERR_RETRY, "%s: %s %s cannot be used: %s", link->place, what, file,
	    reason ? reason : "OpenSSL names no reason");
}

/* Without it OpenSSL asks on the terminal, and waits. */
static int refuse_passphrase(char *buffer, int size, int writing, void *context)
{
	(void)buffer;
	(void)size;
	(void)writing;
	(void)context;
	return 0;
}

static bool load_files(const struct redis_link *link, SSL_CTX *context,
    const struct redis_address *address, struct err *err)
{
	ERR_clear_error();
	if (!address->tls_ca)
		SSL_CTX_set_default_verify_paths(context);
	else if (!SSL_CTX_load_verify_file(context, address->tls_ca))
		return refuse_file(link, "tls_ca", address->tls_ca, err);
	if (!address->tls_certificate)
		return true;

	SSL_CTX_set_default_passwd_cb(context, refuse_passphrase);
	if (SSL_CTX_use_certificate_chain_file(context, address->tls_certificate) != 1)
		return refuse_file(link, "tls_certificate", address->tls_certificate, err);
	/* also compares the key with the certificate */
	if (SSL_CTX_use_PrivateKey_file(context, address->tls_key, SSL_FILETYPE_PEM) != 1)
		return refuse_file(link, "tls_key", address->tls_key, err);
	return true;
}

static bool is_ip(const char *host)
{
	unsigned char bytes[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool expect_host(SSL *tls, const char *host)
{
	if (is_ip(host))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host);
	return SSL_set_tlsext_host_name(tls, host) && SSL_set1_host(tls, host);
}

static bool make_tls(struct redis_link *link, const struct redis_address *address, struct err *err)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	BIO *outgoing = BIO_new(BIO_s_mem());

	link->incoming = BIO_new(BIO_s_mem());
	if (!context || !outgoing || !link->incoming)
		abort(); /* no memory */
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	BIO_set_mem_eof_return(link->incoming, -1); /* empty: wait, and no end */

	bool loaded = load_files(link, context, address, err);
	if (loaded) {
		link->tls = SSL_new(context);
		SSL_set_bio(link->tls, link->incoming, outgoing);
		SSL_set_connect_state(link->tls);
		loaded = expect_host(link->tls, address->host) ||
			 refuse_link(link, ERR_CONFIG, "its host is no name for TLS", err);
	} else {
		BIO_free(link->incoming);
		BIO_free(outgoing);
	}
	SSL_CTX_free(context);
	return loaded;
}

/* Sends the records that OpenSSL has written. False: the stream has ended. */
static bool flush_records(struct redis_link *link)
{
	char buffer[16384];
	ssize_t count = 1;
	int written;

	while ((written = BIO_read(SSL_get_wbio(link->tls), buffer, sizeof buffer)) > 0)
		text_append(&link->outgoing, buffer, (size_t)written);
	while (link->sent < link->outgoing.length && count > 0) {
		count = send_to_socket(
		    link, link->outgoing.data + link->sent, link->outgoing.length - link->sent);
		link->sent += count > 0 ? (size_t)count : 0;
	}
	if (link->sent == link->outgoing.length) {
		text_clear(&link->outgoing);
		link->sent = 0;
	}
	return count >= 0;
}

static bool has_records(const struct redis_link *link)
{
	return link->tls && link->outgoing.length > link->sent;
}

/* Gives OpenSSL what has come. 0: nothing. -1: the stream has ended. */
static ssize_t feed_records(struct redis_link *link)
{
	char buffer[16384];
	ssize_t count = receive_from_socket(link, buffer, sizeof buffer);

	if (count > 0)
		BIO_write(link->incoming, buffer, (int)count);
	return count;
}

static const char *tls_failure(const struct redis_link *link)
{
	long verdict = SSL_get_verify_result(link->tls);
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	if (verdict != X509_V_OK)
		return X509_verify_cert_error_string(verdict);
	return reason ? reason : "the TLS session has ended";
}

static bool refuse_session(const struct redis_link *link, const char *why, struct err *err)
{
	return err_set(err, ERR_RETRY,
	    "%s: no TLS session: %s; does this port speak TLS, is the server's certificate of "
	    "tls_ca and for this host, and does it want a client's (tls_certificate)?",
	    link->place, why);
}

static bool begin_session(struct redis_link *link, int64_t end, struct err *err)
{
	for (;;) {
		ERR_clear_error();
		int result = SSL_do_handshake(link->tls);
		int state = SSL_get_error(link->tls, result);

		/* A refusal is sent before the stream ends, so that the server's log has it. */
		bool open = flush_records(link);
		if (result == 1 && open)
			return true;
		if (result != 1 && state != SSL_ERROR_WANT_READ && state != SSL_ERROR_WANT_WRITE)
			return refuse_session(link, tls_failure(link), err);

		ssize_t fed = open ? feed_records(link) : -1;
		if (fed < 0)
			return refuse_session(link, link->failure, err);
		if (fed == 0 && !redis_link_wait(link, false, end, err))
			return refuse_session(link, "no answer within the timeout", err);
	}
}

static ssize_t send_by_tls(struct redis_link *link, const void *bytes, size_t length)
{
	if (!flush_records(link))
		return -1;
	/* OpenSSL's memory takes any number of bytes: the bound keeps what waits small */
	if (link->outgoing.length - link->sent >= RECORDS)
		return 0;
	if (length > RECORDS)
		length = RECORDS;

	ERR_clear_error();
	int count = SSL_write(link->tls, bytes, (int)length);
	if (count <= 0)
		return end_link(link, tls_failure(link));
	return flush_records(link) ? count : -1;
}

static ssize_t receive_by_tls(struct redis_link *link, void *buffer, size_t size)
{
	for (;;) {
		ERR_clear_error();
		int count = SSL_read(link->tls, buffer, (int)size);
		int state = count > 0 ? SSL_ERROR_NONE : SSL_get_error(link->tls, count);

		if (count > 0)
			return count;
		if (state == SSL_ERROR_ZERO_RETURN)
			return end_link(link, "the server closed the connection");
		if (state != SSL_ERROR_WANT_READ)
			return end_link(link, tls_failure(link));
		/* the records that OpenSSL read may need an answer */
		if (!flush_records(link))
			return -1;
		/* a server that refuses the client's certificate says so only now */
		ssize_t fed = feed_records(link);
		if (fed <= 0)
			return fed;
	}
}

/* --- both ------------------------------------------------------------------------------------ */

struct redis_link *redis_link_open(
    const struct redis_address *address, int64_t end, struct err *err)
{
	struct redis_link *link = xcalloc(1, sizeof *link);
	bool open;

	link->fd = -1;
	link->place = xstrdup(address->place);
	open = address->path ? connect_path(link, address->path, end, err)
			     : connect_host(link, address, end, err);
	if (open && address->tls)
		open = make_tls(link, address, err) && begin_session(link, end, err);
	if (open)
		return link;
	redis_link_close(link);
	return NULL;
}

void redis_link_close(struct redis_link *link)
{
	if (!link)
		return;
	SSL_free(link->tls);
	if (link->fd >= 0)
		close(link->fd);
	text_finish(&link->outgoing);
	free(link->failure);
	free(link->place);
	free(link);
}

ssize_t redis_link_send(struct redis_link *link, const void *bytes, size_t length)
{
	if (link->failure)
		return -1;
	return link->tls ? send_by_tls(link, bytes, length) : send_to_socket(link, bytes, length);
}

ssize_t redis_link_receive(struct redis_link *link, void *buffer, size_t size)
{
	if (link->failure)
		return -1;
	return link->tls ? receive_by_tls(link, buffer, size)
			 : receive_from_socket(link, buffer, size);
}

bool redis_link_wait(struct redis_link *link, bool to_send, int64_t end, struct err *err)
{
	short events = (short)(POLLIN | (to_send || has_records(link) ? POLLOUT : 0));

	if (!poll_redis_socket(link, events, end, err))
		return false;
	if (link->tls)
		(void)flush_records(link); /* the next call of redis_link_receive shows a failure */
	return true;
}

bool redis_link_is_idle(const struct redis_link *link)
{
	struct pollfd idle = {.fd = link->fd, .events = POLLIN};

	return !link->failure && poll(&idle, 1, 0) == 0;
}
