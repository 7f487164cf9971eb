/* Checks [api] and [admin]: addresses, and that somebody may use the first. */
#include <arpa/inet.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"
#include "host.h"
#include "listen_address.h"

static bool is_loopback(const char *listen)
{
	return host_is_loopback(listen, (size_t)(strrchr(listen, ':') - listen));
}

static bool check_server_tls(const struct config_source *source, enum config_kind kind,
    const struct config_server_tls *tls, struct err *err)
{
	if (!tls->certificate[0] == !tls->key[0])
		return true;
	return config_source_refuse(err, source, kind, NULL,
	    tls->certificate[0] ? "tls_certificate" : "tls_key", "there is no %s for it; set both",
	    tls->certificate[0] ? "tls_key" : "tls_certificate");
}

/* "https://relay.example:8443"; one slash may follow. */
static bool is_origin(const char *url)
{
	owned_text char *host = NULL, *port = NULL, *address = NULL;
	const char *at = text_starts(url, "https://")  ? url + strlen("https://")
			 : text_starts(url, "http://") ? url + strlen("http://")
						       : "";
	size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "0123456789.-_:[]");
	const char *colon = memrchr(at, ':', length);
	struct err ignored;

	if (length == 0 || (at[length] && !text_equal(at + length, "/")))
		return false;
	/* a port is optional here, and an address of IPv6 has colons of its own */
	address = xformat("%.*s%s", (int)length, at,
	    colon && !memchr(colon, ']', (size_t)(at + length - colon)) ? "" : ":443");
	return listen_address_parse(address, &host, &port, &ignored);
}

enum { SESSION_KEY_LENGTH = 32 };

static bool check_console(
    const struct config_api *api, const struct config_source *source, struct err *err)
{
	size_t length = strlen(api->session_key);

	if (api->public_url[0] && !is_origin(api->public_url))
		return config_source_refuse(err, source, CONFIG_API, NULL, "public_url",
		    "%s is not scheme, host and port alone; write for example "
		    "https://relay.example",
		    api->public_url);
	if (api->advertise[0] && !is_origin(api->advertise))
		return config_source_refuse(err, source, CONFIG_API, NULL, "advertise",
		    "%s is not scheme, host and port alone; write for example "
		    "http://relay-1.example:9188",
		    api->advertise);
	if (api->advertise[0] && !api->listen[0])
		return config_source_refuse(err, source, CONFIG_API, NULL, "advertise",
		    "nothing answers at this URL without listen; set listen, or remove this");
	/* Messages never show the key. */
	if (length > 0 && length < SESSION_KEY_LENGTH)
		return config_source_refuse(err, source, CONFIG_API, NULL, "session_key",
		    "the key has %zu characters and needs %d; make one with: openssl rand -hex 32",
		    length, SESSION_KEY_LENGTH);
	if (api->session_idle_ms > api->session_max_ms)
		return config_source_refuse(err, source, CONFIG_API, NULL, "session_idle",
		    "a session ends earlier by session_max; raise session_max, or lower this");
	return true;
}

static bool has_token(const struct config *config)
{
	for (int i = 0; i < config->token_count; i++)
		if (config->tokens[i].tokens.count > 0)
			return true;
	return false;
}

static bool finish_api(
    const struct config *config, const struct config_source *source, struct err *err)
{
	const struct config_api *api = &config->api;

	/* without an address nobody can use the tokens, which were checked all the same */
	if (!api->listen[0])
		return true;
	if (!has_token(config))
		return config_source_refuse(err, source, CONFIG_API, NULL, "listen",
		    "no client can use the interface without a token; add a section [token "
		    "\"NAME\"] with tokens_file and roles");
	if (!is_loopback(api->listen) && !api->remote)
		return config_source_refuse(err, source, CONFIG_API, NULL, "listen",
		    "other machines could send requests%s; listen on 127.0.0.1, or write remote = "
		    "yes",
		    api->tls.certificate[0] ? ""
					    : ", and tokens in clear text: set tls_certificate");
	return true;
}

/* The port, with its colon. */
static const char *port_of(const char *listen)
{
	return strrchr(listen, ':');
}

/* Digits and dots, or brackets: if this is not an address, no resolver can turn it into one. */
static bool is_wrong_address(const char *listen)
{
	owned_text char *host = xformat("%.*s", (int)(port_of(listen) - listen), listen);
	size_t length = strlen(host);
	unsigned char address[sizeof(struct in6_addr)];

	if (host[0] == '[') {
		/* config_value.c has checked that the bracket is closed */
		host[length - 1] = '\0';
		return inet_pton(AF_INET6, host + 1, address) != 1;
	}
	return !host[strspn(host, "0123456789.")] && inet_pton(AF_INET, host, address) != 1;
}

/* The addresses that a host names without a resolver; those of IPv4 in the form ::ffff:1.2.3.4. */
struct addresses {
	struct in6_addr at[2];
	int count; /* 0: a name, which may have any address */
};

static void add_address(struct addresses *addresses, const char *host)
{
	struct in_addr four;
	owned_text char *six =
	    xformat("%s%s", inet_pton(AF_INET, host, &four) == 1 ? "::ffff:" : "", host);

	addresses->count += inet_pton(AF_INET6, six, &addresses->at[addresses->count]) == 1;
}

static struct addresses addresses_of(const char *listen)
{
	struct addresses addresses = {.count = 0};
	owned_text char *host = NULL, *port = NULL;
	struct err ignored;

	if (!listen_address_parse(listen, &host, &port, &ignored))
		return addresses;

	/* the resolver of a host decides which of the two its localhost is */
	if (text_equal(host, "localhost")) {
		add_address(&addresses, "127.0.0.1");
		add_address(&addresses, "::1");
	} else {
		add_address(&addresses, host);
	}
	return addresses;
}

static bool is_every_ipv4(const struct in6_addr *address)
{
	struct in6_addr every;

	return inet_pton(AF_INET6, "::ffff:0.0.0.0", &every) == 1 &&
	       IN6_ARE_ADDR_EQUAL(address, &every);
}

/* A socket of [::] accepts IPv4 too; one of 0.0.0.0 accepts nothing else. */
static bool takes_address(const struct in6_addr *address, const struct in6_addr *other)
{
	return IN6_IS_ADDR_UNSPECIFIED(address) || IN6_ARE_ADDR_EQUAL(address, other) ||
	       (is_every_ipv4(address) && IN6_IS_ADDR_V4MAPPED(other));
}

static bool takes_every_address(const struct addresses *addresses)
{
	return addresses->count == 1 &&
	       (IN6_IS_ADDR_UNSPECIFIED(&addresses->at[0]) || is_every_ipv4(&addresses->at[0]));
}

static bool share_address(const struct addresses *some, const struct addresses *others)
{
	for (int i = 0; i < some->count; i++)
		for (int k = 0; k < others->count; k++)
			if (takes_address(&some->at[i], &others->at[k]) ||
			    takes_address(&others->at[k], &some->at[i]))
				return true;

	/* a name is one of the host's addresses, and there is no telling which */
	return (some->count == 0 && takes_every_address(others)) ||
	       (others->count == 0 && takes_every_address(some));
}

static bool clash_on_port(const char *listen, const char *other)
{
	struct addresses some = addresses_of(listen), others = addresses_of(other);

	/* port 0 gives another port each time */
	return text_equal(port_of(listen), port_of(other)) && !text_equal(port_of(listen), ":0") &&
	       (text_equal(listen, other) || share_address(&some, &others));
}

static bool check_listens(
    const struct config *config, const struct config_source *source, struct err *err)
{
	static const char no_address[] = "%s is not an address; write for example 127.0.0.1:9187";

	if (config->admin_listen[0] && is_wrong_address(config->admin_listen))
		return config_source_refuse(
		    err, source, CONFIG_ADMIN, NULL, "listen", no_address, config->admin_listen);
	if (config->api.listen[0] && is_wrong_address(config->api.listen))
		return config_source_refuse(
		    err, source, CONFIG_API, NULL, "listen", no_address, config->api.listen);

	/* the second of them could not bind, and `run` would end with a less clear error */
	if (config->admin_listen[0] && config->api.listen[0] &&
	    clash_on_port(config->admin_listen, config->api.listen))
		return config_source_refuse(err, source, CONFIG_API, NULL, "listen",
		    "[admin] listens on the port of %s as well; choose another port",
		    config->api.listen);
	return true;
}

bool config_api_finish(
    const struct config *config, const struct config_source *source, struct err *err)
{
	if (!check_listens(config, source, err) ||
	    !check_server_tls(source, CONFIG_API, &config->api.tls, err) ||
	    !check_server_tls(source, CONFIG_ADMIN, &config->admin_tls, err) ||
	    !check_console(&config->api, source, err) || !finish_api(config, source, err))
		return false;
	if (config->admin_listen[0] && !is_loopback(config->admin_listen) && !config->admin_remote)
		return config_source_refuse(err, source, CONFIG_ADMIN, NULL, "listen",
		    "other machines could read the metrics and the state of every publisher "
		    "without a "
		    "token; listen on 127.0.0.1, or write remote = yes");
	return true;
}
