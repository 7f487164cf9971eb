#pragma once
/* Addresses of listeners, as `listen` of [admin] and [api] has them. */
#include "errors.h"

/*
 * "host:port", "[v6]:port" or "port" (on 127.0.0.1) into the two; both are malloc'ed, the caller
 * frees. ERR_CONFIG when it is none of these.
 */
bool listen_address_parse(
    const char *address, char **ret_host, char **ret_port, struct err *err) MUST_CHECK;
