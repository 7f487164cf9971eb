/* Checks [api] and [admin]: addresses and tokens. */
#include <arpa/inet.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"
#include "host.h"

enum { TOKEN_LENGTH = 16 };

static bool is_loopback(const char *listen)
{
	return host_is_loopback(listen, (size_t)(strrchr(listen, ':') - listen));
}

bool config_tokens_finish(const struct config_source *source, enum config_kind kind,
    const char *name, const char *key, const struct config_list *tokens, struct err *err)
{
	for (int i = 0; i < tokens->count; i++)
		if (strlen(tokens->items[i]) < TOKEN_LENGTH)
			return config_source_refuse(err, source, kind, name, key,
			    "token %d has %zu characters and needs %d; make one with: openssl rand "
			    "-hex 32",
			    i + 1, strlen(tokens->items[i]), TOKEN_LENGTH);
	return true;
}

static bool finish_tokens(
    const struct config_api *api, const struct config_source *source, struct err *err)
{
	return config_tokens_finish(
		   source, CONFIG_API, NULL, "send_tokens", &api->send_tokens, err) &&
	       config_tokens_finish(
		   source, CONFIG_API, NULL, "read_tokens", &api->read_tokens, err) &&
	       config_tokens_finish(
		   source, CONFIG_API, NULL, "operate_tokens", &api->operate_tokens, err);
}

static bool finish_api(
    const struct config *config, const struct config_source *source, struct err *err)
{
	const struct config_api *api = &config->api;

	if (!finish_tokens(api, source, err))
		return false;

	/* without an address nobody can use the tokens, which were checked all the same */
	if (!api->listen[0])
		return true;
	if (api->send_tokens.count + api->read_tokens.count + api->operate_tokens.count +
		config->sender_count ==
	    0)
		return config_source_refuse(err, source, CONFIG_API, NULL, "listen",
		    "no client can use the interface without a token; set a [sender], "
		    "send_tokens, read_tokens or operate_tokens");
	if (!is_loopback(api->listen) && !api->remote)
		return config_source_refuse(err, source, CONFIG_API, NULL, "listen",
		    "other machines would send tokens in clear text; listen on 127.0.0.1 behind "
		    "a proxy that speaks TLS, or write remote = yes");
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

static bool takes_every_address(const char *listen)
{
	return text_starts(listen, "0.0.0.0:") || text_starts(listen, "[::]:");
}

/* Port 0 gives another port each time. */
static bool clash_on_port(const char *listen, const char *other)
{
	return text_equal(port_of(listen), port_of(other)) && !text_equal(port_of(listen), ":0") &&
	       (text_equal(listen, other) || takes_every_address(listen) ||
		   takes_every_address(other));
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
	if (!check_listens(config, source, err) || !finish_api(config, source, err))
		return false;
	if (config->admin_listen[0] && !is_loopback(config->admin_listen) && !config->admin_remote)
		return config_source_refuse(err, source, CONFIG_ADMIN, NULL, "listen",
		    "other machines could read the metrics and the state of every publisher "
		    "without a "
		    "token; listen on 127.0.0.1, or write remote = yes");
	return true;
}
