#pragma once
/* A bound and listening TCP socket from an address in words. Internal to relay/admin. */
#include "errors.h"

/*
 * "host:port", "[v6]:port" or "port" (on 127.0.0.1) into the two; both are malloc'ed, the caller
 * frees. ERR_CONFIG when it is none of these.
 */
bool listener_parse(
    const char *address, char **ret_host, char **ret_port, struct err *err) MUST_CHECK;

/*
 * Non-blocking and close-on-exec. *ret_address: "host:port" as bound, the caller frees. section: of
 * the configuration, "admin" or "api", for messages.
 */
bool listener_open(const char *section, const char *address, int *ret_fd, char **ret_address,
    struct err *err) MUST_CHECK;
