#pragma once
/*
 * A service that is called by a name or by a list of addresses, instead of one URL. Pure.
 *
 *   grpc://shop                               the addresses and ports of its SRV records
 *   grpc://shop:50051/path                    the addresses of the name, and this port
 *   grpc://10.0.0.1:50051,10.0.0.2:50051      these addresses
 *
 * grpcs:// is the same over TLS. Only an operator writes such a URL; http_guard_url refuses it in a
 * message.
 */
#include <netinet/in.h>
#include "errors.h"
#include "text.h"

/* An address with its port. SRV records also give it a priority (lower first) and a weight. */
struct service_address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at;
	int priority, weight;
};

enum { SERVICE_ADDRESSES = 256, SERVICE_ADDRESS_TEXT = 64 };

struct service_url {
	bool tls;
	char *name; /* NULL: the addresses are listed */
	int port;   /* of the name; 0: the SRV records have it */
	struct service_address *addresses;
	int address_count;
	char *path;  /* "" or "/…" */
	char *shown; /* the URL without its path, for people */
};

bool service_url_is(const char *url);
/* ERR_CONFIG: says what to write instead. Finish *ret_url in both cases. */
bool service_url_parse(const char *url, struct service_url *ret_url, struct err *err) MUST_CHECK;
void service_url_finish(struct service_url *url);

/* "10.0.0.1:50051", "[::1]:50051"; text has room for SERVICE_ADDRESS_TEXT bytes. */
void service_address_print(const struct service_address *address, char *text);
/* Same family, address and port? */
bool service_address_equal(const struct service_address *one, const struct service_address *other);
/* family: AF_INET or AF_INET6; bytes: 4 or 16 of them, in network order. */
struct service_address service_address_make(int family, const void *bytes, int port);

/*
 * The URL of a request to one address, and the value for http_request.connect_to ("": none, the URL
 * has the address). A name stays in the URL, so that certificates are checked against it; the port
 * is the port of the address.
 */
void service_url_locate(const struct service_url *url, const struct service_address *address,
    struct text *ret_url, struct text *ret_connect_to);
