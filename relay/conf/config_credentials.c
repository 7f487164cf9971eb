#include "config_credentials.h"

#include "cleanup.h"
#include "text.h"

struct http_credentials *config_credentials_open(const struct config_credentials *keys,
    const char *kind, const char *name, const char **ret_key, struct err *err)
{
	owned_text char *section = xformat("%s %s", kind, name);
	const struct http_credentials_texts texts = {.section = section,
	    .headers = (const char *const *)keys->headers.items,
	    .header_count = keys->headers.count,
	    .headers_file = keys->headers_file,
	    .token_url = keys->token_url,
	    .client_id = keys->client_id,
	    .client_secret = keys->client_secret,
	    .client_secret_file = keys->client_secret_file,
	    .scope = keys->scope,
	    .audience = keys->audience,
	    .token_ca = keys->token_ca};

	return http_credentials_open(&texts, ret_key, err);
}
