/* What the [api] section must say when it listens. */
#include <arpa/inet.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"

static bool refuse(
    const struct config_source *source, const char *key, const char *what, struct err *err)
{
	const struct config_section *section = config_source_find(source, CONFIG_API, NULL);
	const struct config_entry *entry = config_source_entry(section, "listen");

	return config_source_fail(
	    err, entry ? entry->origin : section->origin, section, key, "%s", what);
}

/* By what is written: a name may mean another address tomorrow, so that only localhost passes. */
static bool is_loopback(const char *listen)
{
	size_t length = (size_t)(strrchr(listen, ':') - listen);
	owned_text char *host = xformat("%.*s", (int)length, listen);
	struct in_addr address;

	return text_equal(host, "localhost") || text_equal(host, "[::1]") ||
	       (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

bool config_api_finish(
    const struct config *config, const struct config_source *source, struct err *err)
{
	const struct config_api *api = &config->api;

	if (!api->listen[0])
		return true;
	if (api->send_tokens.count + api->read_tokens.count + api->operate_tokens.count +
		config->sender_count ==
	    0)
		return refuse(source, "listen",
		    "nobody could use it without a token; set a [sender], send_tokens, "
		    "read_tokens or operate_tokens",
		    err);
	if (!is_loopback(api->listen) && !api->remote)
		return refuse(source, "listen",
		    "tokens would come in clear text from other machines; listen on 127.0.0.1 "
		    "behind a proxy that speaks TLS, or write remote = yes",
		    err);
	return true;
}
