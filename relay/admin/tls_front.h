#pragma once
/*
 * TLS in front of a gate (gate.h). One thread (libevent, OpenSSL) speaks TLS with the clients and
 * passes the bytes through a pair of sockets, so that the gate and libmicrohttpd see plain HTTP.
 * TLS 1.2 and 1.3. Internal to relay/admin.
 *
 * Changed files of certificate and key are read before the next connection, a second later at
 * most. While they are wrong, for example because only one of them is new, the pair that was read
 * before stays.
 */
#include <stdint.h>
#include "errors.h"

struct tls_front;

struct tls_front_settings {
	const char *section;           /* "admin" or "api" */
	const char *certificate, *key; /* paths of PEM files; the certificate with its chain */
	int leaving;                   /* most clients that leave; the first of them makes room */
	int64_t leave_ms; /* for a client to read the rest of its answer and to close */
};

/* Reads the files. ERR_CONFIG: names section and key. Copies the settings' texts. */
struct tls_front *tls_front_start(const struct tls_front_settings *settings, struct err *err);
/*
 * The other ends are closed by now; clients have at most two seconds to read their answers. NULL is
 * fine.
 */
void tls_front_stop(struct tls_front *front);

/* What tls_front_start would refuse. */
bool tls_front_check(const struct tls_front_settings *settings, struct err *err) MUST_CHECK;

/*
 * Takes over the socket of a client, also when it fails. Returns the other end of its bytes in
 * plain text, non-blocking and the caller's to close; -1: no descriptors. Any thread.
 */
int tls_front_add(struct tls_front *front, int fd);
/* Clients that have a descriptor, also those that leave. Any thread. */
int tls_front_count(const struct tls_front *front);
