#pragma once
/*
 * The address of a Redis server:
 *
 *   redis://[[user]:password@]host[:port][,host[:port]…][/database]
 *   rediss://…                                          the same, over TLS
 *   redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/master[/database]
 *   rediss+sentinel://…                                 Sentinels, and the name of their master
 *   unix://[[user]:password@]/path/of/its/socket[?db=database]
 *
 * user and password may be percent-encoded; an IPv6 host is written in brackets.
 */
#include <stdbool.h>
#include "errors.h"

/* How to reach the server of a store. Only url is required; NULL: not given. */
struct redis_access {
	char *url;
	char *password_file; /* its first line is the password; read at each connect */
	/*
	 * For rediss://: the certificates to trust (default: those of the machine), and the
	 * client's own certificate with its key. PEM files, read at each connect.
	 */
	char *tls_ca, *tls_certificate, *tls_key;
	char *sentinel_password_file; /* as password_file, for the Sentinels */
};
void redis_access_finish(struct redis_access *access);

struct redis_seed {
	char *host; /* NULL: the socket of the address */
	int port;
};

struct redis_address {
	char *host, *path; /* one of them; the other is NULL. host and port: the first seed */
	int port, database;
	/* The addresses of the url: one server, nodes of a cluster, or Sentinels. */
	struct redis_seed *seeds;
	int seed_count;
	char *master;          /* the name that the Sentinels know; NULL: they are no Sentinels */
	char *user, *password; /* NULL: none */
	char *password_file, *sentinel_password_file;
	bool tls;
	char *tls_ca, *tls_certificate, *tls_key;
	char *place; /* for messages: everything except user and password */
};

/* ERR_CONFIG says which part is wrong, without the password. Finish it in any case. */
bool redis_address_parse(const struct redis_access *access, struct redis_address *ret_address,
    struct err *err) MUST_CHECK;
void redis_address_finish(struct redis_address *address);
/* The same access to another server, without seeds. */
void redis_address_copy(const struct redis_address *from, const char *host, int port,
    struct redis_address *ret_address);
/* A Sentinel: the seed of this number, with its password and without the server's. */
void redis_address_of_sentinel(
    const struct redis_address *from, int number, struct redis_address *ret_address);
/* The first line of password_file, for the caller to free; NULL: ERR_RETRY, it cannot be read. */
char *redis_address_password(const struct redis_address *address, struct err *err);
