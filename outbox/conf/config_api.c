/* What [api] and [admin] must say when they listen. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"

enum { TOKEN_LENGTH = 16 };

static bool refuse(const struct config_source *source, enum config_kind kind, const char *key,
    const char *what, struct err *err)
{
	const struct config_section *section = config_source_find(source, kind, NULL);
	const struct config_entry *entry = config_source_entry(section, key);

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

/* A shorter one can be guessed. The message never holds the token. */
static bool are_long(const struct config_source *source, const char *key,
    const struct config_list *tokens, struct err *err)
{
	char what[120];

	for (int i = 0; i < tokens->count; i++) {
		if (strlen(tokens->items[i]) >= TOKEN_LENGTH)
			continue;
		snprintf(what, sizeof what,
		    "token %d has %zu characters and needs %d; make one with: openssl rand -hex 32",
		    i + 1, strlen(tokens->items[i]), TOKEN_LENGTH);
		return refuse(source, CONFIG_API, key, what, err);
	}
	return true;
}

static bool finish_api(
    const struct config_api *api, const struct config_source *source, struct err *err)
{
	if (!are_long(source, "send_tokens", &api->send_tokens, err) ||
	    !are_long(source, "read_tokens", &api->read_tokens, err) ||
	    !are_long(source, "operate_tokens", &api->operate_tokens, err))
		return false;
	if (!api->listen[0])
		return true;
	if (api->send_tokens.count + api->read_tokens.count + api->operate_tokens.count == 0)
		return refuse(source, CONFIG_API, "listen",
		    "nobody could use it without a token; set send_tokens, read_tokens or "
		    "operate_tokens",
		    err);
	if (!is_loopback(api->listen) && !api->remote)
		return refuse(source, CONFIG_API, "listen",
		    "tokens would come in clear text from other machines; listen on 127.0.0.1 "
		    "behind a proxy that speaks TLS, or write remote = yes",
		    err);
	return true;
}

bool config_api_finish(
    const struct config *config, const struct config_source *source, struct err *err)
{
	if (!finish_api(&config->api, source, err))
		return false;
	if (config->admin_listen[0] && !is_loopback(config->admin_listen) && !config->admin_remote)
		return refuse(source, CONFIG_ADMIN, "listen",
		    "other machines could read the metrics and the state of every slot without a "
		    "token; listen on 127.0.0.1, or write remote = yes",
		    err);
	return true;
}
