#pragma once
/*
 * The address of a Redis server:
 *
 *   redis://[[user]:password@]host[:port][/database]
 *   unix://[[user]:password@]/path/of/its/socket[?db=database]
 *
 * user and password may be percent-encoded; an IPv6 host is written in brackets.
 */
#include <stdbool.h>
#include "errors.h"

struct redis_address {
	char *host, *path; /* one of them; the other is NULL */
	int port, database;
	char *user, *password; /* NULL: none */
	char *place;           /* for messages: everything except user and password */
};

/* ERR_CONFIG says which part is wrong, without the password. Finish it in any case. */
bool redis_address_parse(
    const char *url, struct redis_address *ret_address, struct err *err) MUST_CHECK;
void redis_address_finish(struct redis_address *address);
