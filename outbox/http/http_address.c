#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "cleanup.h"
#include "http_guard.h"
#include "http_list.h"
#include "text.h"

struct special {
	const char *network;
	int bits;
	const char *code; /* NULL: public */
};

/*
 * The first row that fits decides. The rows are the IANA registries of special-purpose addresses
 * (RFC 6890 and its successors), read strictly, and the addresses where clouds serve credentials.
 */
static const struct special special_v4[] = {
    {"169.254.169.254", 32, "metadata"},
    {"168.63.129.16", 32, "metadata"}, /* Azure's; it looks public */
    {"255.255.255.255", 32, "broadcast"},
    {"0.0.0.0", 8, "unspecified"},
    {"10.0.0.0", 8, "private"},
    {"100.64.0.0", 10, "cgnat"},
    {"127.0.0.0", 8, "loopback"},
    {"169.254.0.0", 16, "link_local"},
    {"172.16.0.0", 12, "private"},
    {"192.0.0.0", 24, "reserved"},
    {"192.0.2.0", 24, "documentation"},
    {"192.88.99.0", 24, "reserved"}, /* relays of 6to4 */
    {"192.168.0.0", 16, "private"},
    {"198.18.0.0", 15, "benchmark"},
    {"198.51.100.0", 24, "documentation"},
    {"203.0.113.0", 24, "documentation"},
    {"224.0.0.0", 4, "multicast"},
    {"240.0.0.0", 4, "reserved"},
    {"0.0.0.0", 0, NULL},
};

static const struct special special_v6[] = {
    {"fd00:ec2::254", 128, "metadata"}, {"::", 128, "unspecified"}, {"::1", 128, "loopback"},
    {"::", 96, "v4_in_v6"},           /* IPv4-compatible */
    {"::ffff:0:0", 96, "v4_in_v6"},   /* IPv4-mapped */
    {"::ffff:0:0:0", 96, "v4_in_v6"}, /* IPv4-translated */
    {"64:ff9b:1::", 48, "v4_in_v6"},  /* NAT64 within a local network */
    {"2001::", 32, "v4_in_v6"},       /* Teredo */
    {"2002::", 16, "v4_in_v6"},       /* 6to4 */
    {"2001:2::", 48, "benchmark"}, {"2001::", 23, "reserved"}, {"2001:db8::", 32, "documentation"},
    {"3fff::", 20, "documentation"}, {"fc00::", 7, "private"}, {"fe80::", 10, "link_local"},
    {"fec0::", 10, "site_local"}, {"ff00::", 8, "multicast"}, {"2000::", 3, NULL},
    {"::", 0, "reserved"}, /* IANA has assigned nothing else */
};

static const struct http_network nat64 = {AF_INET6, {0, 0x64, 0xff, 0x9b}, 96};

static bool is_in_network(const unsigned char *address, const unsigned char *network, int bits)
{
	int whole = bits / 8, rest = bits % 8;

	if (memcmp(address, network, (size_t)whole) != 0)
		return false;
	return !rest || (address[whole] ^ network[whole]) >> (8 - rest) == 0;
}

static const char *special_code(
    int family, const unsigned char *address, const struct special *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		unsigned char network[16];
		if (inet_pton(family, rows[i].network, network) == 1 &&
		    is_in_network(address, network, rows[i].bits))
			return rows[i].code;
	}
	return "reserved";
}

static bool address_is_allowed(
    int family, const unsigned char *address, const struct http_networks *allowed)
{
	for (size_t i = 0; allowed && i < allowed->count; i++) {
		const struct http_network *row = &allowed->rows[i];
		if (row->family == family && is_in_network(address, row->address, row->bits))
			return true;
	}
	return false;
}

static const char *check_v4(const unsigned char *address, const struct http_networks *allowed)
{
	if (address_is_allowed(AF_INET, address, allowed))
		return NULL;
	return special_code(AF_INET, address, special_v4, sizeof special_v4 / sizeof *special_v4);
}

static const char *check_v6(const unsigned char *address, const struct http_networks *allowed)
{
	if (address_is_allowed(AF_INET6, address, allowed))
		return NULL;
	if (is_in_network(address, nat64.address, nat64.bits))
		return check_v4(address + 12, allowed);
	return special_code(AF_INET6, address, special_v6, sizeof special_v6 / sizeof *special_v6);
}

const char *http_guard_address(const struct sockaddr *address, const struct http_networks *allowed)
{
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
		return check_v4((const unsigned char *)&v4->sin_addr, allowed);
	}
	if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
		return check_v6((const unsigned char *)&v6->sin6_addr, allowed);
	}
	return "family";
}

/* Clears the bits behind the prefix; false: some were set. */
static bool mask_host_bits(unsigned char *address, int length, int bits)
{
	bool clean = true;

	for (int i = 0; i < length; i++) {
		int keep = bits - 8 * i;
		unsigned char kept = keep >= 8  ? 0xff
				     : keep > 0 ? (unsigned char)(0xff << (8 - keep))
						: 0;
		clean &= !(address[i] & ~kept);
		address[i] &= kept;
	}
	return clean;
}

static bool network_parse(char *entry, struct http_network *ret_row, struct err *err)
{
	struct http_network row = {.family = strchr(entry, ':') ? AF_INET6 : AF_INET};
	int longest = row.family == AF_INET ? 32 : 128;
	char *slash = strchr(entry, '/');
	char plain[INET6_ADDRSTRLEN];
	int64_t bits = longest;

	if (slash)
		*slash = '\0';
	if (inet_pton(row.family, entry, row.address) != 1)
		return err_set(err, ERR_CONFIG,
		    "not an address: write 10.2.0.0/16, 192.0.2.7 or fd12:3456::/32");
	if (slash && !text_to_int64(slash + 1, 0, longest, &bits))
		return err_set(
		    err, ERR_CONFIG, "behind \"/\" comes a number from 0 to %d", longest);
	row.bits = (int)bits;
	/* Such an entry is ambiguous: the prefix or the address may be the mistake. */
	if (!mask_host_bits(row.address, longest / 8, row.bits))
		return err_set(err, ERR_CONFIG,
		    "the address has bits behind its prefix: write %s/%d",
		    inet_ntop(row.family, row.address, plain, sizeof plain), row.bits);
	*ret_row = row;
	return true;
}

bool http_networks_parse(const char *text, struct http_networks *ret_list, struct err *err)
{
	struct http_networks list = {0};

	for (;;) {
		struct http_network row;
		owned_text char *entry = http_list_next(&text);
		owned_text char *shown = xstrdup(entry);
		if (!entry)
			break;
		if (!network_parse(entry, &row, err)) {
			err_prefix(err, "network %zu, \"%s\"", list.count + 1, shown);
			http_networks_finish(&list);
			return false;
		}
		list.rows = xrealloc(list.rows, (list.count + 1) * sizeof *list.rows);
		list.rows[list.count++] = row;
	}
	*ret_list = list;
	return true;
}

void http_networks_finish(struct http_networks *list)
{
	free(list->rows);
	*list = (struct http_networks){0};
}
