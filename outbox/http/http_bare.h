#pragma once
/*
 * The least that posts by libcurl's multi interface, with a handle for each connection: what the
 * sidecar is compared with in `bench`. Blocks.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"

/*
 * Posts the body `count` times, with these headers ("Name: value", NULL-ended). *ret_span_us: from
 * the first request to the last answer. False: an answer was none, or not 2xx.
 */
bool http_bare_post(const char *url, const char *const *headers, const char *body, size_t length,
    int connections, int64_t count, int64_t *ret_span_us, struct err *err) MUST_CHECK;
