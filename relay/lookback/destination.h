#pragma once
/*
 * Where a question about a message goes: the [check] section that route.h finds for it, and the
 * called host, which has limits and a breaker of its own. Without I/O.
 */
#include "route.h"

enum { DESTINATION_HOST = 320 };

struct destination {
	int service;                 /* its place among the [check] sections; -1: none */
	char host[DESTINATION_HOST]; /* "host:port"; "sql <section>" of a database, "grpc <section>"
					of grpc:// */
	struct refusal refusal;      /* why none */
};

/* NULL service or url: the message names none. config: the one that the route was made of. */
struct destination destination_find(const struct route *route, const struct config *config,
    const struct config_lookback *section, const char *biz_type, const char *service,
    const char *url);
