#include "service_url.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "http_guard.h"
#include "http_list.h"

static const char plain[] = "grpc://", secure[] = "grpcs://";
static const char forms[] = "write grpc://NAME, grpc://NAME:PORT, or a list of addresses as "
			    "grpc://10.0.0.1:50051,10.0.0.2:50051";

bool service_url_is(const char *url)
{
	return strncasecmp(url, plain, sizeof plain - 1) == 0 ||
	       strncasecmp(url, secure, sizeof secure - 1) == 0;
}

/* --- addresses --------------------------------------------------------------------------- */

struct service_address service_address_make(int family, const void *bytes, int port)
{
	struct service_address made = {0};

	made.at.any.sa_family = (sa_family_t)family;
	if (family == AF_INET) {
		made.at.v4.sin_port = htons((uint16_t)port);
		memcpy(&made.at.v4.sin_addr, bytes, sizeof made.at.v4.sin_addr);
	} else {
		made.at.v6.sin6_port = htons((uint16_t)port);
		memcpy(&made.at.v6.sin6_addr, bytes, sizeof made.at.v6.sin6_addr);
	}
	return made;
}

static int port_of_address(const struct service_address *address)
{
	return ntohs(address->at.any.sa_family == AF_INET ? address->at.v4.sin_port
							  : address->at.v6.sin6_port);
}

/* "10.0.0.1", "[::1]" */
static void print_host(const struct service_address *address, char *text)
{
	char plain_text[INET6_ADDRSTRLEN] = "";
	bool is_v4 = address->at.any.sa_family == AF_INET;

	inet_ntop(address->at.any.sa_family,
	    is_v4 ? (const void *)&address->at.v4.sin_addr
		  : (const void *)&address->at.v6.sin6_addr,
	    plain_text, sizeof plain_text);
	snprintf(text, SERVICE_ADDRESS_TEXT, is_v4 ? "%s" : "[%s]", plain_text);
}

void service_address_print(const struct service_address *address, char *text)
{
	size_t length;

	print_host(address, text);
	length = strlen(text);
	snprintf(text + length, SERVICE_ADDRESS_TEXT - length, ":%d", port_of_address(address));
}

bool service_address_equal(const struct service_address *one, const struct service_address *other)
{
	if (one->at.any.sa_family != other->at.any.sa_family ||
	    port_of_address(one) != port_of_address(other))
		return false;
	if (one->at.any.sa_family == AF_INET)
		return one->at.v4.sin_addr.s_addr == other->at.v4.sin_addr.s_addr;
	return memcmp(&one->at.v6.sin6_addr, &other->at.v6.sin6_addr,
		   sizeof one->at.v6.sin6_addr) == 0;
}

/* --- the URL ------------------------------------------------------------------------------ */

/* A host with its port, as it was written. */
struct service_entry {
	char *host; /* without brackets */
	int port;   /* 0: none was written */
};

static void service_entry_finish(struct service_entry *entry)
{
	free(entry->host);
}

static bool split_entry(const char *text, struct service_entry *ret_entry, struct err *err)
{
	bool bracketed = *text == '[';
	size_t length = bracketed ? strcspn(++text, "]") : strcspn(text, ":");
	const char *rest = text + length + (bracketed && text[length]);
	int64_t port;

	ret_entry->host = strndup(text, length);
	if (!*rest && !(bracketed && !text[length]))
		return true;
	if (*rest != ':' || !text_to_int64(rest + 1, 1, 65535, &port))
		return err_set(err, ERR_CONFIG,
		    "\"%.100s\": behind the host comes \":\" and a port from 1 to 65535; %s", text,
		    forms);
	ret_entry->port = (int)port;
	return true;
}

/* The same checks as for the host, port and path of any other URL. */
static bool check_entry(
    const struct service_url *url, const struct service_entry *entry, struct err *err)
{
	bool is_v6 = strchr(entry->host, ':');
	owned_text char *whole = xformat("http://%s%s%s:%d%s", is_v6 ? "[" : "", entry->host,
	    is_v6 ? "]" : "", entry->port ? entry->port : 1, url->path);
	struct refusal refusal;

	return http_guard_form(whole, &refusal) ||
	       err_set(err, ERR_CONFIG, "%s; %s", refusal.text, forms);
}

static bool read_literal(const struct service_entry *entry, struct service_address *ret_address)
{
	unsigned char bytes[16];
	int family = strchr(entry->host, ':') ? AF_INET6 : AF_INET;

	if (inet_pton(family, entry->host, bytes) != 1)
		return false;
	*ret_address = service_address_make(family, bytes, entry->port);
	return true;
}

static bool add_entry(
    struct service_url *url, const struct service_entry *entry, int number, struct err *err)
{
	struct service_address address;

	if (!check_entry(url, entry, err))
		return false;
	if (!read_literal(entry, &address)) {
		/* Names would need a time to live each; one name can have any number of addresses.
		 */
		if (number || url->name)
			return err_set(err, ERR_CONFIG,
			    "a list holds addresses only; \"%.100s\" is a name, which must be the "
			    "only entry",
			    url->name ? url->name : entry->host);
		url->name = xstrdup(entry->host);
		url->port = entry->port;
		return true;
	}
	if (url->name)
		return err_set(err, ERR_CONFIG,
		    "a list holds addresses only; \"%.100s\" is a name, which must be the only "
		    "entry",
		    url->name);
	/* Only a name has SRV records to say the port. */
	if (!entry->port)
		return err_set(err, ERR_CONFIG,
		    "the address %.100s has no port; write for example %.100s:50051", entry->host,
		    entry->host);
	if (url->address_count == SERVICE_ADDRESSES)
		return err_set(
		    err, ERR_CONFIG, "the list has more than %d addresses", SERVICE_ADDRESSES);
	url->addresses[url->address_count++] = address;
	return true;
}

static bool add_entries(struct service_url *url, const char *list, struct err *err)
{
	int number = 0;

	url->addresses = xcalloc(SERVICE_ADDRESSES, sizeof *url->addresses);
	for (;; number++) {
		OWNED(service_entry_finish) struct service_entry entry = {0};
		owned_text char *text = http_list_next(&list);

		if (!text)
			break;
		if (!split_entry(text, &entry, err) || !add_entry(url, &entry, number, err))
			return false;
	}
	return number || err_set(err, ERR_CONFIG, "it names no host; %s", forms);
}

bool service_url_parse(const char *url, struct service_url *ret_url, struct err *err)
{
	const char *list = strstr(url, "://") + 3;
	size_t length = strcspn(list, "/?#");
	owned_text char *hosts = strndup(list, length);

	*ret_url = (struct service_url){0};
	ret_url->tls = strncasecmp(url, secure, sizeof secure - 1) == 0;
	ret_url->path = xstrdup(list + length);
	ret_url->shown = xformat("%s%s", ret_url->tls ? secure : plain, hosts);
	if (strpbrk(url, "?#"))
		return err_set(err, ERR_CONFIG, "the URL of a gRPC service has no query");
	return add_entries(ret_url, hosts, err);
}

void service_url_finish(struct service_url *url)
{
	free(url->name);
	free(url->addresses);
	free(url->path);
	free(url->shown);
	*url = (struct service_url){0};
}

void service_url_locate(const struct service_url *url, const struct service_address *address,
    struct text *ret_url, struct text *ret_connect_to)
{
	char host[SERVICE_ADDRESS_TEXT];

	print_host(address, host);
	text_addf(ret_url, "%s://%s:%d%s", url->tls ? "https" : "http",
	    url->name ? url->name : host, port_of_address(address), url->path);
	if (url->name)
		text_addf(ret_connect_to, "::%s:", host);
}
