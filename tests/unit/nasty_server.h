#pragma once
/*
 * A server of one's own for tests of an HTTP client: it listens on every address of this machine,
 * and what it does with a connection is a function of the test's, in a thread a connection.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct server;
struct ssl_st;

struct peer {
	struct server *server;
	int fd;
	struct ssl_st *ssl; /* NULL: plain */
};

typedef void conversation(struct peer *peer);

struct server_tls {
	const char *certificate_file, *key_file;
	const char *client_ca_file; /* NULL: asks for no certificate */
	bool http2;                 /* says so (ALPN); the conversation has to speak it */
};

/* Counts are as of now; the text of the last request is there when its answer is. */
struct server {
	uint16_t port;
	atomic_int connections, open, most_open, requests;
	char last[8192]; /* head and body */
	conversation *serve;
	struct server_private *private;
};

void server_start(struct server *server, conversation *serve, const struct server_tls *tls);
/* Ends its connections, waits for their threads. */
void server_stop(struct server *server);

/* One request, head and body; false: the peer is gone. */
bool server_read(struct peer *peer);
/* As many bytes as there are, at least one; 0: the peer is gone. */
size_t server_read_some(struct peer *peer, void *bytes, size_t size);
bool server_read_exactly(struct peer *peer, void *bytes, size_t size);
bool server_write(struct peer *peer, const void *bytes, size_t length);
bool server_say(struct peer *peer, const char *text);
/* Until the peer or the server ends the connection, or the time is over (false). */
bool server_await_end(struct peer *peer, int ms);
/* The connection ends with RST. */
void server_reset(struct peer *peer);
