#pragma once
/* Addresses of listeners, for `listen` of [admin] and [api]. */
#include "errors.h"

/*
 * "host:port", "[v6]:port" or "port" (on 127.0.0.1) is split into two malloc'ed strings, which the
 * caller frees. ERR_CONFIG: the text has none of these forms; the caller prefixes its section.
 */
bool listen_address_parse(
    const char *address, char **ret_host, char **ret_port, struct err *err) MUST_CHECK;
