#pragma once
/*
 * The smallest code that posts by libcurl's multi interface, with a handle for each connection:
 * `bench` compares the sidecar with it. Blocks.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"

/*
 * Posts the body `count` times, with these headers ("Name: value", NULL-ended). *ret_span_us: from
 * the first request to the last answer. False: a request had no answer, or its status was not 2xx.
 */
bool http_bare_post(const char *url, const char *const *headers, const char *body, size_t length,
    int connections, int64_t count, int64_t *ret_span_us, struct err *err) MUST_CHECK;
