#pragma once
/*
 * A bound and listening TCP socket from an address in words. The daemon opens those of its
 * configuration before it does anything else, and hands them to admin_start and api_start.
 */
#include "errors.h"

struct listener {
	int fd;        /* non-blocking and close-on-exec; -1: none */
	char *address; /* "host:port", as bound */
};

/*
 * section: "admin" or "api", for error messages. An address that cannot be bound (occupied, not of
 * this host, privileged) is ERR_CONFIG: a later try would fail, too.
 */
bool listener_open(const char *section, const char *address, struct listener *ret_listener,
    struct err *err) MUST_CHECK;
void listener_close(struct listener *listener);
