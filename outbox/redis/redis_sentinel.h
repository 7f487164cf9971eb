#pragma once
/*
 * Asks the Sentinels of a url which server is the master now. A connection to the master is lost
 * when it fails or becomes a replica, so the answer is needed for each new connection.
 */
#include <stdint.h>
#include "redis_address.h"

struct redis_sentinel {
	const struct redis_address *address; /* must outlive it; its seeds are the Sentinels */
	int next;                            /* the Sentinel that gets the first question */
};

/*
 * *ret_host: for the caller to free. end: by clock_ms. ERR_RETRY: no Sentinel answers, or none
 * knows the master now. ERR_CONFIG: no Sentinel knows the name, or a server is no Sentinel.
 */
bool redis_sentinel_ask(struct redis_sentinel *sentinel, int64_t end, char **ret_host,
    int *ret_port, struct err *err) MUST_CHECK;
