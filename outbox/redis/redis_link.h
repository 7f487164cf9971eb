#pragma once
/*
 * A byte stream to a Redis server over TCP or a Unix socket, with TLS if the address says so. No
 * call blocks except redis_link_open and redis_link_wait, which keep a deadline. Private to this
 * folder.
 *
 * With TLS the server's certificate must be valid for the host of the address. Certificates and
 * keys are read from their files at each connect, so that new files need no restart.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "cleanup.h"
#include "redis_address.h"

struct redis_link;

/*
 * Connects, and begins the TLS session. end: by clock_ms; only the resolution of a host name may
 * take longer. ERR_RETRY: no server, no answer, or a certificate that is not valid now; ERR_CONFIG:
 * a file of certificates or a key cannot be used.
 */
struct redis_link *redis_link_open(
    const struct redis_address *address, int64_t end, struct err *err);
void redis_link_close(struct redis_link *link); /* NULL is fine */

/*
 * How many of the bytes were taken, or read into buffer; 0: none now, wait. -1: the stream has
 * ended (redis_link_failure).
 */
ssize_t redis_link_send(struct redis_link *link, const void *bytes, size_t length);
ssize_t redis_link_receive(struct redis_link *link, void *buffer, size_t size);
const char *redis_link_failure(const struct redis_link *link);

/*
 * Waits until bytes may have come, or, if to_send, more bytes can be sent. False: the deadline has
 * passed, or poll failed.
 */
bool redis_link_wait(
    struct redis_link *link, bool to_send, int64_t end, struct err *err) MUST_CHECK;
/* Is the stream open, as far as one can tell without I/O, and has the server sent nothing? */
bool redis_link_is_idle(const struct redis_link *link);
